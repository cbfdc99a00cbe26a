"""Commands that judge images: evaluate, compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tersense.cli.adaptive import (
    DeciderOption,
    MapsOption,
    ModeOption,
    PsnrOption,
    RoundsOption,
    choose_adaptive,
)
from tersense.cli.bits import BppOption, QualityOption, RefineOption, able_model, choose_bits
from tersense.cli.options import (
    BitsOption,
    DepthOption,
    DeviceOption,
    ForceOption,
    FullScaleOption,
    JsonOption,
    ModelOption,
    NoiseOption,
    PhotonsOption,
    PrecisionOption,
    RateOption,
    SeedOption,
    choose_readout,
    load_model,
    out_option,
    shared_by_processes,
)

if TYPE_CHECKING:
    from tersense.measurements.readout import Readout

_MAX_ROWS = 200  # of a table that a person reads


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
    adaptive: ModeOption = None,
    rounds: RoundsOption = None,
    psnr: PsnrOption = None,
    maps: MapsOption = None,
    decider: DeciderOption = None,
    bpp: BppOption = None,
    quality: QualityOption = None,
    refine: RefineOption = 0,
    json: JsonOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
) -> None:
    """Measure PSNR and SSIM on images, in gray (luma) or in color, or on a file of patches.

    Example: tersense evaluate Set11 -m paper-r25 --stride 2 --json set11.json

    Example: tersense evaluate photo.png --color

    Example: tersense evaluate Set11 -m flex --bits 8 --noise 20

    Example: tersense evaluate patches.h5 -m paper-r25 --json patches.json

    Example: tersense evaluate Set11 -m flex --rate 0.1 --adaptive closed --rounds 5

    Example: tersense evaluate Set11 -m large --decider fast --rate 0.1 --adaptive closed

    Example: tersense evaluate Set11 -m flex --adaptive closed --psnr 32

    Example: tersense evaluate Set11 --bpp 0.4
    """
    from tersense.cli.console import ProgressDisplay
    from tersense.evaluation.protocols import evaluate_folder
    from tersense.io.files import require_json_target
    from tersense.runtime.distributed import first, rank

    if json:
        require_json_target(json)
    of_size = choose_bits(
        bpp, quality, adaptive, rounds, refine,
        {"--rate": rate, "--stride": stride, "--bits": bits, "--noise": noise,
         "--photons": photons, "--psnr": psnr, "--maps": maps, "--seed": seed,
         "--full-scale": full_scale != "auto"},
        decider,
    )  # fmt: skip
    choose = of_size or choose_adaptive(adaptive, rate, rounds, psnr, maps, decider)
    if adaptive and stride is not None:
        raise typer.BadParameter("--stride is the paper's protocol; leave it out with --adaptive")
    model = able_model(model) if of_size else model
    imager = load_model(model, rate, device, precision, whole=bool(adaptive or of_size))
    readout = choose_readout(imager, bits, full_scale, noise, photons, seed, depth)
    camera = choose(imager)
    with ProgressDisplay(quiet=rank() > 0) as display:
        result = evaluate_folder(
            camera or imager, folder, stride, display.track, color, readout, depth
        )
    if camera:
        result["bits" if of_size else "adaptive"] = camera.describe()
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
    per_pixel, coded = result["bits_per_pixel"], "" if "bits" in result else " before coding"
    each = " of each channel" if result["color"] else ""
    say(
        f"window {result['window']}, stride {result['stride']}: "
        f"{result['measurements_per_pixel']:.4g} measurements per pixel"
        + (f", {per_pixel:.4g} bits per pixel{each}{coded}; " if per_pixel is not None else "; ")
        + ("color, PSNR over all channels" if result["color"] else "gray (luma)")
        + (f", {result['depth']} bits per pixel" if result["depth"] > 8 else "")
    )
    if not readout.exact:
        unaware = "" if told else ", which cannot use it: it believes every value"
        say(f"readout: {readout}; the error is told to {result['model']}{unaware}")
    if "adaptive" in result:
        say(_tell_adaptive(result))
    if "bits" in result:
        how = result["bits"]
        files = "of whole files" + (", all channels together" if result["color"] else "")
        refined = f"; codes refined {how['refined']} times" if how["refined"] else ""
        asked = f"quality {how['quality']:g}" if how["bpp"] is None else f"at most {how['bpp']:g}"
        rounds = f", {how['rounds']} rounds" if "rounds" in how else ""
        decided = f", decided by {how['decider']}" if "decider" in how else ""
        say(f"bits per pixel: {asked}, {files}; counts: {how['mode']}{rounds}{decided}{refined}")
    if spread["exact"]:
        say(
            f"{spread['exact']} of {len(images)} came back exactly, with infinite PSNR; "
            f"the mean of the others is {_text(spread['mean_of_others'], 2)} dB"
        )
    if len(images) > _MAX_ROWS:
        say(f"PSNR of {len(images)} images: shares of them, not each; --json has each")
    if json:
        write_json(json, result)


def _tell_adaptive(result: dict[str, Any]) -> str:
    """Say how it was decided, and how well the camera knew what it had."""
    how, prediction = result["adaptive"], result.get("prediction")
    text = f"adaptive: {how['mode']}"
    if "rounds" in how:
        wanted = "" if how["psnr"] is None else f", until {how['psnr']:g} dB are predicted"
        text += f", at most {how['rounds']} rounds{wanted}"
    if "decider" in how:
        text += f", decided by {how['decider']}"
    if prediction:
        text += (
            f"; predicted PSNR is off by {prediction['mean_absolute_error']:.2f} dB "
            f"(mean {prediction['mean_error']:+.2f}, largest {prediction['largest_error']:+.2f})"
        )
    return text


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


def _score_row(name: str, figures: dict[str, Any]) -> list[str]:
    psnr, ssim, seconds = figures["psnr"], figures["ssim"], figures["seconds"]
    return [name, _text(psnr, 2), _text(ssim, 4), _text(seconds, 3)]


def _text(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
