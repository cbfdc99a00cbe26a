"""Read and write images, turn them gray, mirror their borders.

An image is a uint8 array: (H, W) in gray or (H, W, 3) in color.
"""

import contextlib
import ctypes
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError, _imaging

from tersense.errors import TersenseError, TersenseWarning, one_line
from tersense.io.files import require_file, written_whole
from tersense.io.marks import mark_options, mark_plainly, require_no_loss

ImageArray = NDArray[np.uint8]

PHOTOGRAPH = Path(__file__).parent / "assets" / "chelsea.png"

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".pgm", ".ppm", ".pnm")
)


_MAX_SAMPLE_VALUE = 281  # a tag of TIFF
_DEEP = "tersense: 16 bits per channel"
# Only these decoders see a file: others (PostScript!) would run programs on it.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")
# A scan of a JPEG takes time for every pixel and 60 bytes; cameras and programs write 1 to 20.
_MAX_SCANS = 64
_JPEG_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
_SCAN, _END, _WITHOUT_LENGTH = 0xDA, 0xD9, (0x01, 0xD8)


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


def read_image(
    path: str | Path, max_pixels: int | None = None, depth: int | None = None
) -> ImageArray:
    """Read an image as uint8, (H, W) in gray or (H, W, 3) in color.

    Palettes are resolved and the orientation that a camera noted is applied. What is lost (bits
    beyond the eighth, transparency) is said by a `TersenseWarning`.

    Args:
        path: The file.
        max_pixels: Refuse larger images before any pixel is decoded.
        depth: Bits per pixel of gray data in a 16-bit file, 8 to 16, where the file does not say.
    """
    image, note = decode_image(path, max_pixels, depth)
    if note:
        warnings.warn(f"{path}: {note}", TersenseWarning, stacklevel=2)
    return image


def decode_image(
    path: str | Path,
    max_pixels: int | None = None,
    depth: int | None = None,
    max_aspect: int | None = None,
) -> tuple[ImageArray, str]:
    """Read an image as `read_image` does; return it, and what was lost, or an empty text.

    Args:
        path: The file.
        max_pixels: As in `read_image`.
        depth: As in `read_image`.
        max_aspect: Refuse images that are more than so many times as long as wide, likewise.
    """
    if depth is not None and not 8 <= depth <= 16:
        raise TersenseError(f"depth must be from 8 to 16 bits per pixel, got {depth}")
    with _opened(path, max_pixels, max_aspect) as image:
        depth = depth or _stated_depth(image)
        pixels, notes = _to_8_bit(ImageOps.exif_transpose(image), depth)
        if "A" in image.getbands() or "transparency" in image.info:
            notes.append("transparency is dropped")
        # A copy, because Pillow's own buffer is read-only.
        return np.array(pixels), "; ".join(notes)


def read_gray(path: str | Path) -> ImageArray:
    """Read an image as (H, W) uint8, color turned into full-range luma; nothing is said of loss."""
    return to_gray(decode_image(path)[0])


def to_gray(image: ImageArray) -> ImageArray:
    """Turn an image into full-range luma, 0.299 R + 0.587 G + 0.114 B; gray stays as it is."""
    return image if image.ndim == 2 else np.array(Image.fromarray(image).convert("L"))


def check_image(image: Any) -> ImageArray:
    """Return the image as an array if it is (H, W) or (H, W, 3) uint8; otherwise say why not."""
    if isinstance(image, (str, Path)):
        raise TypeError(f"give pixels, not a path: read_image({str(image)!r}) reads them")
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise TypeError(f"an image has uint8 pixels from 0 to 255, not {array.dtype}; convert it")
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3) or not array.size:
        raise ValueError(
            f"an image has shape (height, width) or (height, width, 3), not {array.shape}"
        )
    return array


def to_planes(image: ImageArray) -> ImageArray:
    """Turn an image into its channels, (1, H, W) or (3, H, W)."""
    return image[None] if image.ndim == 2 else np.moveaxis(image, 2, 0)


def from_planes(planes: NDArray[Any]) -> NDArray[Any]:
    """Turn channels (1, H, W) or (3, H, W) back into an image."""
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, 2)


def to_pixels(estimate: NDArray[Any]) -> ImageArray:
    """Round and clip real values to the nearest pixel values."""
    if np.isnan(estimate).any():
        raise TersenseError(
            "the reconstruction holds NaN; the model or the measurements are damaged"
        )
    pixels: ImageArray = np.clip(np.rint(estimate), 0, 255).astype(np.uint8)
    return pixels


def mirror_border(image: NDArray[Any], border: int) -> NDArray[Any]:
    """Extend (H, W) by mirrored pixels on every side, the edge itself not repeated."""
    return np.pad(image, border, mode="reflect")


