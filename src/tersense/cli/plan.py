"""The command of adaptive real cameras: plan, which says what to measure next."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tersense.cli.adaptive import PsnrOption, RoundsOption, spread_of
from tersense.cli.export import parse_size
from tersense.cli.options import DeviceOption, NoiseOption, RateOption, load_model, out_option

if TYPE_CHECKING:
    from tersense.measurements.rounds import RoundPlan
    from tersense.models.capture import Capture
    from tersense.models.plans import Round, RoundSettings

_MIRRORS, _ABLE = "1024x768", "flex"


def plan(
    out: Annotated[Path, out_option("DIR", "A new or empty folder, for the next round.")],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[ROUND]", help="The folder of the round that was measured, or a .tsm file."
        ),
    ] = None,
    values: Annotated[
        Path | None,
        typer.Option(
            "--values",
            metavar="VALUES.csv",
            help="What was measured in this round: exposures × detectors, as .csv or .npy.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Default: that of the round or file, or flex."
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="WIDTHxHEIGHT", help="Of the image: begin a new capture."),
    ] = None,
    rate: RateOption = None,
    rounds: RoundsOption = None,
    quality: PsnrOption = None,
    noise: NoiseOption = 0.0,
    camera: Annotated[
        Literal["array", "single"] | None,
        typer.Option(
            "--camera",
            help="array: a detector for each window; single: one for all. Default: array.",
        ),
    ] = None,
    mirrors: Annotated[
        str | None,
        typer.Option(
            "--mirrors", metavar="WIDTHxHEIGHT", help=f"Of the device. Default: {_MIRRORS}."
        ),
    ] = None,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale", metavar="N", min=1, help="A pixel is N×N mirrors. Default: what fits."
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Capture with a real camera in rounds: write the frames of the next, take its values in.

    A capture begins with a --size, or with existing measurements. The options given then hold for
    all rounds and are kept in the folder. The last folder holds measured.tsm for `reconstruct`.

    Example: tersense plan --size 256x256 -m flex --rate 0.1 --rounds 3 -o round-1

    Example: tersense plan round-1 --values readings.csv -o round-2

    Example: tersense plan uniform.tsm -m flex --psnr 32 --rate 0.3 -o round-2
    """
    from tersense.cli.console import say
    from tersense.measurements.rounds import RoundPlan
    from tersense.measurements.tables import read_table
    from tersense.models.plans import read_round, write_round

    if source is not None and not source.exists():
        raise typer.BadParameter(f"{source} does not exist; name the folder of a round or a .tsm")
    if source is not None and source.is_dir():
        current = read_round(source)
        if values is None:
            raise typer.BadParameter(f"{source} asks for measurements; give them with --values")
        known = {"--size": size, "--rate": rate, "--rounds": rounds, "--psnr": quality,
                 "--noise": noise or None, "--camera": camera, "--mirrors": mirrors,
                 "--scale": scale}  # fmt: skip
        if given := [flag for flag, value in known.items() if value is not None]:
            raise typer.BadParameter(f"{source} knows {given[0]} already; leave it out")
        if model is not None:
            current = replace(current, settings=replace(current.settings, model=_lasting(model)))
    else:
        if values is not None:
            raise typer.BadParameter(
                f"--values belong to the folder of a round, got {source or 'none'}; name that one"
            )
        current = _begin(
            source, model, size, rate, rounds, quality, noise, camera or "array",
            mirrors or _MIRRORS, scale,
        )  # fmt: skip
    said = current.settings
    imager = load_model(said.model, None, device, whole=True)
    capture = current.open(imager)
    if values is not None and (request := capture.request) is not None:
        capture.add(RoundPlan(said.plan(imager), request).values(read_table(values)[0]))
    planned = write_round(out, imager, capture, capture.next(), said)
    _tell(out, capture, planned, said, say)


def _begin(
    source: Path | None,
    model: str | None,
    size: str | None,
    rate: float | None,
    rounds: int | None,
    psnr: float | None,
    noise: float,
    camera: Literal["array", "single"],
    mirrors: str,
    scale: int | None,
) -> "Round":
    """Return a capture of which nothing is measured, or what a file holds."""
    from tersense.models.adaptive import ROUNDS_TO_QUALITY, USUAL_ROUNDS
    from tersense.models.plans import Round, RoundSettings, begin_with
    from tersense.models.zoo import find_by_patterns, read

    measured = read(source, model) if source is not None else None
    if (size is None) == (measured is None):
        raise typer.BadParameter(
            "a capture begins with a --size or with a measurement file; give one of them"
        )
    if measured is not None and noise:
        raise typer.BadParameter(f"{source} tells the noise of its measurements; leave --noise out")
    if rate is None and psnr is None:
        raise typer.BadParameter("a capture needs a --rate, or a --psnr to reach")
    if measured is not None:
        height, width = measured.header.height, measured.header.width
    else:
        height, width = parse_size(size or "")
    down, across = parse_size(mirrors)
    if model is None and measured is not None:
        header = measured.header
        model = find_by_patterns(header.phi, header.stride, header.rows)
    model = _lasting(model or _ABLE)
    usual = USUAL_ROUNDS if psnr is None else ROUNDS_TO_QUALITY
    limit = load_model(model, None, "cpu", whole=True).rate if rate is None else rate
    said = RoundSettings(
        model, height, width, limit, rounds or usual,
        psnr or 0.0, noise, camera, down, across,
        scale or max(1, min(down // height, across // width)),
    )  # fmt: skip
    return Round(said) if measured is None else begin_with(measured, said)


def _lasting(model: str) -> str:
    """Return what names a model from any folder, as the rounds may lie in another."""
    from tersense.models.zoo import ALIASES, names

    built_in = model in ALIASES or model in names()
    return model if built_in or not Path(model).exists() else str(Path(model).resolve())


def _tell(
    out: Path, capture: "Capture", planned: "RoundPlan | None", said: "RoundSettings", say: Any
) -> None:
    """Say what there is and what to do."""
    if capture.history:
        y = capture.measurements()
        say(f"measured: {y.taken:,}, {y.per_pixel:.4g} per pixel; {spread_of(y)}")
        if capture.predicts:
            say(f"predicted PSNR: {capture.predicted_psnr():.2f} dB")
    if planned is None:
        model = shlex.quote(said.model)
        say(
            f"The capture is complete: tersense reconstruct {out}/measured.tsm -m {model} "
            "-o photo.png"
        )
        return
    say(
        f"{out}: {len(planned.request):,} measurements in {len(planned.exposures):,} exposures; "
        "README.md tells how to go on"
    )
