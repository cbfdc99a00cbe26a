"""Tables as Markdown: those of the paper, with every image, and what all tables share."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tersense.errors import visible
from tersense.experiments.tables import OVERLAPPING, OWN


def to_markdown(result: dict[str, Any]) -> str:
    """Return a table of means, and below it one of every image of every set."""
    rows = result["rows"]
    sets = list(rows[0]["sets"])
    quick = rows[0]["protocol"]["quick"]
    head = ["", *(f"{name}" for name in sets), "paper, its first set", "its second set"]
    lines = [
        f"# {result['table']}",
        "",
        "PSNR in dB, mean over images: overlapping windows (the paper's protocol), and in brackets "
        "the camera's own geometry.",
        "The paper's test sets are not public; our sets are others.",
        *(
            [
                "",
                "**A quick run of a small camera (8×8 windows, few patches, bits of few images):",
                "it shows that everything works, and is not to be compared with anything.**",
            ]
            if quick
            else []
        ),
        "",
        *table_columns(head),
    ]
    for row in rows:
        cells = [
            f"{mean_psnr(row['sets'][s], OVERLAPPING)} ({mean_psnr(row['sets'][s], OWN)})"
            for s in sets
        ]
        published = ["" if p is None else f"{p:.2f}" for p in row["published"]]
        lines.append(line([row["label"], *cells, *published]))
    lines += ["", _measurements(rows, sets[0])]
    for name in sets:
        for protocol in (OVERLAPPING, OWN):
            measured = _measured(rows, name, protocol)
            if measured:
                lines += ["", f"## {name}, image by image, {protocol}", ""]
                lines += _image_table(measured, name, protocol)
    return "\n".join(map(visible, lines)) + "\n"


def _measured(rows: list[dict[str, Any]], name: str, protocol: str) -> list[dict[str, Any]]:
    """Return the rows that were measured on a set by a protocol."""
    return [row for row in rows if protocol in row["sets"][name]]


def _measurements(rows: list[dict[str, Any]], name: str) -> str:
    parts = []
    for protocol in (OVERLAPPING, OWN):
        for row in _measured(rows, name, protocol)[:1]:
            figure = row["sets"][name][protocol]["measurements_per_pixel"]
            parts.append(f"{figure:.4g} ({protocol}, {row['label']})")
    return f"Measurements per pixel on {name}: {', '.join(parts)}."


def _image_table(rows: list[dict[str, Any]], name: str, protocol: str) -> Iterator[str]:
    images = [image["name"] for image in rows[0]["sets"][name][protocol]["images"]]
    yield from table_columns(["image", *(row["label"] for row in rows)])
    for number, image in enumerate(images):
        figures = [row["sets"][name][protocol]["images"][number]["psnr"] for row in rows]
        yield line([image, *("–" if f is None else f"{f:.2f}" for f in figures)])


def mean_psnr(figures: dict[str, Any], protocol: str) -> str:
    """Return the mean PSNR of a set, – where there is none."""
    value = figures.get(protocol, {"mean": {"psnr": None}})["mean"]["psnr"]
    return "–" if value is None else f"{value:.2f}"


def line(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(cells) + " |"


def table_head(name: str, about: Sequence[str], quick: bool) -> list[str]:
    """Return the first lines of a table in Markdown: what it is, and whether it counts."""
    warning = "**A quick run on parts of few images: not to be compared with anything.**"
    return [f"# {name}", "", *about, *(["", warning] if quick else [])]


def table_columns(cells: Sequence[str]) -> list[str]:
    """Return the lines that name the columns of a table."""
    return [line(cells), line(["---"] * len(cells))]
