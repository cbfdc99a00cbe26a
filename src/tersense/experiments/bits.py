"""What files of measurements are worth beside JPEG, JPEG 2000, WebP and AVIF (`reproduce bits`).

The same images, whole files with their headers, PSNR and SSIM of what is decoded to 8-bit pixels.
Every codec codes every image at many qualities; its curve at a size is the mean over images of what
lies between two of them. Ours are files of at most that size. The others decode in milliseconds,
ours with a network.
"""

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, features

from tersense.errors import TersenseError, visible
from tersense.evaluation.metrics import psnr, ssim
from tersense.experiments.adaptive import label
from tersense.experiments.report import table_head
from tersense.experiments.testsets import find_sets, read_set
from tersense.io.images import ImageArray, read_image
from tersense.models.bits import BitsCamera, BitsMode
from tersense.models.imager import Imager

SIZES = (0.1, 0.2, 0.4, 0.8, 1.2)  # bits per pixel
_QUICK_SIDE = 64


class Point(NamedTuple):
    """One file: its size, and how close what it decodes to is."""

    bpp: float
    psnr: float
    ssim: float


class Codec(NamedTuple):
    """A format of Pillow and the options of each quality."""

    label: str
    format: str
    feature: str
    options: tuple[dict[str, Any], ...]


_WAVELETS = {"irreversible": True, "no_jp2": True, "quality_mode": "rates"}
CODECS = {
    "jpeg": Codec(
        "JPEG, optimized", "JPEG", "jpg",
        tuple({"quality": q, "optimize": True} for q in (1, 3, 5, 7, *range(10, 100, 5), 97)),
    ),
    "jpeg2000": Codec(
        "JPEG 2000, 9/7", "JPEG2000", "jpg_2000",
        tuple(_WAVELETS | {"quality_layers": [8 / bpp]}
              for bpp in (0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.1, 1.6)),
    ),
    "jpeg2000-5/3": Codec(
        "JPEG 2000, 5/3", "JPEG2000", "jpg_2000",
        tuple(_WAVELETS | {"irreversible": False, "quality_layers": [8 / bpp]}
              for bpp in (0.05, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.1, 1.6)),
    ),
    "webp": Codec(
        "WebP", "WEBP", "webp",
        tuple({"quality": q, "method": 6} for q in (0, 3, *range(5, 100, 8))),
    ),
    "avif": Codec(
        "AVIF", "AVIF", "avif",
        tuple({"quality": q, "subsampling": "4:2:0"} for q in (1, 5, *range(10, 95, 8))),
    ),
}  # fmt: skip


class Own(NamedTuple):
    """How a camera of ours decides on its files."""

    mode: BitsMode
    refined: int = 0


OURS = {
    "encoder": Own("encoder"),
    "refined": Own("encoder", refined=8),
    "open": Own("open"),
    "closed": Own("closed"),
}


def run_bits(
    imagers: Sequence[Imager],
    tests: Sequence[Path],
    only: Sequence[str] = (),
    quick: bool = False,
    say: Any = print,
    decider: Imager | None = None,
) -> dict[str, Any]:
    """Measure files of every size, ours and those of image codecs.

    Args:
        imagers: Models that choose their rates.
        tests: Folders of images; color ones are measured in gray and in color.
        only: Names of `OURS` and `CODECS`; none for all.
        quick: Small parts of two images of each folder: to see that it works.
        say: Is told what is done.
        decider: Who decides for all models; None for each itself.

    Returns:
        The table, ready for JSON: for each set and method the means of bpp, PSNR and SSIM at each
        of `SIZES`, None where a file cannot be so small.
    """
    known = [*OURS, *CODECS]
    if unknown := sorted(set(only) - set(known)):
        raise TersenseError(f"rows of bits must be of {', '.join(known)}, got {unknown[0]!r}")
    chosen = [name for name in known if not only or name in only]
    lacking = [CODECS[n].label for n in chosen if n in CODECS and not _can(CODECS[n])]
    if lacking:
        raise TersenseError(f"this Pillow writes no {', '.join(lacking)}; install one that does")
    rows = []
    for title, images in _read_sets(tests, quick):
        methods: dict[str, Any] = {}
        for name in chosen:
            if name in CODECS:
                methods[name] = _codec_curve(CODECS[name], images)
                say(f"{title}: {name} {_summary(methods[name])}")
                continue
            for imager in imagers:
                key = f"{label(imager, decider)}, {name}"
                methods[key] = _own_curve(imager, OURS[name], images, decider)
                say(f"{title}: {key} {_summary(methods[key])}")
        labels = {name: CODECS[name].label if name in CODECS else name for name in methods}
        rows.append({"set": title, "images": len(images), "labels": labels, "methods": methods})
    return {"table": "bits", "quick": quick, "sizes": list(SIZES), "rows": rows}


