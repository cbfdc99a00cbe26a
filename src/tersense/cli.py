"""The command line: `tersense COMMAND`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tersense import __version__

if TYPE_CHECKING:
    from tersense.imager import Imager

# Modules that import torch are imported inside the commands, so that --help answers at once.

app = typer.Typer(
    name="tersense",
    help="Compressed sensing of images with learned sparse ternary projections.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

ModelOption = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="A built-in name or a model file.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate", metavar="R", help="Measurements a pixel, for models that offer a choice."
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or auto.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tersense {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the results go.")
    ] = Path("demo"),
    model: ModelOption = "default",
) -> None:
    """Sense and reconstruct a photograph that comes with the package.

    Writes a picture of original, reconstruction, error and patterns, and prints the figures.

    Example: tersense demo -o demo
    """
    from tersense.console import output, show_facts
    from tersense.demo import run_demo

    facts, picture = run_demo(_load(model), out)
    show_facts("A photograph, sensed and given back", facts)
    output.print(f"Picture: {picture}")


@app.command()
def models() -> None:
    """List the models that come with the package.

    Example: tersense models
    """
    from tersense.console import output, show_table
    from tersense.models import ALIASES, load, names

    rows = []
    for name in names():
        imager = load(name)
        patterns = imager.patterns
        rows.append([
            name, f"{patterns.rate:.4g}", f"{patterns.window} / {patterns.stride}",
            str(len(patterns)), f"{patterns.density:.1%}", f"{imager.parameters:,}",
        ])  # fmt: skip
    head = ["model", "rate", "window / stride", "patterns", "non-zeros", "weights"]
    show_table("Built-in models", head, rows)
    for alias, name in ALIASES.items():
        output.print(f"{alias} is {name}")


@app.command()
def info(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A built-in name or a file.")],
) -> None:
    """Show a model: geometry, rate, non-zeros, additions and storage against dense, weights.

    Example: tersense info paper-r25
    """
    from tersense.console import show_facts
    from tersense.describe import describe

    imager = _load(model)
    show_facts(imager.name, describe(imager))


@app.command()
def sense(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture, gray or colour.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="Y.tsm", help="Measurement file.")],
    model: ModelOption = "default",
    rate: RateOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Take the measurements of a picture.

    Example: tersense sense photo.jpg -m paper-r25 -o photo.tsm
    """
    from tersense.console import output
    from tersense.files import require_writable_folder
    from tersense.images import read_image

    require_writable_folder(out)
    imager = _load(model, rate, device)
    measurements = imager.sense(read_image(image))
    measurements.save(out)
    output.print(
        f"{out}: {measurements.values.size} measurements, {measurements.per_pixel:.4g} a pixel"
    )


@app.command()
def reconstruct(
    measured: Annotated[Path, typer.Argument(metavar="Y.tsm", help="A measurement file.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT.png", help="The picture.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Default: the built-in with the file's patterns."
        ),
    ] = None,
    device: DeviceOption = "cpu",
) -> None:
    """Give the picture back from its measurements.

    Example: tersense reconstruct photo.tsm -o photo.png
    """
    from tersense.console import output
    from tersense.files import require_writable_folder
    from tersense.images import write_image
    from tersense.measurements import Measurements
    from tersense.models import find_by_patterns

    require_writable_folder(out)
    measurements = Measurements.load(measured)
    imager = _load(model or find_by_patterns(measurements.header.phi), None, device)
    picture = imager.reconstruct(measurements)
    write_image(out, picture)
    output.print(f"{out}: {picture.shape[1]}×{picture.shape[0]} pixels, by {imager.name}")


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of images.")],
    model: ModelOption = "default",
    rate: RateOption = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="S",
            help="The paper's protocol: sense overlapping windows every S pixels, average.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON.")
    ] = None,
    device: DeviceOption = "cpu",
) -> None:
    """Measure PSNR and SSIM on a folder of images, in gray.

    Example: tersense evaluate Set11 -m paper-r25 --stride 2 --json set11.json
    """
    from tersense.console import ProgressDisplay, output, show_table
    from tersense.evaluate import evaluate_folder, write_json
    from tersense.files import require_writable_folder

    if json:
        require_writable_folder(json)
    imager = _load(model, rate, device)
    with ProgressDisplay() as display:
        result = evaluate_folder(imager, folder, stride, display.track)
    rows = [_score_row(image["name"], image) for image in result["images"]]
    seconds = sum(image["seconds"] for image in result["images"]) / len(rows)
    rows.append(_score_row("mean", {**result["mean"], "seconds": seconds}))
    title = f"{result['model']} on {result['data']}, {result['protocol']}"
    show_table(title, ["image", "PSNR (dB)", "SSIM", "seconds"], rows)
    output.print(
        f"window {result['window']}, stride {result['stride']}: "
        f"{result['measurements_per_pixel']:.4g} measurements a pixel"
    )
    if json:
        write_json(json, result)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="All settings.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a stopped run.")] = False,
) -> None:
    """Train patterns and reconstructor together.

    Example: tersense train configs/paper.toml --set data.train=photos --set train.epochs=10
    """
    from tersense.config import read_config
    from tersense.console import ProgressDisplay
    from tersense.train import train as run_training

    settings = read_config(config, changes)
    with ProgressDisplay() as display:
        run_training(settings, resume, display)


def _load(model: str, rate: float | None = None, device: str = "cpu") -> "Imager":
    from tersense.devices import choose_device
    from tersense.models import load

    imager = load(model, choose_device(device))
    return imager if rate is None else imager.at_rate(rate)


def _score_row(name: str, figures: dict[str, Any]) -> list[str]:
    def text(value: float | None, digits: int) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    return [name, text(figures["psnr"], 2), text(figures["ssim"], 4), text(figures["seconds"], 3)]


# typer carries its own copy of click, whose base exception it does not export by name.
_CLICK_ERROR: Any = typer.BadParameter.__mro__[2]


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors are one line on stderr and exit code 2."""
    try:
        return app(args=arguments, prog_name="tersense", standalone_mode=False) or 0
    except _CLICK_ERROR as error:
        message = error.format_message()
        return _fail(message) if message else 2  # without a command, the help has been shown
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to tell it
        return 1
    except (ValueError, TypeError, OSError, MemoryError) as error:
        if os.environ.get("TERSENSE_DEBUG"):
            raise
        return _fail(str(error) or type(error).__name__)


def _fail(message: str, code: int = 2) -> int:
    print("tersense: " + " ".join(message.split()), file=sys.stderr)
    return code
