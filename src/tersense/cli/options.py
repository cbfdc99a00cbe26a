"""Options that several commands have, and the model that they name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tersense.models.imager import Imager

ModelOption = Annotated[
    str, typer.Option("--model", "-m", metavar="MODEL", help="A built-in name or a model file.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate", metavar="R", help="Measurements a pixel, for models that offer a choice."
    ),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE.json", help="Also write the figures as JSON.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE.png", help="Also draw the figures.")
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or auto.")]
PrecisionOption = Annotated[
    str, typer.Option("--precision", metavar="TYPE", help="float32, or bfloat16 where it is fast.")
]


def load_model(
    model: str, rate: float | None = None, device: str = "cpu", precision: str = "float32"
) -> "Imager":
    """Load what the options of a command name."""
    from tersense.models.zoo import load

    imager = load(model, device, precision)
    return imager if rate is None else imager.at_rate(rate)
