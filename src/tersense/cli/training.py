"""Commands for those who train and compare: train, reproduce."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tersense.cli.adaptive import DeciderOption
from tersense.cli.options import DeviceOption, ForceOption, load_decider, out_option
from tersense.errors import Interrupted
from tersense.runtime.device import Device

# Modules that import torch are imported inside the commands, so that --help answers at once.


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See configs/.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run; begin it if there is none.")
    ] = False,
) -> None:
    """Train patterns and reconstructor together.

    Ctrl-C and SIGTERM stop it cleanly, after a last checkpoint, with exit code 130 or 143. --resume
    continues, also after a kill or a power failure, and ends with the same weights.

    Example: tersense train configs/paper.toml --set data.train=photos --set train.epochs=10
    """
    from tersense.cli.console import ProgressDisplay
    from tersense.training.config import read_config
    from tersense.training.run import train as run_training

    settings = read_config(config, changes)
    with _exit_code_of_signal(), ProgressDisplay() as display:
        run_training(settings, resume, display)


def reproduce(
    table: Annotated[
        Literal[
            "rates",
            "sparsity",
            "as-published",
            "frozen",
            "comparison",
            "sda",
            "ablations",
            "readouts",
            "adaptive",
            "bits",
            "zoo",
            "claims",
        ],
        typer.Argument(
            metavar="TABLE",
            help="rates, sparsity, as-published, frozen, comparison, sda, ablations, readouts, "
            "adaptive, bits, zoo or claims.",
        ),
    ],
    train_folder: Annotated[
        Path | None, typer.Option("--train", metavar="DIR", help="Training images.")
    ] = None,
    test_folders: Annotated[
        list[Path] | None,
        typer.Option("--test", metavar="DIR", help="Test images; may be repeated."),
    ] = None,
    out: Annotated[Path, out_option("DIR", "Where results go.")] = Path("runs/reproduce"),
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Of each training.")] = 50,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", help="Limit of each training; 0: none."),
    ] = 0.0,
    stride: Annotated[
        int, typer.Option("--stride", metavar="S", help="Of the overlapping protocol.")
    ] = 2,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="P", max=1024, help="Experiments side by side.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ROW", help="Just this row, by its folder; repeatable."),
    ] = None,
    protocol: Annotated[
        Literal["own", "overlapping", "both"],
        typer.Option("--protocol", metavar="P", help="own, overlapping or both."),
    ] = "both",
    cameras: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="To measure; repeatable (readouts, adaptive, bits, zoo).",
        ),
    ] = None,
    decider: DeciderOption = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of each training run.")
    ] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything small: to see that it works.")
    ] = False,
    device: DeviceOption = "auto",
    force: ForceOption = False,
) -> None:
    """Train and measure what a table of the paper shows, and put the paper's figures beside it.

    Finished experiments are not repeated; interrupted training runs are resumed. `readouts` trains
    nothing: it measures models under noise and few bits, beside linear estimates with the same
    patterns. `adaptive` trains nothing either: it compares ways to spend the same measurements.
    `bits` puts files of measurements beside JPEG, JPEG 2000, WebP and AVIF files of the same size.
    `zoo` is the table to choose a model from: quality, weights, multiply-adds, and seconds beside
    a network with the arithmetic of OPINE-Net+.
    `claims` runs nothing: it tells which of the paper's claims hold by the results below --out.

    Example: tersense reproduce rates --train photos --test Set11 --test BSD68 --parallel 4

    Example: tersense reproduce comparison --train photos --test Set11 --only tv-5 --protocol own

    Example: tersense reproduce readouts --test Set11 -m flex -m block-r25

    Example: tersense reproduce adaptive --test Set11 -m flex --only closed-3 --only oracle

    Example: tersense reproduce adaptive --test Set11 -m large --decider fast --only closed-10

    Example: tersense reproduce bits --test photos --only encoder --only jpeg

    Example: tersense reproduce zoo --test Set11 -m flex -m block-r25 --device cpu -o runs/zoo

    Example: tersense reproduce claims -o runs/reproduce
    """
    from tersense.cli.console import say
    from tersense.experiments.report import to_markdown
    from tersense.experiments.runner import run_table
    from tersense.experiments.tables import Options
    from tersense.io.marks import require_no_loss

    if min(epochs, parallel, stride) < 1 or not 0 <= seconds < math.inf:
        raise typer.BadParameter("--epochs, --parallel and --stride are at least 1, --seconds 0")
    if cameras and table not in ("readouts", "adaptive", "bits", "zoo"):
        raise typer.BadParameter(
            f"--model is for the tables readouts, adaptive, bits and zoo; {table} trains its own"
        )
    if decider and table not in ("adaptive", "bits"):
        raise typer.BadParameter(f"--decider is for the tables adaptive and bits, not {table}")
    if table == "claims":
        _judge_claims(out, seed)
        return
    if table in ("readouts", "adaptive", "bits"):
        models = cameras or ["default" if table == "readouts" else "flex"]
        _measure_models(table, out, test_folders or [], models, only or [], quick, device, decider)
        return
    if table == "zoo":
        _measure_zoo(out, test_folders or [], cameras or [], only or [], quick, device, force)
        return
    if train_folder is None or not test_folders:
        raise typer.BadParameter(f"{table} needs --train DIR and --test DIR")
    options = Options(
        train_folder, tuple(test_folders), out, epochs, seconds, stride, parallel, device, quick,
        tuple(only or ()), protocol, seed,
    )  # fmt: skip
    stem = out / (f"{table}-seed{seed}" if seed else table)
    plot, learning = Path(f"{stem}.png"), Path(f"{stem}-training.png")
    for path in (plot, learning):
        require_no_loss(path, force)
    with _exit_code_of_signal():
        result = run_table(table, options, say)
    _write_table(stem, result, to_markdown(result), means_only=True)
    # The figures are safe, should there be no matplotlib.
    from tersense.experiments.plots import plot_table, plot_training

    plot_table(result, plot)
    trained = [out / row["name"] for row in result["rows"] if "steps" in row]
    runs = [run for run in trained if (run / "metrics.jsonl").exists()]
    if runs:
        plot_training(runs, learning)
    learned = f", {learning} how it was learned" if runs else ""
    say(f"{plot} shows it{learned}")


def _measure_models(
    table: str,
    out: Path,
    tests: list[Path],
    models: list[str],
    only: list[str],
    quick: bool,
    device: Device,
    decider: str | None,
) -> None:
    """Measure models under every readout, or in every adaptive way; print and write the table."""
    from tersense.cli.console import say
    from tersense.experiments.adaptive import adaptive_to_markdown, run_adaptive
    from tersense.experiments.bits import bits_to_markdown, run_bits
    from tersense.experiments.readouts import readouts_to_markdown, run_readouts
    from tersense.io.files import make_folder
    from tersense.models.zoo import load

    if not tests:
        raise typer.BadParameter(f"{table} needs --test DIR")
    imagers = [load(model, device) for model in models]
    if table == "readouts":
        result = run_readouts(imagers, tests, quick, say)
        text = readouts_to_markdown(result)
    elif table == "bits":
        result = run_bits(imagers, tests, only, quick, say, load_decider(decider, imagers[0]))
        text = bits_to_markdown(result)
    else:
        result = run_adaptive(imagers, tests, only, quick, say, load_decider(decider, imagers[0]))
        text = adaptive_to_markdown(result)
    make_folder(out)
    _write_table(out / table, result, text)
    if table == "bits":
        from tersense.experiments.plots import plot_bits  # the figures are safe without matplotlib

        plot_bits(result, out / "bits.png")
        say(f"{out / 'bits.png'} shows it")


def _measure_zoo(
    out: Path,
    tests: list[Path],
    models: list[str],
    only: list[str],
    quick: bool,
    device: Device,
    force: bool,
) -> None:
    """Measure what is missing of the table of models; print, write and draw it."""
    from tersense.cli.console import say
    from tersense.experiments.zoo import run_zoo
    from tersense.experiments.zoo_report import panels, zoo_to_markdown
    from tersense.io.marks import require_no_loss
    from tersense.models.zoo import names

    if not tests:
        raise typer.BadParameter("zoo needs --test DIR")
    plot = out / "zoo.png"
    require_no_loss(plot, force)
    result = run_zoo(models or names(), tests, out / "zoo.json", only, quick, device, say)
    _write_table(out / "zoo", result, zoo_to_markdown(result))
    if panels(result):
        from tersense.experiments.plots import plot_zoo  # the figures are safe without matplotlib

        plot_zoo(result, plot)
        say(f"{plot} shows it")


def _judge_claims(out: Path, seed: int) -> None:
    """Print and write what the results say about the paper's claims."""
    from tersense.experiments.claims import claims_to_markdown, judge_claims

    result = judge_claims(out, seed)
    stem = out / (f"claims-seed{seed}" if seed else "claims")
    _write_table(stem, result, claims_to_markdown(result))


def _write_table(stem: Path, result: dict[str, Any], text: str, means_only: bool = False) -> None:
    """Write a table as JSON and as Markdown, and print it, or what comes before every image."""
    from tersense.cli.console import say
    from tersense.io.files import write_json, written_whole

    write_json(f"{stem}.json", result)
    with written_whole(f"{stem}.md") as partial:
        partial.write_text(text, encoding="utf-8")
    for line in (text.split("\n## ")[0] if means_only else text).splitlines():
        say(line)
    say(f"{stem}.md and .json hold all of it")


@contextlib.contextmanager
def _exit_code_of_signal() -> Iterator[None]:
    """Leave with what a shell expects of a program that a signal stopped."""
    try:
        yield
    except Interrupted as stop:
        raise typer.Exit(128 + stop.number) from stop
