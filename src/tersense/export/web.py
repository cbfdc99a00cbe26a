"""A page that needs no server: it senses, decides, reconstructs and writes files in the browser.

    image ──sensing.js──▶ y ──decision.js──▶ counts ──tsm.js──▶ file.tsm
                          └──────────network.js──────────▶ image

The page is our own HTML, CSS and JavaScript, which lie in `web/`. The camera comes with it as
`camera.json` (patterns, decision, words) and `reconstructor.onnx`, whose weights are kept in 16
bits. ONNX Runtime Web runs the network; it is fetched when the page is written, not when it is
read. Integers are those of Python, bit for bit.
"""

import html
import json
import shutil
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.export.base import Outcome
from tersense.export.guide import fill_guide, printable_name
from tersense.export.npm import Package
from tersense.export.onnx import model_inputs, reconstructor_model, run_model
from tersense.export.test_vectors import Vectors, photograph
from tersense.io import webpage
from tersense.models.imager import Imager
from tersense.sensing.patterns import rows_for_rate

import onnx  # isort: skip (after our module, which says how to install it)

RUNTIME = Package(
    "onnxruntime-web",
    "1.30.0",
    "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
)
# What is taken, and what it is called: some hosts do not know what a file ending in .mjs is.
_RUNTIME_FILES = {
    "dist/ort.wasm.min.mjs": "ort.wasm.js",
    "dist/ort-wasm-simd-threaded.mjs": "wasm.js",
    "dist/ort-wasm-simd-threaded.wasm": "wasm.wasm",
    "dist/ort.webgpu.min.mjs": "ort.webgpu.js",
    "dist/ort-wasm-simd-threaded.asyncify.mjs": "webgpu.js",
    "dist/ort-wasm-simd-threaded.asyncify.wasm": "webgpu.wasm",
    "package.json": "package.json",
}
LARGEST_LOSS = 0.01  # dB, of weights in 16 bits
_PAGE = Path(__file__).with_name("web")
_MODEL = "reconstructor.onnx"
_SMALL = 256  # weights that are kept in 32 bits, where nothing is gained
_TRIAL_SIZE, _TRIAL_RATE = (128, 160), 0.1
_USUAL_RATE = 0.1
_MAX_MEGABYTES = 20  # of an image, as `web/pixels.js` has it


def write(imager: Imager, vectors: Vectors, folder: Path, runtime: Path | None = None) -> Outcome:
    """Write the page, and compare its network with torch.

    Args:
        imager: With a universal network, blocks, and a decision for sensors.
        vectors: Not used.
        folder: Where to.
        runtime: ONNX Runtime Web, where it was downloaded before.
    """
    files = list(_RUNTIME_FILES)
    given = None if runtime is None else RUNTIME.read(files, runtime)
    _require_fit(imager)
    programs = given or RUNTIME.read(files)  # before the work, which is in vain without it
    onnx.save(with_half_weights(reconstructor_model(imager)), folder / _MODEL)
    loss = _compare(imager, folder / _MODEL)
    if not loss <= LARGEST_LOSS:
        raise TersenseError(
            f"weights in 16 bits must not cost more than {LARGEST_LOSS} dB, got {loss:.2g} dB; "
            "nothing was exported"
        )
    (folder / "ort").mkdir()
    for source, name in _RUNTIME_FILES.items():
        (folder / "ort" / name).write_bytes(programs[source])
    _write_page(imager, folder)
    shutil.move(folder / "onnxruntime-license.txt", folder / "ort" / "LICENSE")
    sizes = {name: _megabytes(folder / name) for name in (_MODEL, "ort/wasm.wasm")}
    facts = {
        "network": f"{sizes[_MODEL]} with weights of 16 bits, {loss:.1g} dB from torch",
        "runtime": f"{RUNTIME.name} {RUNTIME.version}, {sizes['ort/wasm.wasm']} on first use",
    }
    details = {"runtime": [RUNTIME.name, RUNTIME.version, RUNTIME.integrity], "loss_db": loss}
    values = {
        "runtime": f"{RUNTIME.name} {RUNTIME.version}",
        "model_size": sizes[_MODEL],
        "wasm_size": sizes["ort/wasm.wasm"],
        "loss": f"{loss:.1g}",
    }
    return Outcome(details, facts, fill_guide("web", values))


def _require_fit(imager: Imager) -> None:
    geometry, decision = imager.geometry, imager.camera.decision
    if geometry.window != geometry.stride or not imager.reconstructor.any_count or decision is None:
        raise TersenseError(
            "the page needs a model with windows side by side, counts per window and a decision "
            f"for sensors, which {imager.name} is not; use flex, or train one as it was trained"
        )


