"""Files: images, figures, arrays, settings; written whole or not at all, read without trust."""

from tersense.io.figures import draw_error
from tersense.io.files import write_json, written_whole
from tersense.io.images import find_images, read_gray, read_image, write_image

__all__ = [
    "draw_error",
    "find_images",
    "read_gray",
    "read_image",
    "write_image",
    "write_json",
    "written_whole",
]