def write_image(path: str | Path, image: ImageArray) -> None:
    """Write an image in the format that the file's ending names; a note in it says who wrote it."""
    path = Path(path)
    require_image_suffix(path)
    with written_whole(path) as partial:
        try:
            Image.fromarray(image).save(partial, **mark_options(path.suffix))
            mark_plainly(partial)
        except ValueError as error:  # WebP of more than 16383 pixels per side, say
            raise TersenseError(f"cannot write {path}: {one_line(error)}") from error


def require_image_suffix(path: Path) -> None:
    """Refuse a file whose ending names no image format, before any work is done for it."""
    if path.suffix.lower() not in SUFFIXES:
        endings = " ".join(sorted(SUFFIXES))
        raise TersenseError(f"cannot write {path}: name a file ending in one of {endings}")


def require_image_target(path: Path, force: bool = False) -> None:
    """Refuse a file that names no image format, or an image that is not ours, before any work."""
    require_image_suffix(path)
    require_no_loss(path, force)


@contextlib.contextmanager
def _opened(
    path: str | Path, max_pixels: int | None = None, max_aspect: int | None = None
) -> Iterator[Image.Image]:
    """Open an image; whatever a damaged file does becomes one clear error."""
    if not Path(path).exists():
        raise TersenseError(f"no such image: {path}")
    require_file(path)
    try:
        with Image.open(path, formats=_FORMATS) as image:
            if max_pixels and image.width * image.height > max_pixels:
                raise TersenseError(
                    f"it has {image.width}×{image.height} pixels, more than {max_pixels:,}; "
                    "make it smaller"
                )
            if max_aspect and max(image.size) > max_aspect * min(image.size):
                raise TersenseError(
                    f"it has {image.width}×{image.height} pixels, one side more than {max_aspect} "
                    "times as long as the other; crop it"
                )
            if image.format == "JPEG" and _has_many_scans(Path(path).read_bytes()):
                raise TersenseError(f"a JPEG must have at most {_MAX_SCANS} scans; save it anew")
            raw = str(image.tile[0][3]) if image.tile else ""  # how Pillow will read the pixels
            image.load()
            image.info[_DEEP] = ";16" in raw and image.mode in ("RGB", "RGBA")
            yield image
    except Image.DecompressionBombError as error:
        raise TersenseError(f"{path} is too large: {error}") from error
    except TersenseError as error:
        raise TersenseError(f"{path}: {error}") from error
    except UnidentifiedImageError as error:
        raise TersenseError(
            f"{path} is not a readable image: it is damaged, or none of PNG, JPEG, WebP, TIFF, "
            "BMP, GIF and PNM; convert it"
        ) from error
    except Exception as error:  # a decoder of a damaged file may raise anything
        raise TersenseError(f"{path} is not a readable image: {one_line(error)}") from error


def _has_many_scans(content: bytes) -> bool:
    """Count the scans of a JPEG, from marker to marker, up to the limit."""
    scans = place = 0
    while scans <= _MAX_SCANS and (marker := _JPEG_MARKER.search(content, place)):
        kind, place = marker[1][0], marker.end()
        if kind == _END:
            return False
        scans += kind == _SCAN
        if kind not in _WITHOUT_LENGTH:
            place += max(2, int.from_bytes(content[place : place + 2], "big"))
    return scans > _MAX_SCANS


def _to_8_bit(image: Image.Image, depth: int | None) -> tuple[Image.Image, list[str]]:
    """Return the image with 8 bits per channel, and what was lost on the way."""
    if image.mode == "F":
        raise TersenseError("it has floating-point pixels; convert it to 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image)
        lowest, highest = int(values.min()), int(values.max())
        if lowest < 0 or highest >= 2**16:
            raise TersenseError("it has 32-bit pixels; convert it to 8 or 16 bits")
        if depth and highest >= 2**depth:
            raise TersenseError(f"depth must be at least {highest.bit_length()} bits, got {depth}")
        bits = depth or 16
        notes = [f"{bits} bits per pixel are reduced to the upper 8"] if bits > 8 else []
        if not depth and highest.bit_length() < 16:
            likely = max(8, highest.bit_length())
            notes.append(f"no value exceeds {highest:,}: say --depth {likely} if it is such data")
        shifted = values.astype(np.uint32) >> (bits - 8)
        return Image.fromarray(shifted.astype(np.uint8)), notes
    notes = ["16 bits per channel are reduced to the upper 8"] if _is_deep_color(image) else []
    return image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"), notes


def _stated_depth(image: Image.Image) -> int | None:
    """Return the bits per pixel that a TIFF file states (its largest sample value), if it does."""
    largest = getattr(image, "tag_v2", {}).get(_MAX_SAMPLE_VALUE)
    largest = largest[0] if isinstance(largest, tuple) and largest else largest
    stated = isinstance(largest, int) and 2**8 <= largest + 1 <= 2**16
    return largest.bit_length() if stated and isinstance(largest, int) else None


def _is_deep_color(image: Image.Image) -> bool:
    """Tell whether Pillow has dropped the lower bits of 16-bit color while reading."""
    return image.mode in ("RGB", "RGBA") and image.info.get(_DEEP, False)
