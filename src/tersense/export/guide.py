"""README.md of an export: how an engineer goes on from here, with the numbers of this camera.

The text of each kind lies in `guides/`, with a `$name` wherever a number of the export belongs;
`common.md` is what all kinds share.
"""

import shlex
from pathlib import Path
from string import Template
from typing import Any

from tersense import __version__
from tersense.export.arithmetic import limits
from tersense.io.deep import USUAL
from tersense.models.imager import Imager

_GUIDES = Path(__file__).parent / "guides"


def fill_guide(kind: str, values: dict[str, Any]) -> str:
    """Return the guide of a kind with its numbers; a name without a value is an error."""
    text = (_GUIDES / f"{kind}.md").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def printable_name(imager: Imager) -> str:
    """Return the camera's name on one line; whoever made its file chose it."""
    return "".join(sign for sign in " ".join(imager.name.split()) if sign.isprintable())


def quoted_name(imager: Imager) -> str:
    """Return the camera's name as one word of a command."""
    return shlex.quote(printable_name(imager))


def write_readme(
    folder: Path, kind: str, imager: Imager, depth: int = USUAL, guide: str = ""
) -> None:
    """Write README.md: the camera, the guide of its kind, the vectors, every file."""
    patterns = imager.patterns
    lowest, highest = limits(patterns, depth)
    values = {
        "model": printable_name(imager),
        "kind": kind,
        "version": __version__,
        "guide": guide.strip(),
        "rows": len(patterns),
        "window": patterns.window,
        "stride": patterns.stride,
        "offset": imager.geometry.offset,
        "rate": f"{patterns.rate:.4g}",
        "additions": f"{patterns.nonzeros:,}",
        "depth": depth,
        "white": 2**depth - 1,
        "acc_bits": patterns.accumulator_bits_at(depth),
        "lowest": f"{lowest:,}",
        "highest": f"{highest:,}",
        "phi": patterns.hash,
        "files": _list_files(folder),
        # The plan of a mirror device has its own way back.
        "back": "" if kind == "patterns" else fill_guide("back", {"quoted": quoted_name(imager)}),
    }
    text = fill_guide("common", values)
    (folder / "README.md").write_text(text, encoding="utf-8", newline="\n")


def _list_files(folder: Path) -> str:
    """Return a table of all files; of a folder with many of one kind, their number."""
    groups: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        groups.setdefault((path.parent.relative_to(folder).as_posix(), path.suffix), []).append(
            path
        )
    lines = []
    for (parent, _), paths in sorted(groups.items()):
        names = [path.name for path in paths]
        text = ", ".join(f"`{name}`" for name in names)
        if len(names) > 12:
            text = f"`{names[0]}` … `{names[-1]}` ({len(names)} files)"
        size = sum(path.stat().st_size for path in paths)
        lines.append(f"| {'' if parent == '.' else f'`{parent}/`'} | {text} | {size:,} |")
    return "\n".join(["| folder | files | bytes |", "|---|---|---|", *lines])
