"""Frames for a digital mirror device, and the plan that turns its detectors' readings into y.

Frames come in the forms that controllers and their drivers take:

- `png`: one 1-bit image an exposure;
- `bits`: all of them in one file, 8 mirrors a byte, the first in the highest bit, each row of
  mirrors beginning with a new byte;
- `bitmaps`: 24 exposures to one 24-bit RGB bitmap, one a bit, as controllers of Texas Instruments
  store them. Their DLPC350 shows the bits G0 … G7, R0 … R7, B0 … B7 in this order; `planes`
  names another one;
- `npy`: (exposures, rows, columns) uint8, 1 for a mirror that is on.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tersense.errors import TersenseError
from tersense.export.base import Outcome
from tersense.export.guide import fill_guide, quoted_name
from tersense.export.test_vectors import Vectors
from tersense.measurements.exposures import Plan, make_plan
from tersense.models.imager import Imager
from tersense.sensing.operator import SensingOperator

BITS_PER_BITMAP = 24
FRAMES_OF_A_CONTROLLER = 400  # one-bit frames that TI's DLPC900 holds
MAX_EXPOSURES = 100_000


def write(
    imager: Imager,
    vectors: Vectors,
    folder: Path,
    *,
    camera: str = "array",
    mirrors: tuple[int, int] = (768, 1024),
    image: tuple[int, int] | None = None,
    scale: int | None = None,
    formats: Sequence[str] = ("png",),
    planes: str = "GRB",
) -> Outcome:
    """Write the frames and the plan.

    Args:
        imager: The camera.
        vectors: Not needed here.
        folder: Where the files go.
        camera: `array` or `single`.
        mirrors: (rows, columns) of the device.
        image: (H, W) in pixels; see `make_plan`.
        scale: Mirrors per pixel, down and across; see `make_plan`.
        formats: Any of `png`, `bits`, `bitmaps`, `npy`.
        planes: The order of the colors in bitmaps.
    """
    plan = make_plan(imager.geometry, len(imager.phi), camera, mirrors, image, scale)
    _check(plan, formats, planes, folder)
    for name in formats:
        if name == "bitmaps":
            _write_bitmaps(plan, imager.phi, folder, planes)
        else:
            _FORMATS[name](plan, imager.phi, folder)
    tables = {"exposures": plan.exposure_table(), "detectors": plan.detector_table()}
    np.savez_compressed(folder / "plan.npz", allow_pickle=False, **tables)
    described = _describe(plan, formats, planes)
    (folder / "plan.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    facts = _facts(plan, imager)
    return Outcome({"plan": plan.as_dict()}, facts, _guide(plan, imager, facts, formats, planes))


def _check(plan: Plan, formats: Sequence[str], planes: str, folder: Path) -> None:
    """Refuse what cannot be written before anything is."""
    unknown = [name for name in formats if name not in (*_FORMATS, "bitmaps")]
    if unknown or not formats:
        known = ", ".join((*_FORMATS, "bitmaps"))
        raise TersenseError(f"frames come as {known}, not as {', '.join(unknown) or 'nothing'}")
    if sorted(planes) != ["B", "G", "R"]:
        raise TersenseError(f"planes {planes!r} must name R, G and B once each, such as GRB")
    if plan.exposures > MAX_EXPOSURES:
        raise TersenseError(
            f"this would be {plan.exposures:,} exposures, of {MAX_EXPOSURES:,} at most; choose a "
            "smaller image, or a detector array"
        )
    row_bytes = {"bits": -(-plan.mirrors_across // 8), "bitmaps": plan.mirrors_across // 8,
                 "npy": plan.mirrors_across}  # fmt: skip
    size = plan.exposures * plan.mirrors_down * sum(row_bytes.get(name, 0) for name in formats)
    free = shutil.disk_usage(folder).free
    if size > free:
        raise TersenseError(
            f"these frames take {size / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free; "
            "choose fewer formats, or fewer mirrors"
        )


def _write_png(plan: Plan, phi: NDArray[np.int8], folder: Path) -> None:
    (folder / "png").mkdir()
    for number, frame in enumerate(plan.frames(phi)):
        Image.fromarray(frame).save(folder / "png" / f"frame-{number:05d}.png")


def _write_bits(plan: Plan, phi: NDArray[np.int8], folder: Path) -> None:
    with (folder / "frames.bits").open("wb") as file:
        for frame in plan.frames(phi):
            file.write(np.packbits(frame, axis=1).tobytes())


def _write_npy(plan: Plan, phi: NDArray[np.int8], folder: Path) -> None:
    shape = plan.exposures, plan.mirrors_down, plan.mirrors_across
    stack = np.lib.format.open_memmap(folder / "frames.npy", "w+", np.uint8, shape)
    for number, frame in enumerate(plan.frames(phi)):
        stack[number] = frame
    stack.flush()


def _write_bitmaps(plan: Plan, phi: NDArray[np.int8], folder: Path, planes: str) -> None:
    (folder / "bitmaps").mkdir()
    bitmap = np.zeros((plan.mirrors_down, plan.mirrors_across, 3), np.uint8)
    for number, frame in enumerate(plan.frames(phi)):
        plane, bit = divmod(number % BITS_PER_BITMAP, 8)
        bitmap[:, :, "RGB".index(planes[plane])] |= frame.astype(np.uint8) << bit
        if (number + 1) % BITS_PER_BITMAP == 0 or number + 1 == plan.exposures:
            name = f"frames-{number // BITS_PER_BITMAP:04d}.bmp"
            Image.fromarray(bitmap).save(folder / "bitmaps" / name)
            bitmap[:] = 0


_FORMATS: dict[str, Callable[[Plan, NDArray[np.int8], Path], None]] = {
    "png": _write_png,
    "bits": _write_bits,
    "npy": _write_npy,
}


def _describe(plan: Plan, formats: Sequence[str], planes: str) -> dict[str, object]:
    """Return the plan in words and numbers, for a person or another program."""
    order = [f"{color}{bit}" for color in planes for bit in range(8)]
    return {
        "plan": plan.as_dict(),
        "origin": plan.origin,
        "exposures": plan.exposures,
        "detectors": plan.detectors,
        "order": "exposure 2·(set·rows + row) shows +1 of the row, the next one −1",
        "measurement": "y[row, i, j] = (reading of +1 − reading of −1) / scale², by the detector "
        "that sees window (i, j) in this set",
        "tables": {
            "file": "plan.npz",
            "exposures": ["set", "row", "sign"],
            "detectors": ["set", "detector", "i", "j", "top", "left", "bottom", "right"],
        },
        "formats": list(formats),
        "bits of a bitmap": order if "bitmaps" in formats else [],
    }


_CAMERAS = {
    "array": "one detector for each window of a set",
    "single": "one detector for everything",
}
_FORMAT_TEXTS = {
    "png": "`png/frame-00000.png` …: a 1-bit image for each exposure, white is on",
    "bits": "`frames.bits`: all frames, {row} bytes a row of mirrors, the first mirror in the "
    "highest bit, rows from top to bottom",
    "npy": "`frames.npy`: ({exposures}, {down}, {across}) uint8, 1 is on",
    "bitmaps": "`bitmaps/frames-0000.bmp` …: 24 exposures in the bits of an RGB bitmap, in the "
    "order {order}",
}


def _guide(
    plan: Plan, imager: Imager, facts: dict[str, str], formats: Sequence[str], planes: str
) -> str:
    """Return what README.md tells."""
    numbers = {
        "row": -(-plan.mirrors_across // 8),
        "exposures": plan.exposures,
        "down": plan.mirrors_down,
        "across": plan.mirrors_across,
        "order": ", ".join(f"{color}0 … {color}7" for color in planes),
    }
    values = plan.as_dict() | {
        "quoted": quoted_name(imager),
        "camera_text": _CAMERAS[plan.camera],
        "top": plan.origin[0],
        "left": plan.origin[1],
        "exposures": f"{plan.exposures:,}",
        "sets": len(plan.sets),
        "detectors": plan.detectors,
        "lit": facts["lit mirrors"],
        "controller": facts["controller"],
        "formats": "\n".join(f"- {_FORMAT_TEXTS[name].format(**numbers)}" for name in formats),
    }
    return fill_guide("patterns", values)


def _facts(plan: Plan, imager: Imager) -> dict[str, str]:
    lit = _lit_pixels(plan, imager) / plan.exposures
    image = lit / (plan.height * plan.width)
    device = lit * plan.scale**2 / (plan.mirrors_down * plan.mirrors_across)
    loads = -(-plan.exposures // FRAMES_OF_A_CONTROLLER)
    bitmaps = -(-plan.exposures // BITS_PER_BITMAP)
    group = "window" if plan.camera == "single" else "set of windows"
    return {
        "image": f"{plan.width}×{plan.height} pixels of {plan.scale}×{plan.scale} mirrors, in "
        f"the middle of {plan.mirrors_across}×{plan.mirrors_down}",
        "detectors": f"{plan.detectors}",
        "exposures": f"{plan.exposures:,}: 2 for each of {plan.rows} patterns in each "
        f"{group} ({len(plan.sets)})",
        "lit mirrors": f"{image:.2%} of the image's, {device:.2%} of all, on average",
        "controller": f"{bitmaps} RGB bitmaps of {BITS_PER_BITMAP} frames; a memory of "
        f"{FRAMES_OF_A_CONTROLLER} frames is loaded {loads} {'time' if loads == 1 else 'times'}",
    }


def _lit_pixels(plan: Plan, imager: Imager) -> int:
    """Return the pixels that are lit in all exposures together: |Φ| applied to an image of 1."""
    operator = SensingOperator(imager.operator.phi.abs(), plan.stride)
    return int(operator.sense_ones((plan.height, plan.width)).double().sum())
