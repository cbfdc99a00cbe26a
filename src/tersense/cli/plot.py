"""The `plot` commands."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tersense.cli.console import say
from tersense.cli.options import (
    ForceOption,
    ModelOption,
    complete_model,
    load_model,
    out_option,
)

# Modules that import torch are imported inside the commands, so that --help answers at once.

plot_app = typer.Typer(help="Draw what was measured, and what the cameras look like.")

PlotFile = Annotated[Path, out_option("FILE", "The plot: .png, .svg or .pdf.")]
ImageFile = Annotated[Path, out_option("FILE.png", "The image.")]


@plot_app.command("training")
def plot_training_runs(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Folders of training runs, or their metrics.jsonl."),
    ],
    out: PlotFile,
    force: ForceOption = False,
) -> None:
    """Loss and validation of training runs, against the step.

    Example: tersense plot training runs/paper runs/paper-l2 -o training.png
    """
    from tersense.experiments.plots import plot_training

    _require(out, force)
    plot_training(runs, out)
    say(out)


@plot_app.command("psnr")
def plot_figures(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT.json…", help="Of reproduce, or of evaluate --json."),
    ],
    out: PlotFile,
    against: Annotated[
        Literal["rate", "density"],
        typer.Option("--against", metavar="WHAT", help="rate or density."),
    ] = "rate",
    force: ForceOption = False,
) -> None:
    """PSNR against rate or density.

    Example: tersense plot psnr runs/reproduce/sparsity.json --against density -o sparsity.png

    Example: tersense plot psnr flex-r10.json flex-r25.json -o rates.png
    """
    from tersense.experiments.curves import read_figures
    from tersense.experiments.plots import plot_psnr

    _require(out, force)
    plot_psnr(read_figures(results, against), against, out)
    say(out)


@plot_app.command("readout")
def plot_readouts(
    images: Annotated[
        Path, typer.Argument(metavar="DIR", help="An image, or a folder of them; in gray (luma).")
    ],
    out: PlotFile,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="MODEL", help="May be repeated. Default: default."),
    ] = None,
    against: Annotated[
        Literal["bits", "noise", "photons"],
        typer.Option("--against", metavar="WHAT", help="bits, noise or photons."),
    ] = "bits",
    force: ForceOption = False,
) -> None:
    """PSNR against the bits, the noise or the photons of the readout.

    Example: tersense plot readout Set11 -m flex -m block-r25 --against noise -o noise.png
    """
    from tersense.cli.console import ProgressDisplay
    from tersense.experiments.plots import plot_psnr
    from tersense.experiments.readouts import measure_readouts
    from tersense.models.zoo import load

    _require(out, force)
    if out.exists() and (out.samefile(images) or images.resolve() in out.resolve().parents):
        raise typer.BadParameter(f"{out} would overwrite what is measured; choose another name")
    imagers = [load(model) for model in models or ["default"]]
    with ProgressDisplay() as display:
        curves = measure_readouts(imagers, images, against, (), display.track)
    plot_psnr(curves, against, out)
    for curve in curves:
        pairs = zip(curve.x, curve.y, strict=True)
        say(f"{curve.name}: " + ", ".join(f"{psnr:.2f} dB at {x:g}" for x, psnr in pairs))
    say(out)


@plot_app.command("patterns")
def plot_pattern_sheet(
    out: ImageFile,
    model: ModelOption = "default",
    columns: Annotated[
        int, typer.Option("--columns", metavar="N", min=1, help="Patterns per row.")
    ] = 16,
    scale: Annotated[
        int, typer.Option("--scale", metavar="N", min=1, max=100, help="Size of a pattern's pixel.")
    ] = 3,
    force: ForceOption = False,
) -> None:
    """All patterns of a model: +1 orange, −1 blue, 0 light gray.

    Example: tersense plot patterns -m paper-r25 -o patterns.png
    """
    from tersense.io.figures import draw_pattern_sheet
    from tersense.io.images import require_image_target, write_image
    from tersense.models.zoo import load

    require_image_target(out, force)
    write_image(out, draw_pattern_sheet(load(model).phi, columns, scale))
    say(out)


@plot_app.command("coverage")
def plot_pattern_coverage(
    out: PlotFile, model: ModelOption = "default", force: ForceOption = False
) -> None:
    """How often each pixel is used by a model's patterns.

    Example: tersense plot coverage -m paper-r25 -o coverage.png
    """
    from tersense.experiments.plots import plot_coverage
    from tersense.models.zoo import load

    _require(out, force)
    imager = load(model)
    plot_coverage(imager.patterns, imager.name, out)
    say(out)


@plot_app.command("strip")
def plot_strip(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="An image, gray or color.")],
    out: ImageFile,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="MODEL", help="May be repeated. Default: all."),
    ] = None,
    crop: Annotated[
        tuple[int, int, int, int] | None,
        typer.Option("--crop", metavar="X Y W H", help="Show this part. PSNR is of the whole."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """An image beside its reconstructions, with PSNR, and the errors below.

    Example: tersense plot strip photo.jpg -m paper-r25 -m block-r25 -o strip.png

    Example: tersense plot strip photo.jpg --crop 200 80 96 96 -o strip.png
    """
    from tersense.evaluation.metrics import psnr
    from tersense.io.figures import draw_strip
    from tersense.io.files import require_writable_folder
    from tersense.io.images import read_image, require_image_target, write_image
    from tersense.models.zoo import load, names

    require_writable_folder(out)
    original = read_image(image)
    if out.exists() and out.samefile(image):
        raise typer.BadParameter(f"{out} would overwrite itself; choose another name")
    require_image_target(out, force)
    x, y, width, height = crop or (0, 0, original.shape[1], original.shape[0])
    inside = 0 <= x < x + width <= original.shape[1] and 0 <= y < y + height <= original.shape[0]
    if not inside:
        raise typer.BadParameter(
            f"--crop {x} {y} {width} {height} is not inside the image of "
            f"{original.shape[1]}×{original.shape[0]} pixels"
        )
    part = slice(y, y + height), slice(x, x + width)
    estimates = []
    for imager in map(load, models or names()):
        estimate = imager.reconstruct(imager.sense(original))
        at = f" at {100 * imager.rate:.2g} %" if imager.reconstructor.any_rate else ""
        label = f"{imager.name}{at}, {psnr(estimate, original):.2f} dB"
        estimates.append((label, estimate[part]))
    write_image(out, draw_strip(original[part], estimates))
    say(out)


@plot_app.command("counts")
def plot_counts(
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE|Y.tsm", help="An image, or a measurement file.")
    ],
    out: ImageFile,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Default: flex; for a file, the built-in with its patterns.",
            autocompletion=complete_model,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="R", help="Measurements per pixel, on average."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", min=1, max=20, help="Of measuring. Default: 3."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Where the measurements went.

    An image is sensed uniformly and in rounds, with as many measurements: counts per window, both
    reconstructions with PSNR, and their errors. Of a measurement file, its own counts are drawn
    over its reconstruction.

    Example: tersense plot counts photo.jpg -m flex --rate 0.1 --rounds 3 -o counts.png

    Example: tersense plot counts photo.tsm -o counts.png
    """
    from tersense.experiments.comparison import compare_sensing, draw_comparison, draw_where
    from tersense.io.files import require_writable_folder
    from tersense.io.images import read_image, require_image_target, write_image
    from tersense.models.zoo import find_by_patterns, read

    require_writable_folder(out)
    if image.suffix == ".tsm":
        if rate is not None or rounds is not None:
            raise typer.BadParameter("--rate and --rounds are for images; a file has its counts")
        y = read(image, model)
        require_image_target(out, force)
        header = y.header
        found = model or find_by_patterns(header.phi, header.stride, header.rows)
        write_image(out, draw_where(load_model(found, whole=True), y))
        say(f"{out}: {y.per_pixel:.4g} measurements per pixel")
        return
    original = read_image(image)
    if rate is None:
        raise typer.BadParameter("say with --rate how many measurements an image may take")
    if out.exists() and out.samefile(image):
        raise typer.BadParameter(f"{out} would overwrite itself; choose another name")
    require_image_target(out, force)
    compared = compare_sensing(load_model(model or "flex", whole=True), original, rate, rounds or 3)
    write_image(out, draw_comparison(compared))
    say(
        f"{out}: {compared.gain:+.2f} dB from {compared.adaptive.taken:,} measurements, "
        f"{compared.adaptive.per_pixel:.4g} per pixel"
    )


def _require(path: Path, force: bool) -> None:
    """Refuse a file that cannot be drawn, before any work is done for it."""
    from tersense.experiments.plots import require_plot_format
    from tersense.io.files import require_writable_folder
    from tersense.io.marks import require_no_loss

    require_plot_format(path)
    require_writable_folder(path)
    require_no_loss(path, force)
