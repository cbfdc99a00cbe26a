"""Adaptive sensing on the command line: the options that several commands have."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tersense.cli.options import complete_model, load_decider

if TYPE_CHECKING:
    from tersense.measurements.measurements import Measurements
    from tersense.models.adaptive import AdaptiveCamera, Mode
    from tersense.models.imager import Imager

_MOST_ROUNDS = 100

SensorModeOption = Annotated[
    Literal["closed", "open", "encoder"] | None,
    typer.Option(
        "--adaptive",
        metavar="MODE",
        help="Measure more where it pays. closed: in rounds, the network decides after each; open: "
        "the sensor decides at 40 % and at 70 % of the budget; encoder: it computes all sums and "
        "keeps those that matter.",
    ),
]
ModeOption = Annotated[
    Literal["closed", "open", "encoder", "change", "oracle", "uniform"] | None,
    typer.Option(
        "--adaptive",
        metavar="MODE",
        help="Measure where it pays: closed, open or encoder; to compare with: change (the rule of "
        "SIB-ACS), oracle (the true errors decide) or uniform.",
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="N",
        min=1,
        max=_MOST_ROUNDS,
        help="Of the closed loop. Default: 3; with --psnr at most 8.",
    ),
]
PsnrOption = Annotated[
    float | None,
    typer.Option(
        "--psnr",
        metavar="DB",
        min=5,
        max=80,
        help="Of the closed loop: measure until this PSNR is predicted; --rate is the limit then.",
    ),
]
MapsOption = Annotated[
    Literal["shared", "own"] | None,
    typer.Option(
        "--maps",
        metavar="MAPS",
        help="In color: shared, one map of counts for all channels, or own, one for each. "
        "Default: shared.",
    ),
]
DeciderOption = Annotated[
    str | None,
    typer.Option(
        "--decider",
        metavar="MODEL",
        help="Let another model with the same patterns decide, and --model reconstruct: fast "
        "decides for large nearly as well as large itself, in a fraction of the time.",
        autocompletion=complete_model,
    ),
]


def choose_adaptive(
    mode: "Mode | None",
    rate: float | None,
    rounds: int | None,
    psnr: float | None,
    maps: str | None,
    decider: str | None = None,
) -> "Callable[[Imager], AdaptiveCamera | None]":
    """Return what makes an adaptive camera of a model, or nothing where it is not asked for."""
    said = {"--rounds": rounds, "--psnr": psnr, "--maps": maps, "--decider": decider}
    given = [flag for flag, value in said.items() if value is not None]
    if mode is None and given:
        raise typer.BadParameter(f"{given[0]} is about adaptive sensing; say --adaptive, too")
    if mode not in (None, "closed") and (rounds is not None or psnr is not None):
        raise typer.BadParameter(f"{given[0]} is about --adaptive closed, not {mode}")
    if mode is not None and rate is None and psnr is None:
        raise typer.BadParameter(
            "--adaptive needs to know how many measurements there are to spend; add --rate, as in "
            "--rate 0.1, or with closed --psnr"
        )

    def choose(imager: "Imager") -> "AdaptiveCamera | None":
        from tersense.models.adaptive import AdaptiveCamera

        if mode is None:
            return None
        limit = imager.rate if rate is None else rate
        other = load_decider(decider, imager)
        return AdaptiveCamera(imager, limit, mode, rounds, psnr, maps == "own", other)

    return choose


def spread_of(measurements: "Measurements") -> str:
    """Return how many measurements windows took, in words."""
    counts = measurements.counts
    if counts is None:
        return f"{measurements.header.rows} per window"
    return f"{counts.min()} to {counts.max()} per window, {counts.mean():.1f} on average"