def with_half_weights(model: Any) -> Any:
    """Keep large weights in 16 bits; runtimes turn them back into 32 when they load them."""
    casts = []
    for weights in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weights)
        if values.dtype != np.float32 or values.size < _SMALL:
            continue
        name = weights.name
        half = onnx.numpy_helper.from_array(values.astype(np.float16), f"{name} in 16 bits")
        weights.CopyFrom(half)
        single = onnx.TensorProto.FLOAT
        casts.append(onnx.helper.make_node("Cast", [half.name], [name], to=single))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *nodes])
    onnx.checker.check_model(model, full_check=True)
    return model


def _compare(imager: Imager, path: Path) -> float:
    """Return by how many dB the image of onnxruntime is further from, or closer to, a real one."""
    image = photograph(*_TRIAL_SIZE)
    grid = imager.geometry.grid(*image.shape)
    rows = min(len(imager.patterns), rows_for_rate(_TRIAL_RATE, imager.geometry.stride))
    y = imager.sense(image, counts=np.full(grid, rows))
    (again,) = run_model(path, **model_inputs(imager, y))
    return abs(psnr(again[0], image) - psnr(imager.estimate(y), image))


def _write_page(imager: Imager, folder: Path) -> None:
    for path in _PAGE.iterdir():
        shutil.copyfile(path, folder / path.name)
    (folder / "samples").mkdir()
    for path in webpage.SAMPLES:
        shutil.copyfile(path, folder / "samples" / path.name)
    shutil.copyfile(webpage.STYLE, folder / webpage.STYLE.name)
    text = json.dumps(describe_camera(imager), separators=(",", ":"))
    (folder / "camera.json").write_text(text, encoding="utf-8")
    page = Template((_PAGE / "index.html").read_text(encoding="utf-8"))
    own = {
        "model": html.escape(printable_name(imager)),
        "download_size": _megabytes(folder / _MODEL, folder / "ort/wasm.wasm"),
    }
    text = page.substitute(_words() | own)
    (folder / "index.html").write_text(text, encoding="utf-8", newline="\n")


def _words() -> dict[str, str]:
    """Return what the page shares with the one that has a server."""
    captions = {
        "pick": webpage.PICK,
        "upload": (webpage.UPLOAD[0], webpage.UPLOAD[1].format(_MAX_MEGABYTES)),
        "slider": webpage.SLIDER,
        "error": webpage.ERROR,
        "counts": webpage.COUNTS,
        "patterns": webpage.PATTERNS,
        "measurements": webpage.MEASUREMENTS,
    }
    return {name: webpage.caption(words) for name, words in captions.items()} | {
        "introduction": webpage.INTRODUCTION,
        "nothing": webpage.NOTHING,
        "rate_label": webpage.RATE_LABEL,
        "bits_label": webpage.BITS_LABEL,
        "noise_label": webpage.NOISE_LABEL,
        "download_tsm": webpage.DOWNLOAD_TSM,
        "download_png": webpage.DOWNLOAD_PNG,
        "samples": "".join(_sample(path.name) for path in webpage.SAMPLES),
        "bits_choices": _choices("bits", webpage.BITS),
        "noise_choices": _choices("noise", webpage.NOISES),
    }


def _sample(name: str) -> str:
    """Return a button with a sample image."""
    path, word = f"samples/{name}", name.split(".")[0]
    shown = f'<img src="{path}" alt="{word}">'
    return f'<button type="button" data-sample="{path}" aria-pressed="false">{shown}</button>'


def _choices(name: str, values: dict[str, Any]) -> str:
    """Return buttons of which one is chosen; the first is."""
    return "".join(
        f'<label><input type="radio" name="{name}" value="{value:g}"{" checked" * (k == 0)}>'
        f"<span>{word}</span></label>"
        for k, (word, value) in enumerate(values.items())
    )


def describe_camera(imager: Imager) -> dict[str, Any]:
    """Return all that sensing and deciding need, ready for JSON; see `web/sensing.js`."""
    patterns, decision = imager.patterns, imager.camera.decision
    assert decision is not None
    rows = patterns.phi.reshape(len(patterns), -1)
    stored = patterns.storage_bytes
    weights = {name: values.tolist() for name, values in decision.state_dict().items()}
    return {
        "name": imager.name,
        "window": patterns.window,
        "rows": len(patterns),
        "lowest": rows_for_rate(imager.reconstructor.lowest_rate, patterns.stride),
        "usual": rows_for_rate(_USUAL_RATE, patterns.stride),
        "halo": imager.reconstructor.halo,
        "weights": imager.parameters,
        "bytes": {"sparse": stored["CSC"], "dense": stored["float32"]},
        "plus": [np.flatnonzero(row > 0).tolist() for row in rows],
        "minus": [np.flatnonzero(row < 0).tolist() for row in rows],
        "decision": {"levels": list(decision.levels), **weights},
    }


def _megabytes(*paths: Path) -> str:
    return f"{sum(path.stat().st_size for path in paths) / 1e6:.1f} MB"
