"""Images that anybody may have sent: read within bounds, and shrunk to what a camera does quickly.

Nothing here needs torch, so that the process that decodes them (`decoder`) starts at once.
"""

import math
from pathlib import Path

from tersense.errors import TersenseError
from tersense.io.images import ImageArray, decode_image, shrink

MAX_BYTES = 20 * 2**20  # of an upload
MAX_PIXELS = 40_000_000  # of an upload, before it is shrunk
MAX_ASPECT = 50  # of its sides: a line of pixels would fill a whole window for each few of them


def read_upload(path: str | Path, max_pixels: int, stride: int = 1) -> tuple[ImageArray, str]:
    """Read an image that anybody may have sent.

    Args:
        path: The file: at most `MAX_BYTES`, `MAX_PIXELS` pixels, and `MAX_ASPECT` times as long as
            wide.
        max_pixels: A larger image is shrunk to so many, because time and memory grow with them.
        stride: Of the camera: as they grow with its windows too, these are bounded likewise.

    Returns:
        The image, and a note if it was shrunk.
    """
    path = Path(path)
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise TersenseError(
            f"{path.name} has {path.stat().st_size / 2**20:.0f} MiB, more than "
            f"{MAX_BYTES // 2**20}; make it smaller"
        )
    try:
        image, _ = decode_image(path, MAX_PIXELS, max_aspect=MAX_ASPECT)
    except TersenseError as error:  # people should not see where the server keeps things
        raise TersenseError(str(error).replace(str(path), path.name)) from error
    height, width = image.shape[:2]
    size = fit_size(width, height, max_pixels, stride)
    if size == (width, height):
        return image, ""
    return shrink(image, *size), f"shrunk from {width}×{height}, so that it takes seconds"


def fit_size(width: int, height: int, max_pixels: int, stride: int) -> tuple[int, int]:
    """Return the largest size in proportion that has few enough pixels, and windows.

    Windows count as the pixels that they cover, which at the border are more than there are: twice
    `max_pixels` are allowed, and four windows in any case.
    """
    most_windows = max(4, 2 * max_pixels // stride**2)
    shrink = min(1.0, math.sqrt(max_pixels / (width * height)))
    while True:
        size = max(1, int(width * shrink)), max(1, int(height * shrink))
        windows = math.prod(-(-side // stride) for side in size)
        # A side that cannot get shorter than a pixel leaves the other too long at first.
        if math.prod(size) <= max_pixels and windows <= most_windows:
            return size
        shrink *= 0.95
