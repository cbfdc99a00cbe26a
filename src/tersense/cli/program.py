"""The command line: `tersense COMMAND`."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tersense import __version__
from tersense.cli.bench import bench_app
from tersense.cli.export import export_app
from tersense.cli.images import evaluate, reconstruct, sense
from tersense.cli.options import ModelOption, RateOption, load_model
from tersense.cli.page import serve
from tersense.cli.plot import plot_app
from tersense.cli.training import reproduce, train
from tersense.errors import AlreadyToldError
from tersense.runtime.malloc import keep_freed_memory

# Modules that import torch are imported inside the commands, so that --help answers at once.

_LONGEST_LINE = 600  # of an error

app = typer.Typer(
    name="tersense",
    help="Compressed sensing of images with learned sparse ternary projections.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tersense {__version__}")
        raise typer.Exit


_SHARED = ("train", "sense", "reconstruct", "evaluate")  # by the processes of torchrun


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version.")
    ] = False,
) -> None:
    if os.environ.get("WORLD_SIZE", "1") != "1" and context.invoked_subcommand not in _SHARED:
        raise typer.BadParameter(
            f"{context.invoked_subcommand} runs in one process; start it without torchrun"
        )


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
    from tersense.cli.console import output, show_facts
    from tersense.cli.demo import run_demo

    facts, picture = run_demo(load_model(model), out)
    show_facts("A photograph, sensed and given back", facts)
    output.print(f"Picture: {picture}")


@app.command()
def models() -> None:
    """List the models that come with the package.

    Example: tersense models
    """
    from tersense.cli.console import output, show_table
    from tersense.models.files import ALIASES, load, names

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
    for alias, name in ALIASES.items():
        output.print(f"{alias} is {name}")


@app.command()
def info(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A built-in name, a model file or a .tsm file."),
    ],
    rate: RateOption = None,
) -> None:
    """Show a model: geometry, rate, non-zeros, additions and storage against dense, weights.

    Of a measurement file it shows the picture's size, the readout, and which model sensed it.

    Example: tersense info paper-r25

    Example: tersense info flex --rate 0.1

    Example: tersense info photo.tsm
    """
    from tersense.cli.console import show_facts
    from tersense.measurements.measurements import Measurements
    from tersense.models.info import describe, describe_measurements

    if Path(model).suffix.lower() == ".tsm":
        if rate is not None:
            raise typer.BadParameter(f"{model} has a rate of its own; leave --rate out")
        show_facts(model, describe_measurements(Measurements.load(model)))
        return
    imager = load_model(model, rate)
    show_facts(imager.name, describe(imager))


app.command()(sense)
app.command()(reconstruct)
app.command()(evaluate)
app.command()(train)
app.command()(reproduce)
app.command("app")(serve)
app.add_typer(bench_app, name="bench", no_args_is_help=True)
app.add_typer(export_app, name="export", no_args_is_help=True)
app.add_typer(plot_app, name="plot", no_args_is_help=True)

# typer carries its own copy of click, whose base exception it does not export by name.
_CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; errors are one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no × gets a ? instead
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    keep_freed_memory()
    if "" in (sys.argv[1:] if arguments is None else arguments):
        return _fail("an argument is empty; if it came from a variable, the variable is not set")
    try:
        return app(args=arguments, prog_name="tersense", standalone_mode=False) or 0
    except _CLICK_ERROR as error:
        message = error.format_message()
        return _fail(message) if message else 2  # without a command, the help has been shown
    except AlreadyToldError:
        return 2
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to tell it
        return 1
    except (ValueError, TypeError, OSError, ArithmeticError, RuntimeError, MemoryError) as error:
        if os.environ.get("TERSENSE_DEBUG"):
            raise
        return _fail(str(error) or type(error).__name__)


def _fail(message: str, code: int = 2) -> int:
    """Print one line of bearable length, without characters that a terminal would obey."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    if len(line) > _LONGEST_LINE:
        line = f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}"
    number = os.environ.get("RANK", "0")  # of a process that torchrun started
    who = "tersense" if number == "0" else f"tersense, process {number}"
    print(f"{who}: {line}", file=sys.stderr)
    return code
