"""Commands for those who build the camera: one for each kind of export."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tersense.cli.options import ModelOption, RateOption, load_model, out_option

# Modules that import torch are imported inside the commands, so that --help answers at once.

export_app = typer.Typer(help="Write a camera out for hardware and other runtimes.")

OutOption = Annotated[Path, out_option("DIR", "A new or empty folder.")]
CameraOption = Annotated[
    Literal["array", "single"],
    typer.Option("--camera", help="array: a detector for each window; single: one for all."),
]
MirrorsOption = Annotated[
    str, typer.Option("--mirrors", metavar="WIDTHxHEIGHT", help="Of the device.")
]
PixelDepthOption = Annotated[
    int, typer.Option("--depth", metavar="D", help="Bits per pixel, from 8 to 16.")
]
CodeBitsOption = Annotated[
    int | None,
    typer.Option("--bits", metavar="B", help="Round measurements to codes of B bits, 2 to 32."),
]
StepOption = Annotated[
    int | None,
    typer.Option(
        "--step",
        metavar="N",
        help="Quantization step. Default: the smallest that clips nothing.",
    ),
]
StepsOption = Annotated[
    Path | None,
    typer.Option(
        "--steps",
        metavar="STEPS.tsm",
        help="Step and offset of each pattern, and bits: those of a measurement file (or a .npy).",
    ),
]
AdaptiveOption = Annotated[
    bool,
    typer.Option(
        "--adaptive",
        help="Also write the decision of the sensor where to measure more (open loop, encoder).",
    ),
]

CoderOption = Annotated[
    Literal["rice"] | None,
    typer.Option("--coder", help="Also write a coder: rice, an adaptive Golomb–Rice code."),
]


def run_export(kind: str, model: str, rate: float | None, out: Path, **options: Any) -> None:
    """Write an export and print what a designer asks first."""
    from tersense.cli.console import say, show_facts, show_table
    from tersense.export.base import export
    from tersense.models.info import COST_HEAD, cost_rows

    whole = bool(options.get("adaptive")) and rate is None
    imager = load_model(model, rate, "cpu", whole=whole)
    manifest, facts = export(kind, imager, out, **options)
    show_table(f"{imager.name} as {kind}", COST_HEAD, cost_rows(imager.patterns))
    if facts:
        show_facts("This export", facts)
    say(f"{out} holds {len(manifest.files) + 1} files; README.md tells how to go on")


@export_app.command("verilog")
def export_verilog(
    out: OutOption,
    model: ModelOption = "default",
    rate: RateOption = None,
    lanes: Annotated[
        int, typer.Option("--lanes", metavar="L", help="Adders side by side; a power of two.")
    ] = 1,
    width: Annotated[
        int, typer.Option("--width", metavar="N", help="Of the images; a parameter, as height.")
    ] = 640,
    height: Annotated[int, typer.Option("--height", metavar="N", help="Of the images.")] = 480,
    depth: PixelDepthOption = 8,
    bits: CodeBitsOption = None,
    step: StepOption = None,
    steps: StepsOption = None,
    adaptive: AdaptiveOption = False,
    coder: CoderOption = None,
) -> None:
    """Write a synthesizable encoder in Verilog-2005, its program memory and testbenches.

    Example: tersense export verilog -m paper-r25 -o encoder --lanes 4 --depth 12

    Example: tersense export verilog -m paper-r25 -o encoder --steps y.tsm
    """
    run_export(
        "verilog", model, rate, out, lanes=lanes, width=width, height=height, depth=depth,
        adaptive=adaptive, coder=coder, **_converter(bits, step, steps, model),
    )  # fmt: skip


@export_app.command("c")
def export_c(
    out: OutOption,
    model: ModelOption = "default",
    rate: RateOption = None,
    depth: PixelDepthOption = 8,
    bits: CodeBitsOption = None,
    step: StepOption = None,
    steps: StepsOption = None,
    adaptive: AdaptiveOption = False,
    coder: CoderOption = None,
) -> None:
    """Write an encoder in freestanding C99, its tables, and a program that tries it.

    Example: tersense export c -m paper-r25 -o firmware --depth 12 --bits 10

    Example: tersense export c -m paper-r25 -o firmware --steps y.tsm

    Example: tersense export c -m flex --rate 0.1 -o firmware --bits 9 --step 96 --coder rice
    """
    converter = _converter(bits, step, steps, model)
    run_export("c", model, rate, out, depth=depth, adaptive=adaptive, coder=coder, **converter)


def _converter(
    bits: int | None, step: int | None, steps: Path | None, model: str
) -> dict[str, Any]:
    """Return the options of the quantizer."""
    if steps is None:
        return {"bits": bits, "step": step}
    from tersense.export.arithmetic import read_steps

    found, of_rows, offsets = read_steps(steps, bits, model)
    return {"bits": found, "step": step, "steps": of_rows, "offsets": offsets}


@export_app.command("matrix")
def export_matrix(out: OutOption, model: ModelOption = "default", rate: RateOption = None) -> None:
    """Write the patterns as .npy, .mat and CSV, and draw them.

    Example: tersense export matrix -m paper-r25 -o matrix
    """
    run_export("matrix", model, rate, out)


@export_app.command("patterns")
def export_patterns(
    out: OutOption,
    model: ModelOption = "default",
    rate: RateOption = None,
    camera: CameraOption = "array",
    mirrors: MirrorsOption = "1024x768",
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            "--picture",
            metavar="WIDTHxHEIGHT",
            help="In pixels. Default: one window (single), or what fits (array).",
        ),
    ] = None,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale", metavar="N", min=1, help="A pixel is N×N mirrors. Default: what fits."
        ),
    ] = None,
    formats: Annotated[
        str, typer.Option("--formats", metavar="LIST", help="Of png, bits, bitmaps, npy.")
    ] = "png",
    planes: Annotated[
        str, typer.Option("--planes", metavar="GRB", help="Order of the colors in bitmaps.")
    ] = "GRB",
) -> None:
    """Write frames for a digital mirror device, and the plan that turns readings into y.

    Example: tersense export patterns -m paper-r25 -o frames --formats png,bitmaps
    """
    run_export(
        "patterns", model, rate, out, camera=camera, mirrors=parse_size(mirrors), scale=scale,
        image=image and parse_size(image), planes=planes.upper(),
        formats=formats.replace(" ", "").split(","),
    )  # fmt: skip


def parse_size(text: str) -> tuple[int, int]:
    """Turn WIDTHxHEIGHT into (height, width)."""
    found = re.fullmatch(r"([1-9]\d{0,5})[x×]([1-9]\d{0,5})", text.strip().lower())
    if not found:
        raise typer.BadParameter(f"{text!r} is not a size; write it as WIDTHxHEIGHT: 1024x768")
    return int(found[2]), int(found[1])


@export_app.command("onnx")
def export_onnx(out: OutOption, model: ModelOption = "default", rate: RateOption = None) -> None:
    """Write sensor and reconstructor as ONNX models, compared with torch by onnxruntime.

    Example: tersense export onnx -m paper-r25 -o models
    """
    run_export("onnx", model, rate, out)


@export_app.command("web")
def export_web(
    out: OutOption,
    model: ModelOption = "flex",
    runtime: Annotated[
        Path | None,
        typer.Option(
            "--runtime",
            metavar="PATH",
            help="ONNX Runtime Web, as npm pack gives it or unpacked. Default: fetched once.",
        ),
    ] = None,
) -> None:
    """Write a page that senses and reconstructs in the browser, for any static host.

    Example: tersense export web -m flex -o page
    """
    run_export("web", model, None, out, runtime=runtime)
