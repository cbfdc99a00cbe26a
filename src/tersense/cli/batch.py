"""Work through many files: read ahead, go on past bad ones, name them at the end."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tersense.errors import TersenseError, one_line
from tersense.io.files import require_writable_folder
from tersense.runtime import distributed
from tersense.runtime.progress import Track, ahead


class Task(NamedTuple):
    """One file to turn into another."""

    source: Path
    target: Path


def plan_tasks(
    sources: Sequence[Path], out: Path, suffix: str, find: Callable[[Path], list[Path]]
) -> list[Task]:
    """Decide which files to read and what to call the results.

    Args:
        sources: Files and folders.
        out: The result of a single file, a name with an ending; otherwise a folder.
        suffix: Ending of results in a folder.
        find: Lists the files of a folder.

    Returns:
        The tasks; files of a folder keep their place below it.
    """
    if len(sources) == 1 and not sources[0].is_dir() and not out.is_dir() and out.suffix:
        require_writable_folder(out)
        if out.exists() and out.samefile(sources[0]):
            raise TersenseError(f"{out} would overwrite itself; choose another name for the result")
        return [Task(sources[0], out)]
    if out.exists() and not out.is_dir():
        raise TersenseError(f"{out} is a file; the results of many files need a folder")
    if out.suffix == suffix and not out.is_dir():
        raise TersenseError(f"{out} is the name of one file; name a folder for many results")
    tasks: dict[Path, Task] = {}
    for source in sources:
        folder = source if source.is_dir() else source.parent
        for path in find(source) if source.is_dir() else [source]:
            inside = path.relative_to(folder)
            target = out / inside.with_suffix(suffix)
            if target in tasks:  # a.png and a.jpg
                target = out / inside.with_name(inside.name + suffix)
            if target in tasks:
                raise TersenseError(
                    f"{path} and {tasks[target].source} would both become {target}; "
                    "give them one at a time, or the folder above them"
                )
            tasks[target] = Task(path, target)
    return list(tasks.values())


def work_through(
    tasks: list[Task],
    read: Callable[[Path], Any],
    work: Callable[[Any, Path], None],
    track: Track,
    label: str,
) -> dict[Path, str]:
    """Read each source, a few ahead of the work, and do the work; return what failed and why.

    The work makes the folder of its target, when there is something to put into it. A single task
    fails by raising, so that the caller gets the error itself. Several processes (`distributed`)
    share the tasks; each returns all failures.
    """
    mine = tasks[distributed.rank() :: distributed.count()]
    single = len(tasks) == 1
    parts = distributed.together(lambda: _work_off(mine, single, read, work, track, label))
    failures = {path: why for part in distributed.gather(parts) for path, why in part.items()}
    return {task.source: failures[task.source] for task in tasks if task.source in failures}


def _work_off(
    tasks: list[Task],
    single: bool,
    read: Callable[[Path], Any],
    work: Callable[[Any, Path], None],
    track: Track,
    label: str,
) -> dict[Path, str]:
    failures: dict[Path, str] = {}

    def try_to_read(task: Task) -> Any:
        try:
            return read(task.source)
        except Exception as error:  # whatever one file does, the others go on
            return error

    for task, content in zip(
        tasks, track(ahead(try_to_read, tasks, depth=2), label, len(tasks)), strict=True
    ):
        try:
            if isinstance(content, Exception):
                raise content
            work(content, task.target)
        except Exception as error:
            if single:
                raise
            failures[task.source] = one_line(error)
    return failures


def find_measurements(folder: Path) -> list[Path]:
    """List the measurement files of a folder and of those below it, in name order."""
    found = sorted(path for path in folder.rglob("*.tsm") if path.is_file())
    if not found:
        raise TersenseError(f"no measurement files (.tsm) in {folder}")
    return found
