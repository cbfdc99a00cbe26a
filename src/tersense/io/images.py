"""Read and write images, turn them gray, mirror their borders.

An image is a uint8 array: (H, W) in gray or (H, W, 3) in color. Where a depth of 9 to 16 bits per
pixel is asked for, it is uint16, with values from 0 to 2^depth − 1 (`deep`).
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
from tersense.io.deep import (
    USUAL,
    is_deep_color,
    largest_pixel,
    pixel_type,
    read_deep,
    read_deep_gray,
    require_deep_suffix,
    require_depth,
    stated_depth,
    write_deep,
)
from tersense.io.files import require_file, written_whole
from tersense.io.marks import mark_options, mark_plainly, require_no_loss

ImageArray = NDArray[Any]  # uint8, or uint16 where a depth goes with it

PHOTOGRAPH = Path(__file__).parent / "assets" / "chelsea.png"

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".pgm", ".ppm", ".pnm")
)


_TILES = "tersense: tiles"
_LUMA = 19595, 38470, 7471  # of 65536, as Pillow has it
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


def find_images(folder: str | Path, allowed: str = "a folder of images") -> list[Path]:
    """List the files of a folder, and of those below it, that look like images, in name order.

    Args:
        folder: Where to look.
        allowed: What the caller takes, for the message where there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        there = "is not a folder" if folder.exists() else "does not exist"
        raise TersenseError(f"{folder} {there}; give {allowed}")
    every = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    found = sorted(path for path in every if path.is_file())
    if not found:
        endings = " ".join(sorted(SUFFIXES))
        raise TersenseError(f"no images in {folder}; looked for files ending in {endings}")
    return found


