"""Everything in tersense that reads a file, with good files to begin from."""

import io
import json
import os
import tempfile
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from cameras import adaptive_imager
from conftest import build_small_imager
from mutations import mutate
from tersense.errors import TersenseError, TersenseWarning
from tersense.experiments.claims import claims_to_markdown, judge_claims
from tersense.experiments.curves import read_figures, read_training
from tersense.experiments.matrices import describe_patterns
from tersense.experiments.tables import TABLES
from tersense.export.base import export
from tersense.io.images import read_image, silence_decoders, write_image
from tersense.measurements.counts import check_counts, read_counts
from tersense.measurements.manifest import Manifest
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.measurements.rice import RiceCoder
from tersense.measurements.tables import read_measured
from tersense.models.files import read_model, write_model
from tersense.models.imager import Imager
from tersense.models.plans import RoundSettings, read_round, write_round
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import random_patterns, read_patterns
from tersense.training.checkpoint import read_checkpoint, write_checkpoint
from tersense.training.config import Config, read_config, write_toml
from tersense.training.packing import open_images

PICTURE = np.random.default_rng(3).integers(0, 256, (13, 21), dtype=np.uint8)


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Args:
        suffix: Of its name.
        seeds: Good files.
        read: What reads it.
    """

    suffix: str
    seeds: list[bytes] = field(repr=False)
    read: Callable[[Path], Any]

    def damaged(self, random: Random) -> bytes:
        return mutate(random, self.seeds, self.suffix)

    def meet(self, path: Path, content: bytes) -> str:
        """Read the content: it is usable, or refused by one clear line; all else is a fault.

        A note of ours on what was lost is no fault, if it is one line too.
        """
        path.write_bytes(content)
        refusal = None
        with warnings.catch_warnings(record=True) as notes:
            silence_decoders()  # as every command does; pytest lets all warnings through
            warnings.simplefilter("always", TersenseWarning)
            try:
                self.read(path)
            except TersenseError as error:
                refusal = str(error)
        assert refusal != "", "an empty message"
        assert (refusal or "").isprintable(), f"not one line: {refusal!r}"
        for note in notes:
            assert issubclass(note.category, TersenseWarning), f"a warning: {note.message}"
            assert str(note.message).isprintable()
        return "read" if refusal is None else "refused"


def make_readers(folder: Path) -> dict[str, Reader]:
    """Make good files of every kind; what readers need beside them lies in the folder."""
    readers = {f"image {suffix}": _image_reader(suffix) for suffix in _PICTURES}
    readers |= {f"deep image {suffix}": _deep_reader(suffix) for suffix in (".png", ".tif", ".ppm")}
    readers["measurements"] = _measurement_reader()
    readers["coded measurements"] = _coded_reader()
    readers["model"] = _model_reader(folder)
    readers["configuration"] = _config_reader()
    readers["HDF5"] = _hdf5_reader(folder)
    readers |= _camera_readers(folder)
    readers |= _coded_readers(folder)
    readers["patterns .npy"], readers["patterns .mat"] = _pattern_readers()
    readers["counts .npy"] = _counts_reader()
    readers |= _round_readers(folder)
    readers["log"] = Reader(".jsonl", [_log()], read_training)
    readers["figures"] = _figures_reader(folder)
    readers["results"] = _results_reader(folder)
    readers["checkpoint"] = _checkpoint_reader(folder)
    readers["cache"] = _cache_reader(folder)
    return readers


def _saved(image: Image.Image, form: str, **options: Any) -> bytes:
    memory = io.BytesIO()
    image.save(memory, form, **options)
    return memory.getvalue()


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    return exif


_ANIMATED = {"save_all": True, "append_images": [Image.fromarray(255 - PICTURE)]}
_PICTURES: dict[str, tuple[str, tuple[str, ...], tuple[dict[str, Any], ...]]] = {
    ".png": ("PNG", ("L", "RGB", "P", "1", "I;16", "RGBA", "LA"),
             ({}, {"exif": _exif()}, {"icc_profile": bytes(3000)})),
    ".jpg": ("JPEG", ("L", "RGB", "CMYK"),
             ({}, {"progressive": True}, {"exif": _exif()}, {"icc_profile": bytes(3000)})),
    ".webp": ("WEBP", ("RGB", "RGBA"), ({}, {"lossless": True}, {"exif": _exif()}, _ANIMATED)),
    ".tif": ("TIFF", ("L", "RGB", "I;16", "F", "1"),
             ({}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"})),
    ".bmp": ("BMP", ("L", "RGB", "P", "1"), ({},)),
    ".gif": ("GIF", ("L", "P"), ({}, {"interlace": 1}, _ANIMATED)),
    ".ppm": ("PPM", ("L", "RGB", "1", "I;16"), ({},)),
}  # fmt: skip


def _image_reader(suffix: str) -> Reader:
    form, modes, options = _PICTURES[suffix]
    gray = Image.fromarray(PICTURE)
    images = [gray.convert("I").convert(mode) if mode == "I;16" else gray.convert(mode)
                for mode in modes]  # fmt: skip
    seeds = [_saved(image, form, **some) for image in images for some in options]
    if suffix == ".ppm":
        seeds += [b"P2\n# a\n3 2\n255\n1 2 3\n4 5 6\n", b"P3\n1 1\n65535\n1 2 3\n"]
    return Reader(suffix, seeds, read_image)


def _deep_reader(suffix: str) -> Reader:
    deep = PICTURE.astype(np.uint16) * 16
    color = np.stack([deep] * 3, axis=2)
    seeds = _image_reader(suffix).seeds
    with tempfile.TemporaryDirectory() as folder:
        for image in (deep, color):
            path = Path(folder) / f"deep{suffix}"
            write_image(path, image, 12)
            seeds.append(path.read_bytes())
    return Reader(suffix, seeds, lambda path: read_image(path, depth=12))


def _measurement_reader() -> Reader:
    imager = build_small_imager()
    color = np.stack([PICTURE] * 3, axis=2)
    fixed = Readout.covering(900, 3, photons=0.5)
    deep = imager.sense(PICTURE.astype(np.uint16) * 16, depth=12)
    nested = Imager.untrained(imager.patterns)  # estimates linearly, from any count
    counts = np.arange(6).reshape(2, 3) * 3
    some = [nested.sense(PICTURE, counts=counts), nested.sense(color, bits=5, counts=counts)]
    made = (imager.sense(PICTURE), imager.sense(color), imager.sense(PICTURE, bits=6, noise=2.0),
            imager.sense(color, readout=fixed), deep, *some)  # fmt: skip
    return Reader(".tsm", [y.to_bytes() for y in made], Measurements.load)


def _coded_reader() -> Reader:
    """Coded files without their checksum, which is put right: otherwise it would notice all."""
    imager = build_small_imager()
    color = np.stack([PICTURE, PICTURE.T[:13, :13].repeat(2, 1)[:, :21], PICTURE[::-1]], -1)
    counts = np.arange(6).reshape(2, 3) % len(imager.patterns)
    plain = imager.sense(PICTURE)
    y = plain.values * (np.arange(len(imager.patterns))[:, None, None] < counts)
    made = [
        plain, imager.sense(color, bits=6), imager.sense(PICTURE, readout=Readout(9, 40.0)),
        Measurements(y, plain.header, counts),
    ]  # fmt: skip
    seeds = [measured.to_bytes(imager.patterns)[:-4] for measured in made]

    def read(path: Path) -> Measurements:
        content = path.read_bytes()
        path.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
        return Measurements.load(path, patterns=imager.patterns)

    return Reader(".coded", seeds, read)


def _model_reader(folder: Path) -> Reader:
    write_model(folder / "model.safetensors", build_small_imager())
    write_model(folder / "compact.safetensors", adaptive_imager(), compact=True)
    seeds = [(folder / f"{name}.safetensors").read_bytes() for name in ("model", "compact")]

    def read(path: Path) -> Any:
        imager = read_model(path)
        try:
            return imager.reconstruct(imager.sense(PICTURE[:8, :8]))
        except MemoryError as error:  # a large window: the user chose this model
            raise TersenseError("too large") from error

    return Reader(".safetensors", seeds, read)


def _config_reader() -> Reader:
    seeds = [path.read_bytes() for path in sorted(Path("configs").glob("*.toml"))]
    everything = write_toml(replace(Config(), reconstructor={"name": "unrolled"}))
    return Reader(".toml", [*seeds, everything.encode()], read_config)


def _hdf5_reader(folder: Path) -> Reader:
    patches = np.resize(PICTURE, (40, 64))
    seeds = []
    for options in ({}, {"chunks": (8, 64)}, {"chunks": (8, 64), "compression": "gzip"},
                    {"chunks": (8, 64), "compression": "lzf", "shuffle": True},
                    {"chunks": (8, 64), "compression": "gzip", "fletcher32": True},
                    {"libver": "latest"}):  # fmt: skip
        path = folder / "patches.h5"
        version = {"libver": options.pop("libver", None)}
        with h5py.File(path, "w", **version) as file:
            file.create_dataset("patches", data=patches, **options)
            file["other"] = np.arange(5.0)
        seeds.append(path.read_bytes())
    with h5py.File(path, "w") as file:  # each chunk unpacks to more than it should hold
        made = file.create_dataset("patches", (40, 64), np.uint8, chunks=(8, 64), compression=9)
        for row in range(0, 40, 8):
            made.id.write_direct_chunk((row, 0), zlib.compress(bytes(2**24)))
    seeds.append(path.read_bytes())

    def read(path: Path) -> Any:
        return open_images(path, 4).image(0)

    return Reader(".h5", seeds, read)


def _camera_readers(folder: Path) -> dict[str, Reader]:
    imager = build_small_imager()
    for kind in ("c", "patterns"):
        options = {"mirrors": (16, 24), "scale": 1} if kind == "patterns" else {}
        export(kind, imager, folder / kind, **options)
    y = imager.sense(PICTURE).values
    table = y.reshape(16, -1).T
    np.save(folder / "table.npy", table)
    manifest, size = folder / "c/manifest.json", PICTURE.shape
    about = json.loads(manifest.read_text())
    measured = {"height": 13, "width": 21, "gain": [2.0], "offset": 1.0, "row_order": [*range(16)],
                "missing_rows": [3], "window_order": [*range(6)]}  # fmt: skip
    plan = json.loads((folder / "patterns/manifest.json").read_text())
    manifests = [
        json.dumps(text).encode() for text in (about, about | {"measured": measured}, plan)
    ]
    text = io.StringIO()
    np.savetxt(text, table, "%d", ",")
    csv = text.getvalue().encode()
    arrays = []
    for array in (table, y, y.astype(np.float32), np.asfortranarray(table)):
        memory = io.BytesIO()
        np.save(memory, array)
        arrays.append(memory.getvalue())

    def read_with(path: Path) -> Any:
        Manifest.read(path, check_files=False)
        return read_measured(folder / "table.npy", path, size)

    def read_table(path: Path) -> Any:
        return read_measured(path, manifest, size)

    return {
        "manifest": Reader(".json", manifests, read_with),
        "table .csv": Reader(".csv", [csv, b"# height=13 width=21\n" + csv], read_table),
        "table .npy": Reader(".npy", arrays, read_table),
    }


def _coded_readers(folder: Path) -> dict[str, Reader]:
    """Streams of three cameras, read with the manifest of any; and their manifests."""
    imager, streams, manifests = build_small_imager(), [], []
    y = imager.sense(PICTURE).values.astype(np.int64)
    counts = (np.arange(6) * 3 % 17).reshape(2, 3).astype(np.int32)
    for name, options in (("exact", {}), ("codes", {"bits": 8, "step": 30}), ("counts", {})):
        manifest, _ = export("c", imager, folder / name, coder="rice", **options)
        coder = RiceCoder.from_details(manifest.details["coder"], manifest.rows)
        if name == "counts":  # as a camera that decides
            coder = replace(coder, counted=True)
            content = json.loads((folder / name / "manifest.json").read_text())
            content["details"]["coder"]["counted"] = True
            (folder / name / "manifest.json").write_text(json.dumps(content))
        codes = Readout(8, 30.0).apply(y) if options else y
        streams.append(coder.encode(codes, counts if coder.counted else None))
        manifests.append((folder / name / "manifest.json").read_bytes())
    (folder / "y.rice").write_bytes(streams[-1])

    def read_any(path: Path) -> Any:
        for name in ("exact", "codes"):
            with suppress(TersenseError):
                return read_measured(path, folder / name, PICTURE.shape)
        return read_measured(path, folder / "counts", PICTURE.shape)

    def read_with(path: Path) -> Any:
        return read_measured(folder / "y.rice", path, PICTURE.shape)

    return {
        "coded .rice": Reader(".rice", streams, read_any),
        "coder .json": Reader(".json", manifests, read_with),
    }


def _counts_reader() -> Reader:
    seeds = []
    for array in (np.arange(6).reshape(2, 3), np.ones((3, 2, 3), np.uint8)):
        memory = io.BytesIO()
        np.save(memory, array)
        seeds.append(memory.getvalue())
    return Reader(".npy", seeds, lambda path: check_counts(read_counts(path), (3, 6, 2, 3)))


def _round_readers(folder: Path) -> dict[str, Reader]:
    imager, at, after = adaptive_imager(), folder / "round", folder / "after"
    capture = imager.begin((13, 21), 0.2)
    said = RoundSettings("adaptive", 13, 21, 0.2, 3)
    request = capture.next()
    assert request is not None
    write_round(at, imager, capture, request, said)
    capture.add(np.zeros(len(request)))
    write_round(after, imager, capture, capture.next(), said)

    def read_settings(path: Path) -> Any:
        (at / "round.json").write_bytes(path.read_bytes())
        return read_round(at).open(imager)

    def read_asked(path: Path) -> Any:
        (after / "counts.npy").write_bytes(path.read_bytes())
        return read_round(after).open(imager)

    return {
        "round .json": Reader(".json", [(at / "round.json").read_bytes()], read_settings),
        "round .npy": Reader(".npy", [(after / "counts.npy").read_bytes()], read_asked),
    }


def _pattern_readers() -> tuple[Reader, Reader]:
    phi = build_small_imager().phi
    arrays, matrices = [], []
    for array in (phi, phi.reshape(16, 64).astype(np.float64), phi > 0):
        memory = io.BytesIO()
        np.save(memory, array)
        arrays.append(memory.getvalue())
        for compressed in (False, True):
            memory = io.BytesIO()
            savemat(memory, {"phi": array, "x": 1.0}, do_compression=compressed)
            # The header tells the time; the same seeds give the same inputs tomorrow.
            matrices.append(b"MATLAB 5.0 MAT-file".ljust(116) + memory.getvalue()[116:])
    return Reader(".npy", arrays, read_patterns), Reader(".mat", matrices, read_patterns)


def _log() -> bytes:
    entries = [{"step": n, "epoch": n, "loss": 1.5 / n, "lr": 0.1} for n in range(1, 5)]
    entries += [{"step": 5, "validation_psnr": 28.5}]
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def _figures_reader(folder: Path) -> Reader:
    figures = {"model": "m-r10", "data": "d", "protocol": "own geometry", "rate": 0.1,
               "mean": {"psnr": 30.0, "ssim": 0.9}}  # fmt: skip
    other = folder / "other.json"
    other.write_text(json.dumps(figures | {"rate": 0.2}))
    row = {"name": "a", "published": [25.2], "sets": {"d": {"own": figures}},
           "protocol": {"config": asdict(Config())}}  # fmt: skip
    table = {"table": "rates", "rows": [row, row]}
    seeds = [json.dumps(figures).encode(), json.dumps(table).encode()]
    return Reader(".json", seeds, lambda path: read_figures([path, other], "rate"))


def _results_reader(folder: Path) -> Reader:
    """The result of an experiment, all of them alike."""
    figures = {"mean": {"psnr": 30.0}, "images": [{"name": "a", "psnr": 30.0, "seconds": 0.5}]}
    matrix = {"rows": 16, "pixels": 64} | describe_patterns(random_patterns(16, 8, 0.1))
    result = {"protocol": {"quick": True}, "sets": {"d": {"own geometry": figures}},
              "matrix": matrix, "training_loss": 20.0, "unseen_loss": {"d": 22.0},
              "epochs": [{"trained": 21.0, "held_out": 22.0}], "device": "cpu"}  # fmt: skip
    names = {e.name for e in TABLES["comparison"]() if "r10" not in e.name and "r25" not in e.name}
    for name in names:
        (folder / "results" / name).mkdir(parents=True)

    def read(path: Path) -> Any:
        content = path.read_bytes()
        for name in names:
            (folder / "results" / name / "result.json").write_bytes(content)
        return claims_to_markdown(judge_claims(folder / "results"))

    return Reader(".json", [json.dumps(result).encode()], read)


def _checkpoint_reader(folder: Path) -> Reader:
    def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        network = MlpReconstructor(Geometry(8, 8), 4, MlpOptions(hidden=(4,)))
        return network, torch.optim.Adam(network.parameters(), lr=0.1)

    network, optimizer = fresh()
    sum(weights.sum() for weights in network.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()
    path = folder / "checkpoint.safetensors"
    write_checkpoint(path, network, optimizer, {"step": 3, "seconds": 1.5})
    return Reader(".safetensors", [path.read_bytes()], lambda path: read_checkpoint(path, *fresh()))


def _cache_reader(folder: Path) -> Reader:
    """The index of packed images: a damaged one is made anew, whatever it says."""
    images, cache = folder / "pictures", folder / "cache"
    images.mkdir()
    for number in range(3):
        write_image(images / f"{number}.png", PICTURE)
        os.utime(images / f"{number}.png", (0, 0))
    open_images(images, 4, cache)
    index = (cache / "index.safetensors").read_bytes()

    def read(path: Path) -> Any:
        (cache / "index.safetensors").write_bytes(path.read_bytes())
        packed = open_images(images, 4, cache)
        for number in range(3):
            np.testing.assert_array_equal(packed.image(number), PICTURE)

    return Reader(".safetensors", [index], read)
