"""Read and write pictures, turn them gray, mirror their borders.

A picture is a uint8 array: (H, V) in gray or (H, V, 3) in colour.
"""

import contextlib
import ctypes
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, _imaging

from tersense.errors import TersenseError, one_line
from tersense.io.files import written_whole

Picture = NDArray[np.uint8]

PHOTOGRAPH = Path(__file__).parent / "assets" / "chelsea.png"

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".pgm", ".ppm", ".pnm")
)


# Only these decoders see a file: others (PostScript!) would run programs on it.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")


def silence_decoders() -> None:
    """Let Pillow and libtiff print nothing in this process; for programs, not for libraries.

    Whether a damaged file can be used is said once, by us. Large images are fine; what Pillow calls
    a bomb (an error, not a warning) is refused.
    """
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", module=r"PIL\.")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    with contextlib.suppress(AttributeError, OSError):  # a Pillow without libtiff
        libtiff = ctypes.CDLL(_imaging.__file__)  # finds what that library is linked with
        libtiff.TIFFSetErrorHandler(None)
        libtiff.TIFFSetWarningHandler(None)


def find_images(folder: str | Path) -> list[Path]:
    """List the files of a folder, and of those below it, that look like images, in name order."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TersenseError(f"{folder} is not a folder; give a folder of images")
    every = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    found = sorted(path for path in every if path.is_file())
    if not found:
        endings = " ".join(sorted(SUFFIXES))
        raise TersenseError(f"no images in {folder}; looked for files ending in {endings}")
    return found


def read_image(path: str | Path, most_pixels: int | None = None) -> Picture:
    """Read a picture as uint8, (H, V) in gray or (H, V, 3) in colour.

    Palettes are resolved, transparency is dropped, 16-bit gray keeps its upper 8 bits, and the
    orientation that a camera noted is applied.

    Args:
        path: The file.
        most_pixels: Refuse larger pictures before any pixel is decoded.
    """
    with _opened(path, most_pixels) as image:
        # A copy, because Pillow's own buffer is read-only.
        return np.array(_to_8_bit(ImageOps.exif_transpose(image)))


def read_gray(path: str | Path) -> Picture:
    """Read a picture as (H, V) uint8, colour turned into full-range luma."""
    return to_gray(read_image(path))


def to_gray(picture: Picture) -> Picture:
    """Turn a picture into full-range luma, 0.299 R + 0.587 G + 0.114 B; gray stays as it is."""
    return picture if picture.ndim == 2 else np.array(Image.fromarray(picture).convert("L"))


def check_picture(picture: Any) -> Picture:
    """Return the picture as an array if it is (H, V) or (H, V, 3) uint8; otherwise say why not."""
    if isinstance(picture, (str, Path)):
        raise TypeError(f"give pixels, not a path: read_image({str(picture)!r}) reads them")
    array = np.asarray(picture)
    if array.dtype != np.uint8:
        raise TypeError(f"a picture has uint8 pixels from 0 to 255, not {array.dtype}; convert it")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or not array.size:
        raise ValueError(
            f"a picture has shape (height, width) or (height, width, 3), not {array.shape}"
        )
    return array


def to_planes(picture: Picture) -> Picture:
    """Turn a picture into its channels, (1, H, V) or (3, H, V)."""
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture, 2, 0)


def from_planes(planes: NDArray[Any]) -> NDArray[Any]:
    """Turn channels (1, H, V) or (3, H, V) back into a picture."""
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, 2)


def to_pixels(estimate: NDArray[Any]) -> Picture:
    """Round and clip real values to the nearest pixel values."""
    if np.isnan(estimate).any():
        raise TersenseError("what came back are no numbers; the model or what it got is damaged")
    pixels: Picture = np.clip(np.rint(estimate), 0, 255).astype(np.uint8)
    return pixels


def mirror_border(picture: NDArray[Any], border: int) -> NDArray[Any]:
    """Extend (H, V) by mirrored pixels on every side, the edge itself not repeated."""
    return np.pad(picture, border, mode="reflect")


def write_image(path: str | Path, picture: Picture) -> None:
    """Write a picture in the format that the file's ending names."""
    path = Path(path)
    require_picture_suffix(path)
    with written_whole(path) as partial:
        try:
            Image.fromarray(picture).save(partial)
        except ValueError as error:  # WebP of more than 16383 pixels a side, say
            raise TersenseError(f"cannot write {path}: {one_line(error)}") from error


def require_picture_suffix(path: Path) -> None:
    """Refuse a file whose ending names no picture format, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        endings = " ".join(sorted(SUFFIXES))
        raise TersenseError(f"cannot write {path}: name a file ending in one of {endings}")


@contextlib.contextmanager
def _opened(path: str | Path, most_pixels: int | None = None) -> Iterator[Image.Image]:
    """Open an image; whatever a damaged file does becomes one clear error."""
    if not Path(path).is_file():
        raise TersenseError(f"no such image: {path}")
    try:
        with Image.open(path, formats=_FORMATS) as image:
            if most_pixels and image.width * image.height > most_pixels:
                raise TersenseError(
                    f"it has {image.width}×{image.height} pixels, more than {most_pixels:,}; "
                    "make it smaller"
                )
            image.load()
            yield image
    except Image.DecompressionBombError as error:
        raise TersenseError(f"{path} is too large: {error}") from error
    except TersenseError as error:
        raise TersenseError(f"{path}: {error}") from error
    except Exception as error:  # a decoder of a damaged file may raise anything
        raise TersenseError(f"{path} is not a readable image: {one_line(error)}") from error


def _to_8_bit(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        if np.asarray(image).min() < 0 or np.asarray(image).max() >= 2**16:
            raise TersenseError("it has 32-bit pixels; convert it to 8 or 16 bits")
        return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode == "F":
        raise TersenseError("it has floating-point pixels; convert it to 8 or 16 bits")
    return image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")
