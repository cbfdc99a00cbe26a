"""Write files and folders whole or not at all; read text, JSON and arrays without trust."""

import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError

from tersense.errors import TersenseError, one_line

MAX_TEXT = 2**26  # bytes of a text file; those that we read are far smaller

# What is being written lies in a folder of this name, locked as long as its writer lives.
_PARTIAL, _PARTIAL_NAME = ".partial-", re.compile(r"\.partial-[0-9a-f]{16}")
_UNLOCKED = ".partial-unlocked-"  # where the file system has no locks; nobody else removes it


@contextlib.contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` only if the block succeeds.

    The temporary file lies in a private folder beside the target, so that the final rename is
    atomic, and has the target's name, so that writers which look at it choose the same format.
    """
    path = Path(path)
    require_writable_folder(path)
    try:
        path = path.resolve()  # a link stays, the file that it names is written
        with _private_folder(path.parent) as folder:
            partial = folder / path.name
            partial.touch(0o600, exist_ok=False)
            yield partial
            with partial.open("r+b") as file:  # Windows syncs no file that is open for reading only
                os.fsync(file.fileno())
            partial.chmod(_usual_mode(path, folder))
            partial.replace(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise TersenseError(f"cannot write {path}: {reason}") from error


@contextlib.contextmanager
def folder_written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` only if the block succeeds.

    A folder that already holds something is refused before the block runs.
    """
    path = Path(path)
    _require_new_folder(path)
    try:
        path = path.resolve()
        with _private_folder(path.parent) as folder:
            partial = folder / path.name
            partial.mkdir(0o700)
            yield partial
            mode = _usual_mode(path, folder)
            partial.chmod(mode | 0o700 | (mode & 0o044) >> 2)
            if path.is_dir():
                path.rmdir()  # only if it is empty; on Windows no folder takes another's place
            partial.replace(path)
    except OSError as error:
        raise TersenseError(f"cannot write {path}: {error.strerror or one_line(error)}") from error


@contextlib.contextmanager
def _private_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder for what is half-written; it and what is left in it are removed.

    It is locked until then. The system lets go of a lock when its process ends in whatever way, so
    a folder whose lock can be taken has no writer any more, and may be removed.
    """
    _remove_partials_once(parent)
    prefix = _PARTIAL
    with contextlib.ExitStack() as stack:
        while True:
            folder = parent / f"{prefix}{secrets.token_hex(8)}"
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            folder.mkdir(0o700)
            try:
                stack.enter_context(_locked_folder(folder, wait=True))
            except OSError:
                if prefix == _UNLOCKED:
                    break
                prefix = _UNLOCKED if folder.exists() else _PARTIAL
            else:
                if folder.exists():  # and was not removed by another process before it was locked
                    break
        yield folder


