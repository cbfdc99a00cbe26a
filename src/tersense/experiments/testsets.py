"""Folders of test images as tables take them: whole, or for a quick run small parts of two."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tersense.errors import TersenseError
from tersense.io.images import ImageArray, find_images, read_gray

_QUICK_IMAGES = 2
_QUICK_SIDE = 48


def find_sets(tests: Sequence[Path], quick: bool = False) -> dict[str, list[Path]]:
    """Return the images of each folder by the folder's name, which tables know it by.

    Args:
        tests: Folders.
        quick: Only a few of each.
    """
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise TersenseError(f"two test folders have the same name: {', '.join(sorted(names))}")
    return {test.name: find_images(test)[: _QUICK_IMAGES if quick else None] for test in tests}


def read_set(
    paths: Sequence[Path], quick: bool = False, side: int = _QUICK_SIDE
) -> list[tuple[str, ImageArray]]:
    """Return names and gray pixels (H, W), for a quick run the first `side`×`side` of them."""
    part = slice(side if quick else None)
    return [(path.stem, read_gray(path)[part, part]) for path in paths]


def hash_images(source: Path, contents: bool = True) -> str:
    """Return a hash of the images of a folder, or without contents of their names and sizes."""
    digest = hashlib.sha256()
    for path in find_images(source) if source.is_dir() else [source]:
        digest.update(f"{path.name}|{path.stat().st_size}|".encode())
        if contents:
            digest.update(path.read_bytes())
    return digest.hexdigest()
