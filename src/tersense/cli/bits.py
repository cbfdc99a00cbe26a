"""Files of a given size on the command line: the options that several commands have."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tersense.cli.options import load_decider

if TYPE_CHECKING:
    from tersense.models.adaptive import Mode
    from tersense.models.bits import BitsCamera
    from tersense.models.imager import Imager

_ABLE = "flex"  # the model for sizes, where none is named

BppOption = Annotated[
    float | None,
    typer.Option(
        "--bpp",
        metavar="X",
        max=64,
        help="Files of at most X bits per pixel, the header included: chooses rate, counts and "
        "steps. In color, of all channels together.",
    ),
]
QualityOption = Annotated[
    float | None,
    typer.Option(
        "--quality",
        metavar="Q",
        min=1,
        max=100,
        help="Instead of --bpp, from 1 to 100: the same quantization step in every image.",
    ),
]
RefineOption = Annotated[
    int,
    typer.Option(
        "--refine",
        metavar="N",
        min=0,
        max=1000,
        help="With --bpp or --quality: move the codes N times to what the network reconstructs "
        "best. Takes seconds each, and the codes are then no sensor's.",
    ),
]


def choose_bits(
    bpp: float | None,
    quality: float | None,
    mode: "Mode | None",
    rounds: int | None,
    refine: int,
    others: dict[str, object],
    decider: str | None = None,
) -> "Callable[[Imager], BitsCamera] | None":
    """Return what makes a camera of a model whose files have a size; None where none is asked.

    Args:
        bpp: Of the command.
        quality: Of the command.
        mode: Who decides on the counts.
        rounds: Of the closed loop.
        refine: Of the command.
        others: Options that a size decides, and what was given for them.
        decider: Another model that decides on the counts.
    """
    if bpp is None and quality is None:
        if refine:
            raise typer.BadParameter("--refine is about files of a size; give --bpp or --quality")
        return None
    if bpp is not None and quality is not None:
        raise typer.BadParameter("--bpp and --quality both choose the size; give one of them")
    asked = "--bpp" if bpp is not None else "--quality"
    if mode in ("change", "oracle"):
        raise typer.BadParameter(f"{asked} is about closed, open, encoder or uniform, not {mode}")
    if rounds is not None and mode != "closed":
        raise typer.BadParameter("--rounds is about --adaptive closed; say it, too")
    if given := [flag for flag, value in others.items() if value]:
        raise typer.BadParameter(f"{asked} chooses {given[0]}; leave it out")

    def choose(imager: "Imager") -> "BitsCamera":
        from tersense.models.bits import BitsCamera

        other = load_decider(decider, imager)
        return BitsCamera(imager, bpp, quality, mode, rounds, refine, other)  # type: ignore[arg-type]

    return choose


def able_model(model: str) -> str:
    """Return a model that can choose its rate, where the default was meant."""
    return _ABLE if model == "default" else model
