"""Commands for images: sense, reconstruct."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tersense.cli.adaptive import (
    MapsOption,
    PsnrOption,
    RoundsOption,
    SensorModeOption,
    choose_adaptive,
    spread_of,
)
from tersense.cli.bits import BppOption, QualityOption, RefineOption, able_model, choose_bits
from tersense.cli.export import parse_size
from tersense.cli.options import (
    BitsOption,
    CountsOption,
    DepthOption,
    DeviceOption,
    ForceOption,
    FullScaleOption,
    ImportanceOption,
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
    shared_by_processes,
)

PlainOption = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Write a safetensors file that any program reads, without coding the values: larger.",
    ),
]

if TYPE_CHECKING:
    from tersense.cli.batch import Task
    from tersense.measurements.measurements import Measurements
    from tersense.models.imager import Imager


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
    adaptive: SensorModeOption = None,
    rounds: RoundsOption = None,
    psnr: PsnrOption = None,
    maps: MapsOption = None,
    bpp: BppOption = None,
    quality: QualityOption = None,
    refine: RefineOption = 0,
    plain: PlainOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Take the measurements of images, gray or color, of any size.

    Example: tersense sense photo.jpg -m paper-r25 -o photo.tsm

    Example: tersense sense holiday/ -o measured/ --bits 10

    Example: tersense sense photo.jpg -o photo.tsm --bits 8 --full-scale max --photons 2

    Example: tersense sense raw.tif -o raw.tsm --depth 12

    Example: tersense sense photo.jpg -m flex --rate 0.1 --importance face.png -o photo.tsm

    Example: tersense sense photo.jpg -m flex --rate 0.1 --adaptive closed --rounds 5 -o photo.tsm

    Example: tersense sense photo.jpg -m flex --psnr 32 --adaptive closed -o photo.tsm

    Example: tersense sense photo.jpg --bpp 0.5 -o photo.tsm
    """
    from tersense.cli.batch import plan_tasks, work_through
    from tersense.cli.console import ProgressDisplay, say
    from tersense.io.deep import USUAL
    from tersense.io.files import make_folder
    from tersense.io.images import find_images, read_image
    from tersense.runtime.distributed import rank, together

    tasks = together(lambda: plan_tasks(images, out, ".tsm", find_images))
    for task in tasks:
        if task.target.suffix != ".tsm":  # it may be somebody's image or model
            raise typer.BadParameter(f"{task.target}: name a measurement file ending in .tsm")
    of_size = choose_bits(
        bpp, quality, adaptive, rounds, refine,
        {"--rate": rate, "--counts": counts, "--importance": importance, "--bits": bits,
         "--noise": noise, "--photons": photons, "--psnr": psnr, "--maps": maps, "--seed": seed,
         "--full-scale": full_scale != "auto"},
    )  # fmt: skip
    if plain and bpp is not None:
        raise typer.BadParameter("--bpp is the size of a coded file; leave --plain out")
    choose = of_size or choose_adaptive(adaptive, rate, rounds, psnr, maps)
    if adaptive and (counts or importance):
        raise typer.BadParameter("--adaptive decides the counts; leave --counts and --importance")
    count = choose_counts(counts, importance, rate)
    model = able_model(model) if of_size else model
    uneven = bool((counts and rate is None) or importance or adaptive or of_size)
    imager = load_model(model, rate, device, whole=uneven)
    camera = choose(imager)
    readout = choose_readout(imager, bits, full_scale, noise, photons, seed, depth)

    if len(tasks) > 1:
        imager.threads = 1  # each reader senses what it has read: one image a core

    def take(path: Path) -> "Measurements":
        image = read_image(path, depth=depth)
        if camera:
            return camera.sense(image, readout, depth or USUAL)
        wanted = count(imager, image.shape)
        return imager.sense(image, readout=readout, depth=depth, counts=wanted)

    def work(measurements: Any, target: Path) -> None:
        make_folder(target.parent)
        measurements.save(target, None if plain else imager.patterns)
        bits = 8 * target.stat().st_size / measurements.pixels
        say(
            f"{target}: {measurements.taken:,} measurements, "
            f"{measurements.per_pixel:.4g} and {bits:.4g} bits per pixel"
            + ("" if measurements.header.mode == "L" else " of each channel")
            + ("" if measurements.header.readout.exact else f"; {measurements.header.readout}")
            + (f"; {spread_of(measurements)}" if camera else "")
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
            help="Of an export: read tables (.npy, .csv, .rice) that a real camera measured.",
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
            "--model",
            "-m",
            metavar="MODEL",
            help="Default: the built-in with the file's patterns, the largest of several.",
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
    """Reconstruct images from their measurements.

    Example: tersense reconstruct photo.tsm -o photo.png

    Example: tersense reconstruct measured/ -o images/

    Example: tersense reconstruct table.csv --manifest firmware/manifest.json -o photo.png

    Example: tersense reconstruct y.rice --manifest firmware/ --size 451x300 -o photo.png
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

    read, find = _choose_reader(measured, manifest, size, max_pixels, model)

    def plan() -> "list[Task]":
        tasks = plan_tasks(measured, out, ".png", find)
        for task in tasks:
            require_image_target(task.target, force)
        return tasks

    tasks = together(plan)

    @cache
    def imager_for(phi: str, stride: int, count: int) -> "Imager":
        found = model or find_by_patterns(phi, stride, count)
        return load_model(found, None, device, precision, whole=True)

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


def _choose_reader(
    sources: list[Path],
    manifest: Path | None,
    size: str | None,
    max_pixels: int,
    model: str | None,
) -> tuple[Callable[[Path], Any], Callable[[Path], list[Path]]]:
    """Return what reads one file and what finds the files of a folder: ours, or tables."""
    from tersense.cli.batch import find_measurements
    from tersense.measurements.measurements import Measurements
    from tersense.models.zoo import patterns_of

    if manifest:
        from tersense.measurements.tables import find_tables, read_measured

        shape = parse_size(size) if size else None
        return lambda path: read_measured(path, manifest, shape), find_tables
    tables = [path for path in sources if path.suffix.lower() in (".npy", ".csv", ".rice")]
    if tables or size:
        what = tables[0] if tables else "--size"
        raise typer.BadParameter(f"{what} is about a table; name the camera's --manifest with it")
    find = patterns_of(model)  # once for all files
    return lambda path: Measurements.load(path, max_pixels, find), find_measurements


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