def read_image(
    path: str | Path, max_pixels: int | None = None, depth: int | None = None
) -> ImageArray:
    """Read an image, (H, W) in gray or (H, W, 3) in color: uint8, or deeper where asked.

    Palettes are resolved and the orientation that a camera noted is applied. What is lost (bits
    beyond the eighth, transparency) is said by a `TersenseWarning`.

    Args:
        path: The file.
        max_pixels: Refuse larger images before any pixel is decoded.
        depth: Keep so many bits per pixel, 9 to 16, as uint16: values are those of the file,
            neither scaled nor shifted, and must not exceed 2^depth − 1. None for the upper 8
            bits, as uint8.
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
    if depth is not None:
        depth = require_depth(depth)
    with _opened(path, max_pixels, max_aspect) as image:
        tiles, notes = image.info[_TILES], list[str]()
        stated = stated_depth(image, tiles)
        deep = read_deep(path, image, tiles) if depth or stated else read_deep_gray(image)
        if depth:
            pixels = _at_depth(image, deep, depth)
        elif deep is not None:
            pixels, notes = _to_8_bit(deep, stated)
        else:
            pixels = _in_8_bits(image)
            if is_deep_color(image, tiles):
                notes.append(_reduced(16))
        if "A" in image.getbands() or "transparency" in image.info:
            notes.append("transparency is dropped")
        return pixels, "; ".join(notes)


def read_gray(path: str | Path, depth: int | None = None) -> ImageArray:
    """Read an image as (H, W), color turned into full-range luma; nothing is said of loss.

    Args:
        path: The file.
        depth: As in `read_image`.
    """
    return to_gray(decode_image(path, depth=depth)[0])


def to_gray(image: ImageArray) -> ImageArray:
    """Turn an image into full-range luma, 0.299 R + 0.587 G + 0.114 B; gray stays as it is."""
    if image.ndim == 2:
        return image
    if image.dtype == np.uint8:
        return np.array(Image.fromarray(image).convert("L"))
    luma = image.astype(np.uint64) @ np.array(_LUMA, np.uint64)
    return ((luma + 2**15) >> np.uint64(16)).astype(np.uint16)


def shrink(image: ImageArray, width: int, height: int) -> ImageArray:
    """Return a uint8 image in a smaller size; in its own it stays as it is."""
    if image.shape[:2] == (height, width):
        return image
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS))


def check_image(image: Any, depth: int | None = None) -> ImageArray:
    """Return the image as an array if it is (H, W) or (H, W, 3) uint8; otherwise say why not.

    Args:
        image: An array, or what numpy can turn into one.
        depth: Bits per pixel; above 8 the pixels must be uint16, and at most 2^depth − 1.
    """
    if isinstance(image, (str, Path)):
        raise TypeError(f"give pixels, not a path: read_image({str(image)!r}) reads them")
    array = np.asarray(image)
    depth = depth if depth is None else require_depth(depth)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2 and depth is not None:
        array = _within(array, depth)
    elif array.dtype == np.uint16:
        raise TypeError("uint16 pixels must have a depth, got none; say depth=12, or 9 to 16")
    elif depth is not None and depth > USUAL:
        raise TypeError(f"pixels of {depth} bits must be uint16, got {array.dtype}; convert them")
    elif array.dtype != np.uint8:
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


def to_pixels(estimate: NDArray[Any], depth: int = USUAL) -> ImageArray:
    """Round and clip real values to the nearest pixel values: uint8, or uint16 above 8 bits."""
    if np.isnan(estimate).any():
        raise TersenseError(
            "the reconstruction holds NaN; the model or the measurements are damaged"
        )
    nearest = np.clip(np.rint(estimate), 0, largest_pixel(depth))
    pixels: ImageArray = nearest.astype(pixel_type(depth))
    return pixels


def to_screen(image: ImageArray, depth: int = USUAL) -> NDArray[np.uint8]:
    """Turn pixels into the nearest of 256 shades, for figures that people look at."""
    shades: NDArray[np.uint8] = np.rint(image * (255 / largest_pixel(depth))).astype(np.uint8)
    return shades


def mirror_border(image: NDArray[Any], border: int) -> NDArray[Any]:
    """Extend (H, W) by mirrored pixels on every side, the edge itself not repeated."""
    return np.pad(image, border, mode="reflect")


def write_image(path: str | Path, image: ImageArray, depth: int | None = None) -> None:
    """Write an image in the format that the file's ending names; a note in it says who wrote it.

    Args:
        path: The file. More than 8 bits per pixel need PNG, TIFF or PNM, which keep the values as
            they are and note the depth.
        image: (H, W) or (H, W, 3), uint8 or, with a depth, uint16.
        depth: Bits per pixel of uint16 pixels.
    """
    path = Path(path)
    require_image_suffix(path)
    if depth is not None or image.dtype == np.uint16:
        image = check_image(image, depth)
    deep = depth if depth and image.dtype == np.uint16 else None
    if deep:
        require_deep_suffix(path, deep)
    with written_whole(path) as partial:
        try:
            if deep:
                write_deep(partial, image.astype(np.uint16), deep)
                return
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
            image.info[_TILES] = list(image.tile)  # how Pillow will read the pixels
            image.load()
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


def _at_depth(image: Image.Image, deep: NDArray[np.uint16] | None, depth: int) -> ImageArray:
    """Return pixels of that depth as they are, or refuse the image."""
    if deep is not None:
        return _within(deep, depth)
    if depth > USUAL and image.mode != "F":
        raise TersenseError(f"it has 8 bits per pixel, not {depth}; leave the depth out")
    return _in_8_bits(image)


def _within(values: NDArray[Any], depth: int) -> ImageArray:
    """Return 16-bit values as pixels of that depth, none of them changed."""
    highest = int(values.max(initial=0))
    if highest > largest_pixel(depth):
        raise TersenseError(
            f"depth must be at least {highest.bit_length()} bits for a value of {highest:,}, "
            f"got {depth}"
        )
    return values.astype(pixel_type(depth))


def _in_8_bits(image: Image.Image) -> ImageArray:
    """Return what Pillow has read with 8 bits per channel, in gray or RGB."""
    if image.mode == "F":
        raise TersenseError("it has floating-point pixels; convert it to 8 or 16 bits")
    upright = ImageOps.exif_transpose(image)
    # A copy, because Pillow's own buffer is read-only.
    return np.array(upright.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB"))


def _to_8_bit(deep: NDArray[np.uint16], stated: int | None) -> tuple[ImageArray, list[str]]:
    """Return the upper 8 of the bits that the file states, of 16 otherwise, and what was lost."""
    highest, bits = int(deep.max()), stated or 16
    if highest > largest_pixel(bits):
        raise TersenseError(f"it states {bits} bits per pixel, but holds {highest:,}; convert it")
    notes = [_reduced(bits)] if bits > USUAL else []
    if not stated and highest.bit_length() < bits:
        likely = max(USUAL, highest.bit_length())
        notes.append(f"no value exceeds {highest:,}: say --depth {likely} if it is such data")
    return (deep >> (bits - USUAL)).astype(np.uint8), notes


def _reduced(bits: int) -> str:
    return f"{bits} bits per pixel are reduced to the upper 8; --depth {bits} keeps them"
