"""Mark the images that we write, so that those of others are not overwritten by mistake.

Every format has a place for the program that wrote a file; what stands there survives copying and
renaming, and the same command may replace its own results as often as it likes.
"""

from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tersense.errors import TersenseError

_MARK = "tersense"
_SOFTWARE = 305  # a tag of TIFF and Exif
_BMP_PLACE = slice(6, 10)  # reserved for the program that writes the file
_PNM_COMMENT = b"# tersense\n"
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF")  # which Pillow reads the mark of
_MAX_PLOT = 2**26  # bytes


def mark_options(suffix: str) -> dict[str, Any]:
    """Return the options of Pillow's `save` that let a format name us."""
    match suffix.lower():
        case ".png":
            text = PngInfo()
            text.add_text("Software", _MARK)
            return {"pnginfo": text}
        case ".jpg" | ".jpeg" | ".webp":
            exif = Image.Exif()
            exif[_SOFTWARE] = _MARK
            return {"exif": exif}
        case ".tif" | ".tiff":
            return {"software": _MARK}
        case ".gif":
            return {"comment": _MARK}
    return {}


def mark_plainly(path: Path) -> None:
    """Mark a file of a format for which Pillow has no option: BMP and PNM."""
    if path.suffix.lower() == ".bmp":
        with path.open("r+b") as file:
            file.seek(_BMP_PLACE.start)
            file.write(_MARK.encode()[:4])
    elif path.suffix.lower() in (".pgm", ".ppm", ".pnm"):
        content = path.read_bytes()
        path.write_bytes(content[:3] + _PNM_COMMENT + content[3:])


def plot_mark(suffix: str) -> dict[str, str]:
    """Return the metadata by which matplotlib names us."""
    return {"Software": _MARK} if suffix.lower() == ".png" else {"Creator": _MARK}


def is_marked(path: Path) -> bool:
    """Tell whether we wrote an image or plot; what cannot be read is somebody else's."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if head.startswith((b"%PDF", b"<?xml")):
                content = head + file.read(_MAX_PLOT)
                return b"/Creator (tersense)" in content or b"<dc:title>tersense<" in content
        if head.startswith(b"BM"):
            return head[_BMP_PLACE] == _MARK.encode()[:4]
        if head.startswith(b"P"):
            return head[3:].startswith(_PNM_COMMENT)
        with Image.open(path, formats=_FORMATS) as image:
            names = image.info.get("Software"), image.info.get("comment")
            return _MARK in (*names, image.getexif().get(_SOFTWARE)) or _MARK.encode() in names
    except Exception:  # a decoder of a damaged file may raise anything
        return False


def require_no_loss(path: Path, force: bool = False) -> None:
    """Refuse to overwrite an image that we did not write, before any work is done."""
    try:
        holds_something = path.is_file() and path.stat().st_size > 0
    except OSError as error:
        raise TersenseError(f"cannot write {path}: {error.strerror}") from error
    if holds_something and not force and not is_marked(path):
        raise TersenseError(
            f"cannot write {path}: the file there is not tersense's; choose another name, or allow "
            "it with --force"
        )
