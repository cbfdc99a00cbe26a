"""The `bench` commands."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

# Modules that import torch are imported inside the commands, so that --help answers at once.
from tersense.cli.options import DeviceOption, ForceOption, JsonOption, PlotOption
from tersense.errors import install_hint

bench_app = typer.Typer(help="Measure speed: ratios, side by side in one run.")


@bench_app.command("sense")
def bench_sense(
    json: JsonOption = None,
    plot: PlotOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small and short.")] = False,
    force: ForceOption = False,
) -> None:
    """Sensing by additions against dense and sparse products, end to end from the image.

    Example: tersense bench sense --json sense.json --plot sense.png
    """
    _use_one_thread()
    from tersense.cli.console import ProgressDisplay, say, show_table
    from tersense.experiments.bench.sensing import bench_sensing
    from tersense.io.files import write_json

    _require_targets(json, plot, force)
    with ProgressDisplay() as display:
        result = bench_sensing(quick, display.track)
    rivals = list(result["cases"][0]["ratios"])
    rows = [
        [f"{case['side']}²", str(case["nonzeros"]), f"{case['seconds']['add-only'] * 1e3:.3f}",
         f"{case['megapixels_per_second']:.0f}", *(f"{case['ratios'][r]:.1f}×" for r in rivals),
         f"{case['load_bound_seconds'] * 1e3:.3f}", f"{case['memory_bound_seconds'] * 1e3:.3f}"]
        for case in result["cases"]
    ]  # fmt: skip
    head = ["side", "K", "ms", "MP/s", *rivals, "load", "mem"]
    title = f"Sensing, 256 patterns of 32×32, one thread, CPU time, {result['cpu']}"
    show_table(title, head, rows)
    lapped, threads = result["lapped"], result["threads"]
    say(
        "K: non-zeros per pattern. ms, MP/s: by additions. Ratios: the other way's time over it. "
        "load, mem: estimates of the ms to add from the nearest cache, and to read the image "
        "and write the result. All ways gave the same integers."
    )
    say(
        f"Lapped (S=16, m=64) at {lapped['side']}²: {lapped['throughput_ratio']:.2f} of the block "
        f"throughput per measurement. Two threads: {threads['speedup_shared']:.2f}× one where they "
        f"share each image, {threads['speedup_stream']:.2f}× where each takes an image."
    )
    if json:
        write_json(json, result)
    if plot:
        from tersense.experiments.plots import plot_sensing

        plot_sensing(result, plot)


@bench_app.command("reconstruct")
def bench_reconstruct(
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="MODEL", help="May be repeated. Default: built-in."),
    ] = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, max=1024, help="Of the CPU.")
    ] = 2,
    most: Annotated[
        int,
        typer.Option("--max", "--most", metavar="SIDE", min=256, help="The largest image to time."),
    ] = 4096,
    json: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small and short.")] = False,
) -> None:
    """Time reconstruction by size of the image, in float32 and bfloat16, and its memory.

    Example: tersense bench reconstruct -m block-r25 --json reconstruct.json
    """
    from tersense.cli.console import ProgressDisplay, say, show_table
    from tersense.experiments.bench.reconstruction import bench_reconstruction
    from tersense.io.files import require_json_target, write_json
    from tersense.models.zoo import names
    from tersense.runtime.device import choose_device

    if json:
        require_json_target(json)
    chosen = choose_device(device)
    with ProgressDisplay() as display:
        result = bench_reconstruction(
            models or names(), chosen, threads, most, quick, display.track
        )
    rows = [
        [case["model"], f"{case['side']}²", f"{case['seconds']['float32']:.4f}",
         f"{case['seconds']['bfloat16']:.4f}" if "bfloat16" in case["seconds"] else "–",
         f"{case['yardsticks']:.1f}×",
         f"{case['nanoseconds_a_pixel']:.0f}",
         "–" if case["peak_bytes"] is None else f"{case['peak_bytes'] / 2**20:.0f}"]
        for case in result["cases"]
    ]  # fmt: skip
    head = ["model", "image", "f32, s", "bf16, s", "yardsticks", "ns/pixel", "MiB"]
    title = f"Reconstruction of gray images, {result['device']}"
    show_table(title + (f", {threads} threads" if chosen.type == "cpu" else ""), head, rows)
    say(
        "f32, bf16: seconds in float32 and bfloat16. yardsticks: float32 over one 3×3 convolution "
        "of 64 to 64 channels on 256×256, in turns. MiB: peak memory."
    )
    if json:
        write_json(json, result)


@bench_app.command("train")
def bench_train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="See configs/.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    json: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few steps.")] = False,
) -> None:
    """Time training steps: pixels and operations per second, and the share of the machine's peak.

    Example: tersense bench train configs/block-r25.toml --set train.batch=32
    """
    from tersense.cli.console import show_facts
    from tersense.experiments.bench.training import bench_training
    from tersense.io.files import require_json_target, write_json
    from tersense.training.config import read_config

    if json:
        require_json_target(json)
    result = bench_training(read_config(config, changes), quick)
    facts = {
        "device": result["device"],
        "step": f"{result['seconds_a_step'] * 1e3:.2f} ms for {result['batch']} crops of "
        f"{result['crop']}×{result['crop']}",
        "pixels": f"{result['pixels_per_second'] / 1e6:.3g} million a second",
        "arithmetic": f"{result['flops_a_pixel'] / 1e3:.0f} thousand operations per pixel, "
        f"{result['flops_per_second'] / 1e12:.3g} TFLOP/s",
        "a large matrix product": f"{result['matrix_product_flops_per_second'] / 1e12:.3g} TFLOP/s",
        "share of it": f"{result['share_of_peak']:.1%}",
    }
    show_facts("Training", facts)
    if json:
        write_json(json, result)


@bench_app.command("methods")
def bench_methods(
    images: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Images of 256×256 or more. Default: one bundled."),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", help="Images to take, the first ones.")
    ] = 5,
    stride: Annotated[
        int, typer.Option("--stride", metavar="S", help="Of the overlapping protocol.")
    ] = 8,
    json: JsonOption = None,
    plot: PlotOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small images and short.")] = False,
    force: ForceOption = False,
) -> None:
    """Reconstruction: our network, O-NL-SDA's, Basis Pursuit (ours, spgl1), total variation.

    One thread, CPU time, in turns image by image. It takes about two minutes an image.

    Example: tersense bench methods Set11 --json methods.json --plot methods.png
    """
    _use_one_thread()
    from tersense.cli.console import ProgressDisplay, say, show_table
    from tersense.experiments.bench.methods import bench_methods as run_bench
    from tersense.io.files import write_json
    from tersense.io.images import PHOTOGRAPH, find_images

    if count < 1:
        raise typer.BadParameter(f"--count is at least 1, not {count}")
    _require_targets(json, plot, force)
    files = find_images(images)[:count] if images else [PHOTOGRAPH]
    with ProgressDisplay() as display:
        result = run_bench(files, stride, quick, display.track)
    for case in result["cases"]:
        title = (
            f"{case['protocol']}: {case['side']}×{case['side']} pixels, {case['windows']} windows "
            f"every {case['stride']} pixels; images: {len(files)}, one thread, {result['cpu']}"
        )
        head = ["method", "seconds", "of ours", "least", "most", "PSNR (dB)"]
        show_table(title, head, [_method_row(method) for method in case["methods"]])
    for method in result["cases"][0]["methods"]:
        say(f"{method['name']}: {method['about']}")
    for name in result["missing"]:
        say(f"{name} is not installed: {install_hint('baselines')}")
    if json:
        write_json(json, result)
    if plot:
        from tersense.experiments.plots import plot_methods

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


def _require_targets(json: Path | None, plot: Path | None, force: bool) -> None:
    """Refuse files that cannot be written before any work is done for them."""
    from tersense.io.files import require_json_target, require_writable_folder

    if json:
        require_json_target(json)
    if plot:
        from tersense.experiments.plots import require_plot_format
        from tersense.io.marks import require_no_loss

        require_plot_format(plot)
        require_writable_folder(plot)
        require_no_loss(plot, force)
