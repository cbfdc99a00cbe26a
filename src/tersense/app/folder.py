"""The folder of a page, for uploads and results: private, and gone when the page is gone."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

_FOLDER, _LOCK = "tersense-page-", ".lock"


@contextlib.contextmanager
def folder_for_guests() -> Iterator[Path]:
    """Yield a folder for uploads and results that nobody else sees and that does not stay.

    What a page that was killed has left is removed. The lock in a folder tells: the system lets go
    of it when the page ends, however it ends.
    """
    own, lock = _own_folder()
    _remove_left(own)
    folder = own / "guests"  # beside the lock: gradio hands out what lies in it
    folder.mkdir(0o700)
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    try:
        yield folder
    finally:
        del os.environ["GRADIO_TEMP_DIR"]
        shutil.rmtree(own, ignore_errors=True)
        lock.release(force=True)
        shutil.rmtree(own, ignore_errors=True)  # Windows keeps a lock's file while it is held


def _own_folder() -> tuple[Path, FileLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER)).resolve()
        lock = FileLock(folder / _LOCK)
        with contextlib.suppress(OSError):
            lock.acquire()
            if (folder / _LOCK).exists():
                return folder, lock
        # Another page that starts took it for left, in the moment before it was locked.


def _remove_left(own: Path) -> None:
    for folder in own.parent.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError, Timeout):  # of another user; of a page that is running
            ours = folder.lstat().st_uid == own.stat().st_uid and not folder.is_symlink()
            if folder != own and ours and (folder / _LOCK).is_file():
                with FileLock(folder / _LOCK, timeout=0):
                    shutil.rmtree(folder, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
