"""How PSNR falls as the readout gets worse: fewer bits, more noise, fewer photons."""

from collections.abc import Sequence
from pathlib import Path

from tersense.errors import TersenseError
from tersense.evaluation.protocols import evaluate_folder
from tersense.experiments.curves import Curve
from tersense.measurements.readout import Readout
from tersense.models.imager import Imager
from tersense.runtime.progress import Track, quietly

# What is tried where nothing else is said; 0 bits are exact values.
USUAL: dict[str, tuple[float, ...]] = {
    "bits": (4, 5, 6, 8, 10, 12),
    "noise": (1, 3, 10, 30, 100, 300),
    "photons": (0.001, 0.01, 0.1, 1, 10),
}


def readout_for(against: str, value: float) -> Readout:
    """Return the readout that differs from an exact one in bits, noise or photons only."""
    if against not in USUAL:
        raise TersenseError(f"PSNR is drawn against {', '.join(USUAL)}, not {against!r}")
    if against == "bits":
        return Readout.ranging(int(value))
    return Readout(noise=value) if against == "noise" else Readout(photons=value)


def measure_readouts(
    imagers: Sequence[Imager],
    images: Path,
    against: str,
    values: Sequence[float] = (),
    track: Track = quietly,
) -> list[Curve]:
    """Evaluate cameras under readouts of one kind.

    Args:
        imagers: The cameras, a curve each.
        images: A folder of images, or one.
        against: bits, noise or photons.
        values: What to try; the usual ones where nothing is said.
        track: Wraps the images to show progress.

    Returns:
        Mean PSNR against the value, a curve for each camera.
    """
    curves = []
    for imager in imagers:
        told = "" if imager.reconstructor.any_count else ", not told"
        curve = Curve(f"{imager.name}{told}")
        for value in values or USUAL.get(against, (0.0,)):
            readout = readout_for(against, value)
            result = evaluate_folder(imager, images, None, track, readout=readout)
            if result["mean"]["psnr"] is not None:  # all images came back exactly
                curve.add(value, result["mean"]["psnr"])
        curves.append(curve.sort())
    return curves
