"""Deep pixels: 9 to 16 bits, kept as they are in uint16, never scaled.

A pixel of depth d lies between 0 and 2^d − 1, in arrays and in files alike: white of 12 bits is
4095 in a 16-bit PNG, TIFF or PNM file. What a file can say of its depth is said in it: the largest
sample value of a TIFF file and of a PNM file, and a note of that name in a PNG file.

Pillow holds color in 8 bits. Deep color is read in two passes, one for the upper and one for the
lower bytes, and written here.
"""

import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tersense.errors import TersenseError

USUAL, DEEPEST = 8, 16  # bits per pixel
SUFFIXES = (".png", ".tif", ".tiff", ".pgm", ".ppm", ".pnm")
_NOTE = "MaxSampleValue"
_TAG = 281  # the same in TIFF
_SOFTWARE = 305
_MARK = b"tersense"  # as in `marks`
_ORDER = re.compile(";16([LBN])$")
_OTHER_BYTE = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}


def require_depth(depth: Any) -> int:
    """Return the bits per pixel if they are 8 to 16."""
    whole = isinstance(depth, (int, np.integer)) and not isinstance(depth, bool)
    if not whole or not USUAL <= depth <= DEEPEST:
        raise TersenseError(f"depth must be from 8 to 16 bits per pixel, got {depth!r}")
    return int(depth)


def largest_pixel(depth: int) -> int:
    """Return 2^d − 1, white at a depth of d bits."""
    return int(2**depth - 1)


def pixel_type(depth: int) -> type[np.uint8] | type[np.uint16]:
    """Return the type of pixels: uint8 for 8 bits, uint16 for more."""
    return np.uint8 if depth == USUAL else np.uint16


def require_deep_suffix(path: Path, depth: int) -> None:
    """Refuse a file whose format holds 8 bits per pixel, if the image has more."""
    if depth > USUAL and path.suffix.lower() not in SUFFIXES:
        endings = " ".join(SUFFIXES)
        raise TersenseError(
            f"cannot write {path}: pixels of {depth} bits need a file ending in one of {endings}"
        )


def stated_depth(image: Image.Image, tiles: list[Any]) -> int | None:
    """Return the bits per pixel that a file states by its largest sample value, if it does.

    Args:
        image: An open file.
        tiles: How Pillow was to read it, `image.tile` before it did.
    """
    largest: Any = getattr(image, "tag_v2", {}).get(_TAG)
    largest = largest[0] if isinstance(largest, tuple) and largest else largest
    if image.format == "PPM":  # other maxima are a matter of brightness, and 65535 says nothing
        maximum, gray = _pnm_maximum(tiles), image.mode == "I"
        largest = maximum if gray and maximum & (maximum + 1) == 0 and maximum < 65535 else None
    elif image.format == "PNG":
        text = image.info.get(_NOTE)
        largest = int(text) if isinstance(text, str) and re.fullmatch("[0-9]{3,5}", text) else None
    stated = isinstance(largest, int) and 2**USUAL <= largest + 1 <= 2**DEEPEST
    return int(largest).bit_length() if stated else None


def is_deep_color(image: Image.Image, tiles: list[Any]) -> bool:
    """Tell whether Pillow has dropped lower bits of color while reading."""
    if image.mode not in ("RGB", "RGBA", "CMYK"):
        return False
    return ";16" in _raw_mode(tiles) or (image.format == "PPM" and _pnm_maximum(tiles) > 255)


def read_deep(path: str | Path, image: Image.Image, tiles: list[Any]) -> NDArray[np.uint16] | None:
    """Return pixels of more than 8 bits as the file holds them, or None if it has no such.

    Args:
        path: The file.
        image: The same, as Pillow has read it.
        tiles: How, as in `stated_depth`.
    """
    values = read_deep_gray(image)
    maximum = _pnm_maximum(tiles) if image.format == "PPM" else 65535
    if values is not None and maximum < 65535:  # Pillow has stretched them to 16 bits
        own: NDArray[np.uint16] = np.rint(values * (maximum / 65535)).astype(np.uint16)
        return own
    return _read_color(path, image, tiles) if values is None else values


def read_deep_gray(image: Image.Image) -> NDArray[np.uint16] | None:
    """Return gray pixels of more than 8 bits as Pillow has read them: those of PNM fill 16 bits."""
    if not image.mode.startswith("I"):
        return None
    values = np.asarray(ImageOps.exif_transpose(image))
    if int(values.min()) < 0 or int(values.max()) >= 2**DEEPEST:
        raise TersenseError("it has 32-bit pixels; convert it to 8 or 16 bits")
    return values.astype(np.uint16)


