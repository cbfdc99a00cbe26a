"""Commands that show what there is: demo, models, info, app."""

from pathlib import Path
from typing import Annotated

import typer

from tersense.cli.options import ForceOption, ModelOption, RateOption, load_model, out_option


def demo(
    out: Annotated[Path, out_option("DIR", "Where the results go.")] = Path("demo"),
    model: ModelOption = "default",
    force: ForceOption = False,
) -> None:
    """Sense and reconstruct a photograph that comes with the package.

    Writes an image of original, reconstruction, error and patterns, and prints the figures.

    Example: tersense demo -o demo
    """
    from tersense.cli.console import say, show_facts
    from tersense.cli.demo import run_demo

    facts, image = run_demo(load_model(model), out, force)
    show_facts("A photograph, sensed and given back", facts)
    say(f"Image: {image}")


def models() -> None:
    """List the models that come with the package.

    Example: tersense models
    """
    from tersense.cli.console import say, show_table
    from tersense.models.zoo import ALIASES, load, names

    rows = []
    for name in names():
        imager = load(name)
        patterns = imager.patterns
        any_rate = "up to " if imager.reconstructor.any_rate else ""
        rows.append([
            name, f"{any_rate}{patterns.rate:.4g}", f"{patterns.window} / {patterns.stride}",
            str(len(patterns)), f"{patterns.density:.1%}", f"{imager.parameters:,}",
        ])  # fmt: skip
    head = ["model", "rate", "window / stride", "patterns", "non-zeros", "weights"]
    show_table("Built-in models", head, rows)
    for alias, (name, rate) in ALIASES.items():
        say(f"{alias} is {name}" + (f" at rate {rate:g}" if rate else ""))


def info(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A built-in name, a model file or a .tsm file."),
    ],
    rate: RateOption = None,
) -> None:
    """Show a model: geometry, rate, non-zeros, additions and storage against dense, weights.

    Of a measurement file it shows the image's size, the readout, and the models with its patterns.

    Example: tersense info paper-r25

    Example: tersense info flex --rate 0.1

    Example: tersense info photo.tsm
    """
    from tersense.cli.console import show_facts
    from tersense.models.info import describe, describe_measurements

    if Path(model).suffix.lower() == ".tsm":
        if rate is not None:
            raise typer.BadParameter(f"{model} has a rate of its own; leave --rate out")
        show_facts(model, describe_measurements(model))
        return
    imager = load_model(model, rate)
    show_facts(imager.name, describe(imager))


def serve(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Offer only this; may be repeated. Default: all."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="Of the page's address.")
    ] = 7860,
    max_pixels: Annotated[
        int,
        typer.Option(
            "--pixels", metavar="N", min=1024, help="Larger images are shrunk to so many pixels."
        ),
    ] = 500_000,
    seconds: Annotated[
        int,
        typer.Option("--seconds", metavar="N", min=1, help="The most that one image may take."),
    ] = 120,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="Answer to this name as well, such as that of a server in front; may be repeated.",
        ),
    ] = None,
) -> None:
    """Show a web page: pick or upload an image, sense it, see what comes back.

    Only this machine can open the page, and the page contacts no other host. With
    --host 0.0.0.0 others reach it by any address of this machine, and by its host name.

    Example: tersense app --port 8000

    Example: tersense app --host 0.0.0.0 --allow-host camera.example.org
    """
    from tersense.app.server import run_app

    run_app(models, host, port, max_pixels, seconds, names or ())
