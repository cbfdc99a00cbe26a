"""Options that several commands have, and the model that they name."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import tersense
from tersense.runtime.device import Device

if TYPE_CHECKING:
    from tersense.measurements.readout import Readout
    from tersense.models.imager import Imager

Precision = Literal["float32", "bfloat16", "auto"]


def complete_model(incomplete: str) -> list[str]:
    """Return the built-in models that begin so, without torch: the tab key wants an answer."""
    weights = Path(tersense.__file__).parent / "models" / "weights"
    names = ["default", *sorted(path.stem for path in weights.glob("*.safetensors"))]
    return [name for name in names if name.startswith(incomplete)]


def refuse_stdout(out: Path | None) -> Path | None:
    """Refuse `-`, which means standard output elsewhere: results are written whole, to files."""
    if out is not None and str(out) == "-":
        raise typer.BadParameter("results go to files: name a file or a folder, not -")
    return out


def out_option(metavar: str, help: str) -> typer.models.OptionInfo:
    """Return the option that says where results go."""
    option: typer.models.OptionInfo = typer.Option(
        "--out", "-o", metavar=metavar, help=help, callback=refuse_stdout
    )
    return option


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A built-in name or a model file.",
        autocompletion=complete_model,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="R",
        help="Sampling ratio in measurements per pixel, for models that offer a choice.",
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option(
        "--depth",
        metavar="BITS",
        help="Keep so many bits per pixel of 16-bit files, 9 to 16. Default: their upper 8.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE.json",
        help="Also write the results as JSON.",
        callback=refuse_stdout,
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png", help="Also draw the results.", callback=refuse_stdout
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Overwrite images that tersense did not write."),
]
DeviceOption = Annotated[
    Device,
    typer.Option("--device", metavar="DEVICE", help="auto (a GPU if there is one), cpu, cuda."),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision", metavar="TYPE", help="float32, bfloat16, or auto: bfloat16 where it is fast."
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option("--bits", metavar="B", help="Model a readout of B bits. Default: exact."),
]
FullScaleOption = Annotated[
    str,
    typer.Option(
        "--full-scale",
        metavar="X",
        help="Range of the codes: a number; max, the largest |y| that any pattern can give; P%, "
        "this share of each pattern's y in the image; or auto, all of it.",
    ),
]
NoiseOption = Annotated[
    float,
    typer.Option(
        "--noise", metavar="SIGMA", help="Standard deviation of Gaussian noise, in pixel values."
    ),
]
PhotonsOption = Annotated[
    float,
    typer.Option(
        "--photons",
        metavar="N",
        help="Model shot noise: N photons for a pixel of value 1. Default: none.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of noise and photons.")
]
CountsOption = Annotated[
    Path | None,
    typer.Option(
        "--counts",
        metavar="COUNTS.npy",
        help="How many of the first patterns measure each window: integers, windows down × across.",
    ),
]
ImportanceOption = Annotated[
    Path | None,
    typer.Option(
        "--importance",
        metavar="WEIGHTS.png",
        help="Distribute the measurements of --rate over the windows by the brightness of this "
        "image of the same size.",
    ),
]


def choose_counts(
    counts: Path | None, importance: Path | None, rate: float | None
) -> "Callable[[Imager, tuple[int, ...]], Any]":
    """Return what gives the counts per window for a camera and the shape of an image."""
    from tersense.errors import TersenseError
    from tersense.io.images import read_gray
    from tersense.measurements.counts import counts_by_importance, read_counts
    from tersense.sensing.patterns import rows_for_rate

    if counts and importance:
        raise typer.BadParameter("--counts and --importance both say how many; give one of them")
    if importance and rate is None:
        raise typer.BadParameter(
            "--importance shares out the measurements of --rate; add it, as in --rate 0.1"
        )
    try:
        given = read_counts(counts) if counts else None
        weights = read_gray(importance) if importance else None
    except TersenseError as error:
        raise typer.BadParameter(f"{'--counts' if counts else '--importance'}: {error}") from error

    def choose(imager: "Imager", shape: tuple[int, ...]) -> Any:
        if weights is None or rate is None:
            return given
        if weights.shape != shape[:2]:
            raise TersenseError(
                f"{importance} must have the size of the image, {shape[1]}×{shape[0]} pixels, got "
                f"{weights.shape[1]}×{weights.shape[0]}"
            )
        imager.camera.require_any_count()
        lowest = rows_for_rate(imager.reconstructor.lowest_rate, imager.geometry.stride)
        mean = imager.at_rate(rate).rows
        return counts_by_importance(weights, imager.geometry, mean, lowest, imager.rows)

    return choose


def choose_readout(
    imager: "Imager", bits: int | None, full_scale: str, noise: float, photons: float, seed: int,
    depth: int | None = None,
) -> "Readout":  # fmt: skip
    """Return the readout that the options of a command describe, for pixels of so many bits."""
    from tersense.io.deep import USUAL
    from tersense.measurements.readout import LARGEST_VALUE, Readout

    if bits is None and full_scale != "auto":
        raise typer.BadParameter("--full-scale is about the converter; say its --bits, too")
    if full_scale == "auto":
        return Readout.ranging(bits, noise, seed, photons)
    if full_scale == "max":
        reached = imager.patterns.largest_magnitude_at(depth or USUAL)
        return Readout.covering(reached, bits, noise, seed, photons)
    percent = full_scale.endswith("%")
    try:
        number = float(full_scale.removesuffix("%"))
    except ValueError:
        number = 0.0
    if not 0 < number <= (100 if percent else LARGEST_VALUE):
        raise typer.BadParameter(
            "--full-scale must be auto, max, a number above 0 and at most "
            f"{LARGEST_VALUE:,}, or a share like 99.9%, got {full_scale[:50]!r}"
        )
    if percent:
        return Readout.ranging(bits, noise, seed, photons, number)
    return Readout.covering(number, bits, noise, seed, photons)


def load_model(
    model: str,
    rate: float | None = None,
    device: str = "auto",
    precision: str = "float32",
    whole: bool = False,
) -> "Imager":
    """Load what the options of a command name.

    Args:
        model: A name or a file.
        rate: Counts more than one that goes with the name, as 25 % with the default.
        device: As for `load`.
        precision: As for `load`.
        whole: Leave all rows, whatever the name means: where they are distributed over windows.
    """
    from tersense.models.zoo import load, whole_model

    imager = load(model if rate is None and not whole else whole_model(model), device, precision)
    return imager if rate is None or whole else imager.at_rate(rate)


def load_decider(model: str | None, imager: "Imager") -> "Imager | None":
    """Load who decides where to measure, where it is another model than the one it decides for."""
    from tersense.models.zoo import whole_model

    if model is None or whole_model(model) == imager.name:
        return None
    return load_model(model, None, imager.device.type, imager.precision, whole=True)


def shared_by_processes(command: Callable[..., None]) -> Callable[..., None]:
    """Let the processes that torchrun starts share the files of a command."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        from tersense.runtime.distributed import process_group

        with process_group():
            command(*arguments, **options)

    return run
