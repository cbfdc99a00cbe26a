"""Run commands as on a system that is not Linux: `python foreign.py windows|mac COMMANDS.json`.

What only Linux has is taken away, and what Windows does in another way is done so: from modules
and functions that are not there to files that cannot be replaced while somebody has them open. It
is taken from libraries as well, but for numpy and torch, which believe `sys.platform`. What each
command did is printed as JSON.
"""

import builtins
import ctypes
import errno
import functools
import importlib
import importlib.abc
import io
import json
import os
import pkgutil
import signal
import sys
import warnings
from pathlib import Path

import torch  # noqa: F401

from core_only import run

LINUX = ["sched_getaffinity", "sched_setaffinity", "sched_yield", "memfd_create",
         "posix_fadvise", "splice"]  # fmt: skip
POSIX = ["O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "fork", "register_at_fork", "getuid", "geteuid",
         "getgid", "getegid", "getpgid", "killpg", "setsid", "nice", "sysconf", "statvfs",
         "mkfifo", "chown", "fchmod", "getloadavg", "confstr", "pread", "pwrite"]  # fmt: skip
MODULES = ["fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline"]
SIGNALS = ["SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "SIGTSTP"]
FOLDERS = "/proc", "/sys", "/dev"


class NotThere(importlib.abc.MetaPathFinder):
    """A finder that finds some modules nowhere, and leaves the others to the next one."""

    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide_folders(place, name):
    """Let a function that takes a path find nothing in the folders that Linux has."""
    function = getattr(place, name)

    @functools.wraps(function)
    def blind(path, *args, **options):
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(FOLDERS):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return function(path, *args, **options)

    setattr(place, name, blind)


def without_mallopt(name, *args, load=ctypes.CDLL, **options):
    """Load a library as macOS does: its C library has no `mallopt`."""
    library = load(name, *args, **options)
    if name is None:
        library.mallopt = None  # a TypeError when it is called; there, an AttributeError
    return library


def named_only(name, *args, load=ctypes.CDLL, **options):
    """Load a library as Windows does: it must have a name."""
    if name is None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
    return load(name, *args, **options)


def behave_like_windows(listdir=os.listdir, readlink=os.readlink, stat=os.stat):
    """Refuse to sync what is open for reading only, and to replace folders and open files."""
    from fcntl import F_GETFL, fcntl

    sync, replace = os.fsync, os.replace

    def fsync(descriptor):
        if fcntl(descriptor, F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        sync(descriptor)

    def open_files():
        for number in listdir("/proc/self/fd"):
            try:
                yield readlink(f"/proc/self/fd/{number}")
            except OSError:  # of the listing itself
                continue

    def replace_closed(source, target, **options):
        used = {os.path.realpath(source), os.path.realpath(target)} & set(open_files())
        if used or Path(target).is_dir():
            raise PermissionError(errno.EACCES, "Access is denied", os.fspath(target))
        replace(source, target, **options)

    os.fsync, os.replace, os.rename = fsync, replace_closed, replace_closed


def become(system):
    """Turn this process into one of another system, as far as Python shows."""
    if system == "windows":
        behave_like_windows()
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, NotThere())
        for name in SIGNALS:
            delattr(signal, name)
    for name in LINUX + (POSIX if system == "windows" else []):
        if hasattr(os, name):
            delattr(os, name)
    ctypes.CDLL = named_only if system == "windows" else without_mallopt
    for place, name in [(builtins, "open"), (io, "open"), (os, "open"), (os, "stat"),
                        (os, "listdir"), (os, "scandir"), (os, "readlink")]:  # fmt: skip
        hide_folders(place, name)


if __name__ == "__main__":
    system, names = sys.argv[1:]
    commands = json.loads(Path(names).read_text(encoding="utf-8"))
    become(system)
    # Text files whose encoding is not said are read and written in another one on Windows.
    warnings.filterwarnings("error", category=EncodingWarning, module=r"tersense\.")
    import tersense
    from tersense.cli.program import main

    for module in pkgutil.walk_packages(tersense.__path__, "tersense."):
        if not module.name.startswith(("tersense.__main__", "tersense.app", "tersense.interop")):
            importlib.import_module(module.name)  # these take longer, and need extras
    print(json.dumps([run(main, command) for command in commands]))