def _can(codec: Codec) -> bool:
    return bool(features.check(codec.feature))


def _read_sets(tests: Sequence[Path], quick: bool) -> Iterable[tuple[str, list[ImageArray]]]:
    """Return the images of each folder in gray, and then, where there are any, those in color."""
    part = slice(_QUICK_SIDE if quick else None)
    for test, paths in find_sets(tests, quick).items():
        yield test, [image for _, image in read_set(paths, quick, _QUICK_SIDE)]
        color = [image[part, part] for image in map(read_image, paths) if image.ndim == 3]
        if color:
            yield f"{test}, color", color


def _codec_curve(codec: Codec, images: list[ImageArray]) -> list[Point | None]:
    """Return the means at each size of what lies between the files of an image.

    A file that gives an image back exactly, with infinite PSNR, tells only that this codec has made
    the image; it is left out.
    """
    files = [[_encode(codec, image, options) for options in codec.options] for image in images]
    curves = [sorted(p for p in points if math.isfinite(p.psnr)) for points in files]
    return [_mean([_between(curve, size) for curve in curves]) for size in SIZES]


def _encode(codec: Codec, image: ImageArray, options: dict[str, Any]) -> Point:
    color: dict[str, Any] = {"mct": 1} if image.ndim == 3 and codec.format == "JPEG2000" else {}
    if color:  # rates are of all bits, and three channels have three times as many
        color["quality_layers"] = [3 * layer for layer in options["quality_layers"]]
    file = io.BytesIO()
    Image.fromarray(image).save(file, codec.format, **(options | color))
    with Image.open(file) as decoded:
        again = np.asarray(decoded.convert("L" if image.ndim == 2 else "RGB"))
    return _judge(8 * file.getbuffer().nbytes, again, image)


def _judge(bits: int, again: ImageArray, image: ImageArray) -> Point:
    pixels = image.shape[0] * image.shape[1]
    return Point(bits / pixels, psnr(again, image), ssim(again, image))


def _between(curve: list[Point], bpp: float) -> Point | None:
    """Return the point of a curve at a size, on straight lines over the logarithm of it.

    Beyond the largest file it is that file, before the smallest there is none.
    """
    sizes, size = np.log([point.bpp for point in curve]), math.log(bpp)
    if not curve or size < sizes[0]:
        return None
    found = (np.interp(size, sizes, [p[i] for p in curve]) for i in (1, 2))
    return Point(min(bpp, curve[-1].bpp), *map(float, found))


def _own_curve(
    imager: Imager, own: Own, images: list[ImageArray], decider: Imager | None
) -> list[Point | None]:
    points = []
    for size in SIZES:
        camera = BitsCamera(imager, size, mode=own.mode, refined=own.refined, decider=decider)
        points.append(_mean([_own_point(camera, image) for image in images]))
    return points


def _own_point(camera: BitsCamera, image: ImageArray) -> Point | None:
    try:
        y = camera.sense(image)
    except TersenseError:  # such a small file cannot be
        return None
    content = y.to_bytes(camera.imager.patterns)
    return _judge(8 * len(content), camera.imager.reconstruct(y), image)


def _mean(points: Sequence[Point | None]) -> Point | None:
    """Return the mean over images; None where one has no such file."""
    there = [point for point in points if point is not None and math.isfinite(point.psnr)]
    if len(there) < len(points):
        return None
    return Point(*(float(np.mean([point[i] for point in there])) for i in range(3)))


def _cell(point: Point | None) -> str:
    return "–" if point is None else f"{point.psnr:.2f} / {point.ssim:.3f}"


def _summary(points: list[Point | None]) -> str:
    cells = zip(SIZES, points, strict=True)
    return ", ".join(f"{size:g}: {_cell(point)}" for size, point in cells)


def bits_to_markdown(result: dict[str, Any]) -> str:
    """Return a table for each set: methods down, sizes across."""
    about = (
        "PSNR in dB / SSIM of 8-bit pixels, mean over images, by bits per pixel of whole files. "
        "Ours are files of at most that size; the curves of image codecs are interpolated."
    )
    lines = table_head("bits", [about], result["quick"])
    for row in result["rows"]:
        sizes = " | ".join(f"{size:g}" for size in result["sizes"])
        lines += ["", f"## {row['set']}, {row['images']} images", "", f"| | {sizes} |"]
        lines.append("|---" * (1 + len(result["sizes"])) + "|")
        for name, points in row["methods"].items():
            lines.append(f"| {row['labels'][name]} | {' | '.join(map(_cell, points))} |")
    return "\n".join(map(visible, lines)) + "\n"
