"""Captures that go on from one run of the program to the next: a folder for each round.

    round-1/ ──mirrors and detectors──▶ readings.csv ─┐
       └──────────────────────────────────────────────┴─▶ round-2/ …

A folder holds what is asked for (frames, tables), what is measured so far (`measured.tsm`, from the
second one on), the counts after each round (`counts.npy`; the last is what is asked for), and
`round.json`, which says how to go on. The folder after the last round asks for nothing.
"""

import csv
import json
import shlex
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tersense.errors import TersenseError, one_line
from tersense.io.files import folder_written_whole, read_npy, read_text, write_json
from tersense.io.schema import above, at_least, at_most, build, validate
from tersense.measurements.exposures import Plan
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import LARGEST_NOISE, Readout
from tersense.measurements.rounds import Request, RoundPlan
from tersense.models.capture import Capture
from tersense.models.imager import Imager

NAME, MEASURED, COUNTS = "round.json", "measured.tsm", "counts.npy"
MAX_EXPOSURES = 100_000
_FORMAT = 1


@dataclass(frozen=True)
class RoundSettings:
    """What a capture needs to know from round to round.

    Args:
        model: The camera, a built-in name or a model file.
        height: H of the image.
        width: W of the image.
        rate: Measurements per pixel, at most.
        rounds: At most.
        psnr: In dB, where the capture stops; 0 for when the rate is reached.
        noise: Standard deviation of the error of a measurement, in pixel values.
        camera: `array`, a detector for each window, or `single`, one for all.
        mirrors_down: Rows of mirrors.
        mirrors_across: Columns of mirrors.
        scale: A pixel is shown by so many mirrors squared.
        format: Of the folder.
    """

    model: str
    height: Annotated[int, at_least(1), at_most(2**16)]
    width: Annotated[int, at_least(1), at_most(2**16)]
    rate: Annotated[float, above(0)]
    rounds: Annotated[int, at_least(1)]
    psnr: Annotated[float, at_least(0)] = 0.0
    noise: Annotated[float, at_least(0), at_most(LARGEST_NOISE)] = 0.0
    camera: Literal["array", "single"] = "array"
    mirrors_down: Annotated[int, at_least(1), at_most(2**16)] = 768
    mirrors_across: Annotated[int, at_least(1), at_most(2**16)] = 1024
    scale: Annotated[int, at_least(1)] = 1
    format: Annotated[int, at_least(1), at_most(_FORMAT)] = _FORMAT

    def __post_init__(self) -> None:
        validate("round", self)

    def plan(self, imager: Imager) -> Plan:
        """Return how the mirrors show the image."""
        geometry = imager.geometry
        return Plan(
            self.camera, imager.rows, geometry.window, geometry.stride, self.height, self.width,
            self.mirrors_down, self.mirrors_across, self.scale,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Round:
    """What a folder holds.

    Args:
        settings: Of the capture.
        history: Counts (h, w) after each round that is measured.
        asked: Counts that are asked for; None where nothing is.
        measured: So far; None at the beginning.
    """

    settings: RoundSettings
    history: tuple[NDArray[np.int64], ...] = ()
    asked: NDArray[np.int64] | None = None
    measured: Measurements | None = None

    def open(self, imager: Imager) -> Capture:
        """Return the capture as far as it is, its request open where there is one."""
        said = self.settings
        size, psnr = (said.height, said.width), said.psnr or None
        of_file = None if self.measured is None else self.measured.header
        if of_file is not None and (of_file.height, of_file.width) != size:
            raise TersenseError(f"{MEASURED} must be of the size that {NAME} tells")
        # Before memory is taken for an image of that size.
        if self.asked is not None and self.asked.shape != imager.geometry.grid(*size):
            raise TersenseError(f"{COUNTS} must have a number for each window, is {NAME} changed?")
        if self.measured is None:
            readout = Readout(noise=said.noise)
            capture = imager.begin(size, said.rate, said.rounds, readout, psnr=psnr)
        else:
            capture = imager.resume(
                self.measured, said.rate, said.rounds, history=self.history, psnr=psnr
            )
        if self.asked is not None:
            capture.ask(self.asked)
        return capture


def read_round(path: Path) -> Round:
    """Read the folder of a round that is still to be measured."""
    text = read_text(path / NAME)
    try:
        settings = build("round", RoundSettings, json.loads(text))
        counts = read_npy(path / COUNTS)
        if counts.ndim != 3 or counts.dtype.kind not in "iu":
            raise ValueError(f"{COUNTS} must be integers (rounds, h, w), got {counts.shape}")
        if not len(counts):
            raise ValueError("nothing is asked for; the capture is complete")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, TersenseError) and str(path) in str(error):
            raise
        raise TersenseError(f"{path} is not the folder of a round: {one_line(error)}") from error
    measured = Measurements.load(path / MEASURED) if (path / MEASURED).exists() else None
    *history, asked = (np.array(of_round, np.int64) for of_round in counts)
    return Round(settings, tuple(history), asked, measured)


