"""Options that several commands have, and the model that they name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import tersense
from tersense.runtime.device import Device

if TYPE_CHECKING:
    from tersense.models.imager import Imager

Precision = Literal["float32", "bfloat16"]


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
    typer.Option("--precision", metavar="TYPE", help="float32, or bfloat16 where it is fast."),
]


def load_model(
    model: str, rate: float | None = None, device: str = "auto", precision: str = "float32"
) -> "Imager":
    """Load what the options of a command name."""
    from tersense.models.zoo import load

    imager = load(model, device, precision)
    return imager if rate is None else imager.at_rate(rate)