def _read_color(
    path: str | Path, image: Image.Image, tiles: list[Any]
) -> NDArray[np.uint16] | None:
    if not is_deep_color(image, tiles):
        return None
    if image.format == "PPM":
        return _read_pnm_color(path, image, tiles)
    raw = _raw_mode(tiles)
    if not raw.startswith(("RGB;", "RGBA;", "RGBX;")):
        raise TersenseError("its deep pixels are neither plain gray nor RGB; convert it to RGB")
    with Image.open(path, formats=(str(image.format),)) as other:
        other.tile = [tile._replace(args=_other_byte(tile.args)) for tile in other.tile]
        other.load()
        upper, lower = (
            np.asarray(ImageOps.exif_transpose(part))[..., :3].astype(np.uint16)
            for part in (image, other)
        )
    both: NDArray[np.uint16] = np.bitwise_or(upper << np.uint16(8), lower)
    return both


def _raw_mode(tiles: list[Any]) -> str:
    """Return Pillow's name for the layout of the pixels in a file, such as `RGB;16B`."""
    args = tiles[0][3] if tiles else ""
    return str(args[0] if isinstance(args, tuple) and args else args)


def _other_byte(args: Any) -> Any:
    """Return what makes Pillow keep the other byte of every sample: the opposite byte order."""
    if isinstance(args, tuple):
        return (_other_byte(args[0]), *args[1:])
    return _ORDER.sub(lambda order: ";16" + _OTHER_BYTE[order[1]], str(args))


def _pnm_maximum(tiles: list[Any]) -> int:
    args = tiles[0][3] if tiles else ""
    stated = isinstance(args, tuple) and len(args) == 2
    return int(args[1]) if stated else 65535 if args == "I;16B" else 255


def _read_pnm_color(path: str | Path, image: Image.Image, tiles: list[Any]) -> NDArray[np.uint16]:
    if tiles[0][0] != "ppm":
        raise TersenseError("its deep color is written as text; convert it to PNG or TIFF")
    count = image.width * image.height * 3
    with Path(path).open("rb") as file:
        file.seek(tiles[0][2])
        content = file.read(2 * count)
    if len(content) != 2 * count:
        raise TersenseError("it ends too early")
    values = np.frombuffer(content, ">u2")
    return values.reshape(image.height, image.width, 3).astype(np.uint16)


def write_deep(path: Path, pixels: NDArray[np.uint16], depth: int) -> None:
    """Write deep pixels, gray or color, unscaled, with a note of their depth and of who wrote them.

    Args:
        path: A file ending in one of `SUFFIXES`.
        pixels: (H, W) or (H, W, 3).
        depth: Bits per pixel.
    """
    encode = {".png": _png, ".tif": _tiff, ".tiff": _tiff}.get(path.suffix.lower(), _pnm)
    path.write_bytes(encode(pixels, largest_pixel(depth)))


def _png(pixels: NDArray[np.uint16], largest: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels, ">u2").view(np.uint8).reshape(height, -1)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0], filtered[0, 1:] = 2, rows[0]  # each row as the difference to the one above
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    kind = 0 if pixels.ndim == 2 else 2
    return b"".join((
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)),
        chunk(b"tEXt", b"Software\0" + _MARK),
        chunk(b"tEXt", f"{_NOTE}\0{largest}".encode()),
        chunk(b"IDAT", zlib.compress(filtered.tobytes())),
        chunk(b"IEND", b""),
    ))  # fmt: skip


def _tiff(pixels: NDArray[np.uint16], largest: int) -> bytes:
    height, width, channels = (*pixels.shape, 1)[:3]
    content = np.ascontiguousarray(pixels, "<u2").tobytes()
    if len(content) >= 2**32 - 2**10:
        raise ValueError("a TIFF file holds at most 4 GiB")
    short, long, text = ("H", 3), ("I", 4), ("s", 2)
    entries: list[tuple[int, tuple[str, int], list[Any]]] = [
        (256, long, [width]),
        (257, long, [height]),
        (258, short, [16] * channels),
        (259, short, [1]),  # not compressed
        (262, short, [1 if channels == 1 else 2]),
        (273, long, [8]),  # the pixels follow the first 8 bytes
        (277, short, [channels]),
        (278, long, [height]),
        (279, long, [len(content)]),
        (_TAG, short, [largest] * channels),
        (_SOFTWARE, text, [_MARK + b"\0"]),
    ]
    start = 8 + len(content)
    table, beyond = struct.pack("<H", len(entries)), b""
    for tag, (code, kind), values in entries:
        if code == "s":
            packed, count = values[0], len(values[0])
        else:
            packed, count = struct.pack(f"<{len(values)}{code}", *values), len(values)
        if len(packed) > 4:  # it does not fit its entry
            place = start + 2 + 12 * len(entries) + 4 + len(beyond)
            beyond += packed + b"\0" * (len(packed) % 2)
            packed = struct.pack("<I", place)
        table += struct.pack("<HHI4s", tag, kind, count, packed)
    return struct.pack("<2sHI", b"II", 42, start) + content + table + struct.pack("<I", 0) + beyond


def _pnm(pixels: NDArray[np.uint16], largest: int) -> bytes:
    magic = b"P5" if pixels.ndim == 2 else b"P6"
    head = f"\n# tersense\n{pixels.shape[1]} {pixels.shape[0]}\n{largest}\n".encode()
    return magic + head + np.ascontiguousarray(pixels, ">u2").tobytes()
