"""The whole way of an image, once, with its figures."""

import time
from pathlib import Path

from tersense.evaluation.metrics import psnr, ssim
from tersense.io.figures import ERROR_CAPTION, draw_error, draw_patterns, draw_sheet
from tersense.io.files import make_folder
from tersense.io.images import PHOTOGRAPH, ImageArray, read_image, require_image_target, write_image
from tersense.models.imager import Imager


def run_demo(imager: Imager, folder: Path, force: bool = False) -> tuple[dict[str, str], Path]:
    """Sense and reconstruct the bundled photograph.

    Args:
        imager: The camera.
        folder: Where the measurement file and the images go.
        force: Whether to overwrite images that are not ours.

    Returns:
        Names and values of the figures, and the path of the side-by-side image.
    """
    make_folder(folder)
    reconstruction, sheet = folder / "reconstruction.png", folder / "demo.png"
    for path in (reconstruction, sheet):
        require_image_target(path, force)
    photograph = read_image(PHOTOGRAPH)
    imager.sense(photograph)  # the first time, the kernel is compiled or fetched from its cache
    began = time.perf_counter()
    y = imager.sense(photograph)
    sensed = time.perf_counter()
    again = imager.reconstruct(y)
    done = time.perf_counter()
    y.save(folder / "photograph.tsm", imager.patterns)
    write_image(reconstruction, again)
    write_image(sheet, draw_demo(imager, photograph, again))
    patterns = imager.patterns
    facts = {
        "photograph": f"{photograph.shape[1]}×{photograph.shape[0]} pixels, color",
        "camera": f"{imager.name}: {len(patterns)} patterns of {patterns.window}×"
        f"{patterns.window} pixels, {patterns.density:.1%} non-zero",
        "measurements": f"{y.taken:,} for {photograph.size:,} values: "
        f"{y.per_pixel:.3f} per pixel of each channel",
        "in the camera": f"{patterns.additions_per_measurement:.0f} additions per measurement, "
        "no multiplication",
        "patterns stored in": f"{patterns.storage_bytes['CSC'] / 1024:.1f} KiB "
        f"(dense float: {patterns.storage_bytes['float32'] / 1024:.0f} KiB)",
        "PSNR": f"{psnr(again, photograph):.2f} dB",
        "SSIM": f"{ssim(again, photograph):.4f}",
        "sensed in": f"{(sensed - began) * 1e3:.1f} ms",
        "reconstructed in": f"{(done - sensed) * 1e3:.0f} ms",
    }
    return facts, sheet


def draw_demo(imager: Imager, photograph: ImageArray, again: ImageArray) -> ImageArray:
    """Draw original, reconstruction, error and patterns on one sheet."""
    images = [
        ("original", photograph),
        (f"from {imager.patterns.rate:.0%} measurements, {psnr(again, photograph):.2f} dB", again),
        (f"{ERROR_CAPTION}, black for none", draw_error(again, photograph)),
    ]
    width = sum(image.shape[1] for _, image in images) + 2 * 12
    caption = (
        f"some of the {len(imager.patterns)} learned patterns: +1 orange, -1 blue, "
        f"{1 - imager.patterns.density:.0%} zeros"
    )
    return draw_sheet([images, [(caption, draw_patterns(imager.phi, width))]])
