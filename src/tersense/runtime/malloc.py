"""Keep freed memory for the next feature maps.

Left alone, the C library gives large blocks back to the system when they are freed, and every new
feature map is made of new pages: a million of them for a picture of one megapixel, a fifth of the
time of its reconstruction.
"""

import contextlib
import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as <malloc.h> of glibc numbers them
_KEPT = 1 << 30  # bytes


def keep_freed_memory() -> None:
    """Let this process keep up to a gigabyte of freed memory; for programs, not for libraries."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        for option in _TRIM_THRESHOLD, _MMAP_THRESHOLD:
            ctypes.CDLL(None).mallopt(option, _KEPT)
