"""Commands for images: sense, reconstruct, evaluate, compare."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tersense.cli.export import parse_size
from tersense.cli.options import (
    BitsOption,
    CountsOption,
    DepthOption,
    DeviceOption,
    ForceOption,
    FullScaleOption,
    ImportanceOption,
    JsonOption,
    ModelOption,
    NoiseOption,
    PhotonsOption,
    PrecisionOption,
    RateOption,
    SeedOption,
    choose_counts,
    choose_readout,
    load_model,
    out_option,
)

if TYPE_CHECKING:
    from tersense.cli.batch import Task
    from tersense.measurements.measurements import Measurements
    from tersense.measurements.readout import Readout
    from tersense.models.imager import Imager

_MAX_ROWS = 200  # of a table that a person reads


def shared_by_processes(command: Callable[..., None]) -> Callable[..., None]:
    """Let the processes that torchrun starts share the files of a command."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        from tersense.runtime.distributed import process_group

        with process_group():
            command(*arguments, **options)

    return run


@shared_by_processes
def sense(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE…", help="Images, or folders of them.")
    ],
    out: Annotated[
        Path,
        out_option("Y.tsm", "Measurement file; for many, a folder."),
    ],
    model: ModelOption = "default",
    rate: RateOption = None,
    counts: CountsOption = None,
    importance: ImportanceOption = None,
    bits: BitsOption = None,
    full_scale: FullScaleOption = "auto",
    noise: NoiseOption = 0.0,
    photons: PhotonsOption = 0.0,
    seed: SeedOption = 0,
    depth: DepthOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Take the measurements of images, gray or color, of any size.

    Example: tersense sense photo.jpg -m paper-r25 -o photo.tsm

    Example: tersense sense holiday/ -o measured/ --bits 10

    Example: tersense sense photo.jpg -o photo.tsm --bits 8 --full-scale max --photons 2
    Example: tersense sense raw.tif -o raw.tsm --depth 12

    Example: tersense sense photo.jpg -m flex --rate 0.1 --importance face.png -o photo.tsm
    """
    from tersense.cli.batch import plan_tasks, work_through
    from tersense.cli.console import ProgressDisplay, say
    from tersense.io.files import make_folder
    from tersense.io.images import find_images, read_image
    from tersense.runtime.distributed import rank, together

    tasks = together(lambda: plan_tasks(images, out, ".tsm", find_images))
    for task in tasks:
        if task.target.suffix != ".tsm":  # it may be somebody's image or model
            raise typer.BadParameter(f"{task.target}: name a measurement file ending in .tsm")
    count = choose_counts(counts, importance, rate)
    imager = load_model(model, None if importance else rate, device)
    readout = choose_readout(imager, bits, full_scale, noise, photons, seed, depth)

    if len(tasks) > 1:
        imager.threads = 1  # each reader senses what it has read: one image a core

    def take(path: Path) -> "Measurements":
        image = read_image(path, depth=depth)
        wanted = count(imager, image.shape)
        return imager.sense(image, readout=readout, depth=depth, counts=wanted)

    def work(measurements: Any, target: Path) -> None:
        make_folder(target.parent)
        measurements.save(target)
        say(
            f"{target}: {measurements.taken:,} measurements, "
            f"{measurements.per_pixel:.4g} and {measurements.bits_per_pixel:.4g} bits per pixel"
            + ("" if measurements.header.mode == "L" else " of each channel")
            + ("" if readout.exact else f"; {measurements.header.readout}")
        )

    with ProgressDisplay(quiet=rank() > 0) as display:
        failures = work_through(tasks, take, work, display.track, "sensing")
    _report_failures(failures, len(tasks))


@shared_by_processes
def reconstruct(
    measured: Annotated[
        list[Path], typer.Argument(metavar="Y.tsm…", help="Measurement files, or folders of them.")
    ],
    out: Annotated[Path, out_option("OUT.png", "The image; or a folder.")],
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            metavar="FILE.json",
            help="Of an export: read tables (.npy, .csv) that a real camera measured.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size", metavar="WIDTHxHEIGHT", help="Of the image, where a table does not tell."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Default: the built-in with the file's patterns."
        ),
    ] = None,
    max_pixels: Annotated[
        int,
        typer.Option("--max-pixels", metavar="N", min=1, help="Refuse files of larger images."),
    ] = 2**28,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    force: ForceOption = False,
) -> None:
    """Give images back from their measurements.

    Example: tersense reconstruct photo.tsm -o photo.png

    Example: tersense reconstruct measured/ -o images/

    Example: tersense reconstruct table.csv --manifest firmware/manifest.json -o photo.png
    """
    from functools import cache

    from tersense.cli.batch import plan_tasks, work_through
    from tersense.cli.console import ProgressDisplay, say
    from tersense.io.deep import require_deep_suffix
    from tersense.io.files import make_folder
    from tersense.io.images import require_image_target, write_image
    from tersense.measurements.measurements import MeasuredValues
    from tersense.models.zoo import find_by_patterns
    from tersense.runtime.distributed import rank, together

    read, find = _choose_reader(measured, manifest, size, max_pixels)

    def plan() -> "list[Task]":
        tasks = plan_tasks(measured, out, ".png", find)
        for task in tasks:
            require_image_target(task.target, force)
        return tasks

    tasks = together(plan)

    @cache
    def imager_for(phi: str, stride: int, count: int) -> "Imager":
        return load_model(model or find_by_patterns(phi, stride, count), None, device, precision)

    def work(measurements: Any, target: Path) -> None:
        header = measurements.header
        require_deep_suffix(target, header.depth)
        imager = imager_for(header.phi, header.stride, header.rows)
        image = imager.reconstruct(measurements)
        make_folder(target.parent)
        write_image(target, image, header.depth)
        missing = measurements.missing if isinstance(measurements, MeasuredValues) else 0.0
        say(
            f"{target}: {image.shape[1]}×{image.shape[0]} pixels, by {imager.name}"
            + (f"; {missing:.1%} of the measurements were missing" if missing else "")
        )

    with ProgressDisplay(quiet=rank() > 0) as display:
        failures = work_through(tasks, read, work, display.track, "reconstructing")
    _report_failures(failures, len(tasks))


@shared_by_processes
def evaluate(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Images: a folder, a file, or an HDF5 file of patches."),
    ],
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
    color: Annotated[
        bool,
        typer.Option("--color", help="Sense every channel; PSNR over all of them. Default: gray."),
    ] = False,
    bits: BitsOption = None,
    full_scale: FullScaleOption = "auto",
    noise: NoiseOption = 0.0,
    photons: PhotonsOption = 0.0,
    seed: SeedOption = 0,
    depth: DepthOption = None,
    json: JsonOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
) -> None:
    """Measure PSNR and SSIM on images, in gray (luma) or in color, or on a file of patches.

    Example: tersense evaluate Set11 -m paper-r25 --stride 2 --json set11.json

    Example: tersense evaluate photo.png --color

    Example: tersense evaluate Set11 -m flex --bits 8 --noise 20

    Example: tersense evaluate patches.h5 -m paper-r25 --json patches.json
    """
    from tersense.cli.console import ProgressDisplay
    from tersense.evaluation.protocols import evaluate_folder
    from tersense.io.files import require_json_target
    from tersense.runtime.distributed import first, rank

    if json:
        require_json_target(json)
    imager = load_model(model, rate, device, precision)
    readout = choose_readout(imager, bits, full_scale, noise, photons, seed, depth)
    with ProgressDisplay(quiet=rank() > 0) as display:
        result = evaluate_folder(imager, folder, stride, display.track, color, readout, depth)
    first(lambda: _show_evaluation(result, json, readout, imager.reconstructor.any_count))


def _show_evaluation(
    result: dict[str, Any], json: Path | None, readout: "Readout", told: bool
) -> None:
    from tersense.cli.console import say, show_table
    from tersense.io.files import write_json

    images, spread = result["images"], result["spread"]
    rows = [_score_row(image["name"], image) for image in images[:_MAX_ROWS]]
    if len(images) > _MAX_ROWS:
        rows = [[name, _text(value, 2), "", ""] for name, value in spread["psnr"].items()]
    seconds = sum(image["seconds"] for image in images) / len(images)
    rows.append(_score_row("mean", {**result["mean"], "seconds": seconds}))
    title = f"{result['model']} on {result['data']}, {result['protocol']}"
    show_table(title, ["image", "PSNR (dB)", "SSIM", "seconds"], rows)
    per_pixel = result["bits_per_pixel"]
    say(
        f"window {result['window']}, stride {result['stride']}: "
        f"{result['measurements_per_pixel']:.4g} measurements per pixel"
        + (f", {per_pixel:.4g} bits per pixel; " if per_pixel is not None else "; ")
        + ("color, PSNR over all channels" if result["color"] else "gray (luma)")
        + (f", {result['depth']} bits per pixel" if result["depth"] > 8 else "")
    )
    if not readout.exact:
        unaware = "" if told else ", which cannot use it: it believes every value"
        say(f"readout: {readout}; the error is told to {result['model']}{unaware}")
    if spread["exact"]:
        say(
            f"{spread['exact']} of {len(images)} came back exactly, with infinite PSNR; "
            f"the mean of the others is {_text(spread['mean_of_others'], 2)} dB"
        )
    if len(images) > _MAX_ROWS:
        say(f"PSNR of {len(images)} images: shares of them, not each; --json has each")
    if json:
        write_json(json, result)


def compare(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The image to judge.")],
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", help="What it should be.")],
    out: Annotated[
        Path | None, out_option("MAP.png", "Also draw the absolute error, with its scale.")
    ] = None,
    depth: DepthOption = None,
    force: ForceOption = False,
) -> None:
    """Print PSNR and SSIM of one image against another of the same size.

    Example: tersense compare again.png photo.png -o error.png
    """
    from tersense.cli.console import say, show_facts
    from tersense.evaluation.metrics import psnr, ssim
    from tersense.io.deep import largest_pixel
    from tersense.io.figures import draw_strip
    from tersense.io.files import require_writable_folder
    from tersense.io.images import read_image, require_image_target, to_screen, write_image

    if out:
        require_writable_folder(out)
        if out.exists() and any(out.samefile(path) for path in (image, reference)):
            raise typer.BadParameter(f"{out} would overwrite what is compared; choose another name")
        require_image_target(out, force)
    one, other = (read_image(path, depth=depth) for path in (image, reference))
    if one.shape != other.shape:
        raise typer.BadParameter(
            f"{image} must have the size and colors of {reference}, {_describe(other)}, "
            f"got {_describe(one)}"
        )
    bits = depth or 8
    error, peak = abs(one.astype(float) - other), largest_pixel(bits)
    facts = {
        "image": _describe(one)
        + (f", {depth} bits per pixel" if depth else "")
        + (", PSNR over all channels" if one.ndim == 3 else ""),
        "PSNR": f"{psnr(one, other, peak):.2f} dB",
        "SSIM": _text(ssim(one, other, peak), 4),
        "largest error": f"{error.max():.0f} gray levels",
        "mean absolute error": f"{error.mean():.3f} gray levels",
    }
    show_facts(f"{image} against {reference}", facts)
    if out:
        shown, original = to_screen(one, bits), to_screen(other, bits)
        write_image(out, draw_strip(original, [(f"{image.name}, {facts['PSNR']}", shown)]))
        say(f"Error map: {out}")


def _describe(image: Any) -> str:
    return f"{image.shape[1]}×{image.shape[0]}, {'gray' if image.ndim == 2 else 'color'}"


def _choose_reader(
    sources: list[Path], manifest: Path | None, size: str | None, max_pixels: int
) -> tuple[Callable[[Path], Any], Callable[[Path], list[Path]]]:
    """Return what reads one file and what finds the files of a folder: ours, or tables."""
    from tersense.cli.batch import find_measurements
    from tersense.measurements.measurements import Measurements

    if manifest:
        from tersense.measurements.tables import find_tables, read_measured

        shape = parse_size(size) if size else None
        return lambda path: read_measured(path, manifest, shape), find_tables
    tables = [path for path in sources if path.suffix.lower() in (".npy", ".csv")]
    if tables or size:
        what = tables[0] if tables else "--size"
        raise typer.BadParameter(f"{what} is about a table; name the camera's --manifest with it")
    return lambda path: Measurements.load(path, max_pixels), find_measurements


def _report_failures(failures: dict[Path, str], total: int) -> None:
    """Name the files that failed; the exit code says that some did."""
    from tersense.cli.console import complain_of_each
    from tersense.errors import visible
    from tersense.runtime.distributed import first

    def tell() -> None:
        reasons = {visible(path): reason for path, reason in failures.items()}
        named = [why if path in why else f"{path}: {why}" for path, why in reasons.items()]
        complain_of_each(f"{len(failures)} of {total} files failed:", named)

    if failures:
        first(tell)
        raise typer.Exit(1)


def _score_row(name: str, figures: dict[str, Any]) -> list[str]:
    psnr, ssim, seconds = figures["psnr"], figures["ssim"], figures["seconds"]
    return [name, _text(psnr, 2), _text(ssim, 4), _text(seconds, 3)]


def _text(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
