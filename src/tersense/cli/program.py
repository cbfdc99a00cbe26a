"""The command line: `tersense COMMAND`."""

import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer

from tersense import __version__
from tersense.cli.bench import bench_app
from tersense.cli.console import complain, say
from tersense.cli.evaluation import compare, evaluate
from tersense.cli.export import export_app
from tersense.cli.images import reconstruct, sense
from tersense.cli.plan import plan
from tersense.cli.plot import plot_app
from tersense.cli.show import demo, info, models, serve
from tersense.cli.training import reproduce, train
from tersense.errors import AlreadyToldError, TersenseWarning
from tersense.runtime.device import keep_freed_memory
from tersense.runtime.signals import ending_in_good_order

# Modules that import torch are imported inside the commands, so that --help answers at once.

app = typer.Typer(
    name="tersense",
    help="Compressed sensing of images with learned sparse ternary projections.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"tersense {__version__}")
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
    from tersense.io.images import silence_decoders

    silence_decoders()


app.command()(demo)
app.command()(models)
app.command()(info)
app.command()(sense)
app.command()(reconstruct)
app.command()(evaluate)
app.command()(compare)
app.command()(plan)
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
        with warnings.catch_warnings(), ending_in_good_order():
            warnings.simplefilter("always", TersenseWarning)
            warnings.showwarning = _show_warning
            return app(args=arguments, prog_name="tersense", standalone_mode=False) or 0
    except _CLICK_ERROR as error:
        message = _in_our_words(error)
        return _fail(message) if message else 2  # without a command, the help has been shown
    except AlreadyToldError:
        return 2
    except SystemExit as stop:  # of a signal, or typer's when nobody reads our output
        code = int(stop.code or 0)
        return _fail("interrupted", code) if code > 128 else code
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to tell it
        return 1
    except (ValueError, TypeError, OSError, ArithmeticError, RuntimeError, MemoryError) as error:
        if os.environ.get("TERSENSE_DEBUG"):
            raise
        return _fail(str(error) or type(error).__name__)


# What typer's validator says of numbers, by its name for the fault.
_NUMBERS = {
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
}


def _in_our_words(error: Any) -> str:
    """Return what is wrong with an option: what is allowed, and what came."""
    message: str = error.format_message().replace("Value error, ", "")  # of choices
    faults: list[Any] = getattr(error.__cause__, "errors", list)()
    if faults and (allowed := _NUMBERS.get(faults[0]["type"])):
        bounds = faults[0].get("ctx", {})
        told = f"must be {allowed.format(**bounds)}, got {faults[0]['input']}"
        message = message.replace(faults[0]["msg"], told)
    return message


def _show_warning(
    message: Warning | str, category: type[Warning], *place: object, **more: object
) -> None:
    """Print a warning of ours as one line; those of libraries are for developers."""
    if issubclass(category, TersenseWarning):
        complain(f"note: {message}")


def _fail(message: str, code: int = 2) -> int:
    """Print an error and return the exit code."""
    complain(message)
    return code