def write_round(
    folder: Path, imager: Imager, capture: Capture, request: Request | None, said: RoundSettings
) -> RoundPlan | None:
    """Write what is asked for next and what is measured so far, whole or not at all.

    Args:
        folder: New or empty.
        imager: The camera.
        capture: As far as it is.
        request: Of the capture; None at its end.
        said: Of the capture.

    Returns:
        How the mirrors show it; None at the end.
    """
    asked = [] if request is None else [request.after]
    every = np.array([*capture.history, *asked], np.uint16)
    planned = None if request is None else RoundPlan(said.plan(imager), request)
    with folder_written_whole(folder) as partial:
        if capture.history:
            capture.measurements().save(partial / MEASURED)
        if planned is not None:
            _write_frames(planned, imager.phi, partial)
            _write_tables(planned, partial)
        np.save(partial / COUNTS, every if request is not None else every[:0], allow_pickle=False)
        write_json(partial / NAME, asdict(said))
        text = _readme(planned, said)
        (partial / "README.md").write_text(text, encoding="utf-8", newline="\n")
    return planned


def _readme(planned: RoundPlan | None, said: RoundSettings) -> str:
    """Return what a person at the camera needs to know."""
    if planned is None:
        command = f"tersense reconstruct {MEASURED} -m {shlex.quote(said.model)} -o photo.png"
        return f"# The capture is complete\n\n    {command}\n"
    plan = planned.plan
    top, left = plan.origin
    return f"""# Measure this round

{len(planned.request):,} measurements in {len(planned.exposures):,} exposures: show the frames of
`png/` one after the other on {plan.mirrors_across}×{plan.mirrors_down} mirrors (white is on) and
note what the {plan.detectors} detectors read, a line of a CSV file for each exposure, a column for
each detector (or a `.npy` file, exposures × detectors). The image, {plan.width}×{plan.height}
pixels of {plan.scale}×{plan.scale} mirrors, begins at mirror row {top}, column {left}; a mirror
that is on adds its pixel, from 0 to 255, to the reading. Then

    tersense plan THIS_FOLDER --values readings.csv -o NEXT_FOLDER

- `exposures.csv`: set of windows, row of Φ and sign that a frame shows;
- `detectors.csv`: the window (i, j) and the mirrors that a detector sees in each set; windows that
  do not need a row stay dark, and what their detectors read does not count;
- `measurements.csv`: the order of measurements, for cameras that subtract the frames of a pair
  themselves: one number a line, (reading of +1 − reading of −1) / {plan.scale}²;
- `{COUNTS}`, `{NAME}`, and after the first round `{MEASURED}`: how to go on.
"""


def _write_frames(planned: RoundPlan, phi: NDArray[np.int8], folder: Path) -> None:
    plan, exposures = planned.plan, len(planned.exposures)
    if exposures > MAX_EXPOSURES:
        raise TersenseError(
            f"this round would be {exposures:,} exposures, of {MAX_EXPOSURES:,} at most; choose a "
            "smaller image, more rounds, or a detector array"
        )
    size = exposures * plan.mirrors_down * plan.mirrors_across // 8
    free = shutil.disk_usage(folder).free
    if size > free:
        raise TersenseError(
            f"these frames may take {size / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are free; "
            "use fewer mirrors"
        )
    (folder / "png").mkdir()
    for number, frame in enumerate(planned.frames(phi)):
        Image.fromarray(frame).save(folder / "png" / f"frame-{number:05d}.png")


def _write_tables(planned: RoundPlan, folder: Path) -> None:
    """Write which exposure shows what, what detectors see, and the order of measurements."""
    shown = [(n, f"png/frame-{n:05d}.png", *e) for n, e in enumerate(planned.exposures)]
    _write_csv(folder / "exposures.csv", ["exposure", "frame", "set", "row", "sign"], shown)
    fields = ["set", "detector", "i", "j", "top", "left", "bottom", "right"]
    _write_csv(folder / "detectors.csv", fields, planned.plan.detector_table().tolist())
    places = np.argwhere(planned.request.mask).tolist()
    _write_csv(folder / "measurements.csv", ["row", "i", "j"], places)


def _write_csv(path: Path, head: list[str], lines: list[Any]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *lines])


def begin_with(measured: Measurements, said: RoundSettings) -> Round:
    """Return the round after which a measurement file is all that there is."""
    header = measured.header
    if header.mode != "L":
        raise TersenseError("mirrors measure gray images, got a color one; sense it in gray")
    return Round(replace(said, height=header.height, width=header.width), (), None, measured)