@contextlib.contextmanager
def _locked_folder(folder: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of a folder; raise an OSError if it cannot be had."""
    try:
        import fcntl
    except ImportError as error:
        raise OSError("Windows has no locks of folders") from error

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError("it is somebody else's")
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _usual_mode(path: Path, folder: Path) -> int:
    """Return the permissions of the file that is replaced, or those of any new file."""
    if path.is_file():
        return stat.S_IMODE(path.stat().st_mode)
    probe = folder / secrets.token_hex(8)
    probe.touch()  # the umask can only be read by setting it, which other threads would see
    return stat.S_IMODE(probe.stat().st_mode)


def remove_partials(folder: Path) -> None:
    """Remove what killed processes left half-written directly in a folder, by no living one."""
    for partial in folder.glob(f"{_PARTIAL}*"):
        if _PARTIAL_NAME.fullmatch(partial.name):
            with contextlib.suppress(OSError), _locked_folder(partial, wait=False):
                shutil.rmtree(partial, ignore_errors=True)


@functools.lru_cache(256)
def _remove_partials_once(folder: Path) -> None:
    """Remove them before this process writes into a folder for the first time."""
    remove_partials(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder; others wait. One that is killed lets go."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):  # who cannot write disturbs nobody
            stack.enter_context(FileLock(folder / ".lock"))
        yield


def _require_new_folder(path: Path) -> None:
    try:
        if path.is_dir():
            if any(path.iterdir()):
                raise TersenseError(f"cannot write {path}: it is not empty; name a new folder")
            return
        if path.exists():
            raise TersenseError(f"cannot write {path}: it is a file; name a folder")
    except OSError as error:  # a name that is too long, say
        raise TersenseError(f"cannot write {path}: {error.strerror}") from error
    require_writable_folder(path)


def require_writable_folder(path: Path) -> None:
    """Refuse a path that cannot be written, before any work is done for it."""
    try:
        is_folder, is_something_else = path.is_dir(), path.exists() and not path.is_file()
        file = path.resolve()  # of a link
        mode = file.stat().st_mode if file.exists() else 0o600
        if file.is_symlink():
            raise RuntimeError  # as older versions of Python do
    except OSError as error:  # a name that is too long, say
        raise TersenseError(f"cannot write {path}: {error.strerror}") from error
    except RuntimeError as error:
        raise TersenseError(f"cannot write {path}: it is a link to itself") from error
    if is_folder:
        raise TersenseError(f"cannot write {path}: it is a folder; name a file")
    if is_something_else:
        raise TersenseError(f"cannot write {path}: it is not a regular file")
    if not mode & 0o222:  # those who may write into the folder could replace it all the same
        raise TersenseError(f"cannot write {path}: it is read-only; make it writable")
    if path.is_symlink() and file.suffix.lower() != path.suffix.lower():
        raise TersenseError(
            f"cannot write {path}: it is a link to another kind of file, {file}; name a new file"
        )
    if path.is_symlink():
        path = file
    if not path.parent.is_dir():
        if path.parent.exists():
            raise TersenseError(f"cannot write {path}: {path.parent} is not a folder")
        raise TersenseError(f"cannot write {path}: the folder {path.parent} does not exist")
    try:  # what may be written is best known by writing; this file has no name and stays nowhere
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise TersenseError(
            f"cannot write {path}: the folder {path.parent} is not writable: {error.strerror}"
        ) from error


def write_json(path: str | Path, result: Any) -> None:
    """Write a result as JSON, whole or not at all."""
    text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
    # Outside of strings JSON is printable but for its line breaks, and inside it has none.
    shown = "\n".join(map(_printable_json, text.split("\n")))
    with written_whole(path) as file:
        file.write_text(shown + "\n", encoding="utf-8")


def _printable_json(line: str) -> str:
    """Escape what a terminal would obey, and names that are not Unicode, as JSON does."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def require_json_target(path: Path) -> None:
    """Refuse a file for figures that cannot be written, or whose name is that of something else."""
    if path.suffix.lower() != ".json":
        raise TersenseError(f"cannot write {path}: figures are JSON; name a file ending in .json")
    require_writable_folder(path)


def make_folder(path: str | Path) -> Path:
    """Make a folder for results, with its parents."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TersenseError(f"cannot make the folder {path}: {error.strerror}") from error
    return path


def require_file(path: str | Path, max_bytes: int | None = None) -> int:
    """Return the size of a file; refuse what is none, and larger ones, before it is opened.

    Opening a pipe may wait forever, and reading a device may never end.
    """
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or one_line(error)
        raise TersenseError(f"cannot read {path}: {reason}") from error
    if stat.S_ISDIR(found.st_mode):
        raise TersenseError(f"cannot read {path}: it is a folder; name a file")
    if not stat.S_ISREG(found.st_mode):
        raise TersenseError(f"cannot read {path}: it is not a regular file")
    if max_bytes is not None and found.st_size > max_bytes:
        size = f"{found.st_size / 2**20:.0f} MiB, more than {max_bytes / 2**20:.0f}"
        raise TersenseError(f"cannot read {path}: it has {size}")
    return found.st_size


def read_text(path: str | Path, max_bytes: int = MAX_TEXT) -> str:
    """Read a text file of reasonable size."""
    require_file(path, max_bytes)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TersenseError(f"{path} is not a text file: {one_line(error)}") from error


def read_npy(path: Path) -> Any:
    """Map an array; numpy takes other files for pickles, and advises to trust them.

    Mapped, not read: a header that claims more than the file holds cannot fill the memory.
    """
    import numpy as np

    require_file(path)
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise TersenseError(f"{path} is not a .npy file, as numpy.save writes it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that Python 2 wrote
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python: it may fail in any way
        raise TersenseError(f"{path} is not a readable .npy file: {one_line(error)}") from error
