"""Commands for those who train and compare: train, reproduce, bench."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

# Modules that import torch are imported inside the commands, so that --help answers at once.

JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures as JSON.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw the figures.")
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or auto.")]


def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See configs/.")],
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


def reproduce(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="rates, sparsity, frozen, comparison or ablations."),
    ],
    train_folder: Annotated[
        Path, typer.Option("--train", metavar="DIR", help="Training pictures.")
    ],
    test_folders: Annotated[
        list[Path], typer.Option("--test", metavar="DIR", help="Test pictures; may be repeated.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where results go.")
    ] = Path("runs/reproduce"),
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Of each training.")] = 50,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", help="Limit of each training; 0: none."),
    ] = 0.0,
    stride: Annotated[
        int, typer.Option("--stride", metavar="S", help="Of the overlapping protocol.")
    ] = 2,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="P", help="Experiments side by side.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ROW", help="Just this row, by its folder; repeatable."),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", metavar="P", help="own, overlapping or both.")
    ] = "both",
    quick: Annotated[
        bool, typer.Option("--quick", help="Everything small: to see that it works.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train and measure what a table of the paper shows, and put the paper's figures beside it.

    What is done already is not done again; an interrupted training goes on.

    Example: tersense reproduce rates --train photos --test Set11 --test BSD68 --parallel 4

    Example: tersense reproduce comparison --train photos --test Set11 --only tv-5 --protocol own
    """
    from tersense.console import output
    from tersense.evaluate import write_json
    from tersense.experiments import PROTOCOLS, TABLES, Options
    from tersense.files import written_whole
    from tersense.report import to_markdown
    from tersense.reproduce import run_table

    if table not in TABLES:
        raise typer.BadParameter(f"no table is called {table}; there is: {', '.join(TABLES)}")
    if min(epochs, parallel, stride) < 1 or seconds < 0:
        raise typer.BadParameter("--epochs, --parallel and --stride are at least 1, --seconds 0")
    if protocol not in PROTOCOLS:
        raise typer.BadParameter(f"--protocol is one of {', '.join(PROTOCOLS)}, not {protocol}")
    options = Options(
        train_folder, tuple(test_folders), out, epochs, seconds, stride, parallel, device, quick,
        tuple(only or ()), protocol,
    )  # fmt: skip
    result = run_table(table, options, lambda text: output.print(text, markup=False))
    text = to_markdown(result)
    write_json(out / f"{table}.json", result)
    with written_whole(out / f"{table}.md") as partial:
        partial.write_text(text, encoding="utf-8")
    output.print(text.split("\n## ")[0], markup=False)
    output.print(f"{out / table}.md and .json hold all of it")
    from tersense.plots import plot_table  # the figures are safe, should there be no matplotlib

    plot_table(result, out / f"{table}.png")
    output.print(f"{out / table}.png shows it")


bench_app = typer.Typer(help="Measure speed: ratios, side by side in one run.")


@bench_app.command("sense")
def bench_sense(
    json: JsonOption = None,
    plot: PlotOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small and short.")] = False,
) -> None:
    """Sensing by additions against dense and sparse products, end to end from the picture.

    Example: tersense bench sense --json sense.json --plot sense.png
    """
    _use_one_thread()
    from tersense.bench import bench_sensing
    from tersense.console import ProgressDisplay, output, show_table
    from tersense.evaluate import write_json

    _require_targets(json, plot)
    with ProgressDisplay() as display:
        result = bench_sensing(quick, display.track)
    rivals = list(result["cases"][0]["ratios"])
    rows = [
        [f"{case['side']}²", str(case["nonzeros"]), f"{case['seconds']['add-only'] * 1e3:.3f}",
         f"{case['megapixels_per_second']:.0f}", *(f"{case['ratios'][r]:.1f}×" for r in rivals),
         f"{case['load_bound_seconds'] * 1e3:.3f}", f"{case['memory_bound_seconds'] * 1e3:.3f}"]
        for case in result["cases"]
    ]  # fmt: skip
    head = ["picture", "K", "ms", "MP/s", *rivals, "load", "memory"]
    title = f"Sensing, 256 patterns of 32×32, one thread, CPU time, {result['cpu']}"
    show_table(title, head, rows)
    lapped, threads = result["lapped"], result["threads"]
    output.print(
        "K: non-zeros a pattern. ms, MP/s: by additions. Ratios: the other way's time over it. "
        "load, memory: estimates of the ms to add from the nearest cache, and to read the picture "
        "and write the result. All ways gave the same integers.\n"
        f"Lapped (S=16, m=64) at {lapped['side']}²: {lapped['throughput_ratio']:.2f} of the block "
        f"throughput a measurement. Two threads: {threads['speedup']:.2f}× one."
    )
    if json:
        write_json(json, result)
    if plot:
        from tersense.plots import plot_sensing

        plot_sensing(result, plot)


@bench_app.command("methods")
def bench_methods(
    pictures: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Pictures of 256×256 or more. Default: one bundled."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="Pictures to take, the first ones.")
    ] = 5,
    stride: Annotated[
        int, typer.Option("--stride", metavar="S", help="Of the overlapping protocol.")
    ] = 8,
    json: JsonOption = None,
    plot: PlotOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small pictures and short.")] = False,
) -> None:
    """Reconstruction: our network, O-NL-SDA's, Basis Pursuit (ours, spgl1), total variation.

    One thread, CPU time, in turns picture by picture. It takes about two minutes a picture.

    Example: tersense bench methods Set11 --json methods.json --plot methods.png
    """
    _use_one_thread()
    from tersense.bench_methods import bench_methods as run_bench
    from tersense.console import ProgressDisplay, output, show_table
    from tersense.demo import PHOTOGRAPH
    from tersense.evaluate import write_json
    from tersense.images import find_images

    if count < 1:
        raise typer.BadParameter(f"--count is at least 1, not {count}")
    _require_targets(json, plot)
    files = find_images(pictures)[:count] if pictures else [PHOTOGRAPH]
    with ProgressDisplay() as display:
        result = run_bench(files, stride, quick, display.track)
    for case in result["cases"]:
        title = (
            f"{case['protocol']}: {case['side']}×{case['side']} pixels, {case['windows']} windows "
            f"every {case['stride']} pixels; pictures: {len(files)}, one thread, {result['cpu']}"
        )
        head = ["method", "seconds", "of ours", "least", "most", "PSNR (dB)"]
        show_table(title, head, [_method_row(method) for method in case["methods"]])
    for method in result["cases"][0]["methods"]:
        output.print(f"{method['name']}: {method['about']}")
    for name in result["missing"]:
        output.print(f"{name} is not installed: pip install 'tersense[baselines]'")
    if json:
        write_json(json, result)
    if plot:
        from tersense.plots import plot_methods

        plot_methods(result, plot)


def _method_row(method: dict[str, Any]) -> list[str]:
    ratio, psnr = method["ratio"], method["psnr"]
    ratios = [f"{ratio[key]:,.{0 if ratio[key] >= 100 else 1}f}×" for key in ratio]
    seconds = f"{method['median_seconds']:.4f}"
    return [method["name"], seconds, *ratios, "–" if psnr is None else f"{psnr:.2f}"]


def _use_one_thread() -> None:
    """Keep the libraries of numpy to one thread; they look when they are first imported."""
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ[f"{library}_NUM_THREADS"] = "1"


def _require_targets(json: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written before any work is done for them."""
    from tersense.files import require_writable_folder

    for path in (json, plot):
        if path:
            require_writable_folder(path)
    if plot:
        from tersense.plots import require_plot_format

        require_plot_format(plot)
