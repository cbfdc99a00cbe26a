"""The table to choose a model from: what each costs, and how good its images are (`reproduce zoo`).

Every figure is kept in `zoo.json` as soon as it is measured, and a second command measures only
what is missing: quality on a GPU, then seconds on a CPU; another model, or another set.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tersense.errors import TersenseError
from tersense.evaluation.protocols import CameraLike, score_images, summarize
from tersense.experiments.bench import costs
from tersense.experiments.bench.costs import CLOSED, ROUNDS, UNIFORM
from tersense.experiments.readouts import CONDITIONS
from tersense.experiments.results import read_result
from tersense.experiments.testsets import find_sets, hash_images, read_set
from tersense.io.files import make_folder, write_json
from tersense.measurements.readout import Readout
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.imager import Imager
from tersense.models.zoo import find_file, load
from tersense.runtime.device import device_name

RATES = (0.01, 0.04, 0.1, 0.25, 0.5)
RATE = 0.25  # of costs and of readouts, where a model has it
READOUTS = ("σ = 60", "σ = 150", "8 bits", "6 bits", "5 bits", "4 bits")
PARTS = (UNIFORM, CLOSED, "readouts", "costs")
_ROW = {"sha256", "bytes", "told", "rate", "costs", "seconds", "sets"}


def run_zoo(
    models: Sequence[str],
    tests: Sequence[Path],
    path: Path,
    only: Sequence[str] = (),
    quick: bool = False,
    device: str = "auto",
    say: Any = print,
) -> dict[str, Any]:
    """Measure what is not yet known of models, and return all that is.

    Args:
        models: Names or files.
        tests: Folders of test images; the very first is that of the plot.
        path: `zoo.json`, where figures are kept.
        only: Of `PARTS`; none for all.
        quick: Small parts of two images of each folder, short times: to see that it works.
        device: Where to compute; seconds are those of this device.
        say: Is told what is done.

    Returns:
        The table, ready for JSON.
    """
    if unknown := sorted(set(only) - set(PARTS)):
        raise TersenseError(f"rows of zoo must be of {', '.join(PARTS)}, got {unknown[0]!r}")
    sets, parts = find_sets(tests, quick), [part for part in PARTS if not only or part in only]
    imagers = [load(model, device) for model in models]
    zoo = _Zoo(path, quick, {test.name: hash_images(test) for test in tests}, say)
    for imager, model in zip(imagers, models, strict=True):  # refuse before anything is measured
        zoo.enter(imager, find_file(model))
        if "costs" in parts:
            zoo.require_machine(imager)
    make_folder(path.parent)
    for imager in imagers:
        if "costs" in parts:
            zoo.measure_costs(imager)
        for test, files in sets.items():
            zoo.measure_set(imager, test, files, parts)
    return zoo.result


class _Zoo:
    """What is known so far, in a file.

    Args:
        path: Of the file.
        quick: Whether figures are of a quick run.
        sets: A hash of each set of test images.
        say: Is told what is done.
    """

    def __init__(self, path: Path, quick: bool, sets: dict[str, str], say: Any) -> None:
        self.path, self.quick, self.say = path, quick, say
        self.result: dict[str, Any] = {"table": "zoo", "quick": quick, "sets": {}, "models": {}}
        if path.exists():
            self.result = _read(path, self.result)
        self._require(self.result["quick"] == quick, "in another way (--quick)")
        self._entered: set[str] = set()
        for name, digest in sets.items():
            known = self.result["sets"].setdefault(name, digest)
            self._require(known == digest, f"with other images in {name}")

    def _require(self, alike: bool, difference: str) -> None:
        if not alike:
            raise TersenseError(
                f"{self.path} was made {difference}; choose another --out, or remove it"
            )

    def _row(self, imager: Imager) -> dict[str, Any]:
        row: dict[str, Any] = self.result["models"][imager.name]
        return row

    def enter(self, imager: Imager, file: Path) -> None:
        """Begin the row of a model, or go on with it."""
        if imager.name in self._entered:
            raise TersenseError(f"two models are called {imager.name}; name each once")
        self._entered.add(imager.name)
        content, rates = file.read_bytes(), rates_of(imager)
        digest = hashlib.sha256(content).hexdigest()
        row = self.result["models"].setdefault(imager.name, {
            "sha256": digest, "bytes": len(content), "told": imager.reconstructor.any_count,
            "rate": RATE if RATE in rates else rates[-1], "costs": {}, "seconds": {}, "sets": {},
        })  # fmt: skip
        self._require(row["sha256"] == digest, f"with another file of {imager.name}")

    def require_machine(self, imager: Imager) -> None:
        """Refuse to time a model on another machine than those before it."""
        here, kind = device_name(imager.device), imager.device.type
        if kind not in self._row(imager)["seconds"]:
            timed = [row["seconds"].get(kind, {}) for row in self.result["models"].values()]
            for there in (times["device"] for times in timed if times):
                self._require(there == here, f"on another machine ({there}, this is {here})")

    def measure_costs(self, imager: Imager) -> None:
        """Count weights and multiply-adds of a model, and time it beside the yardstick."""
        row, kind = self._row(imager), imager.device.type
        if "yardstick" not in self.result:
            self.result["yardstick"] = costs.describe_yardstick()
        if not row["costs"]:
            row["costs"] = costs.count_costs(imager, row["rate"])
        if kind not in row["seconds"]:
            timed = costs.time_reconstruction(imager, row["rate"], self.quick)
            row["seconds"][kind] = timed
            each = ", ".join(f"{name} {s:.3g}" for name, s in timed["seconds"].items())
            self.say(f"{imager.name}: {each} seconds per megapixel")
        write_json(self.path, self.result)

    def measure_set(
        self, imager: Imager, test: str, files: Sequence[Path], parts: Sequence[str]
    ) -> None:
        """Measure what is missing of a model on a set."""
        known = self._row(imager)["sets"].setdefault(test, {})
        images = None
        for part, name, choose, readout in _cells(imager):
            of_part = known.setdefault(part, {})
            if part not in parts or name in of_part:
                continue
            images, camera = images or read_set(files, self.quick), choose()
            scores = score_images(camera, images, readout)
            figures = summarize(camera, test, scores, None, readout=readout)
            of_part[name] = figures["mean"] | {
                "rate": figures["rate"],
                "measurements_per_pixel": figures["measurements_per_pixel"],
            }
            self.say(f"{imager.name} on {test}, {part}, {name}: {_decibels(of_part[name])}")
            write_json(self.path, self.result)


def _read(path: Path, empty: dict[str, Any]) -> dict[str, Any]:
    result = read_result(path, empty)
    sets, rows = result["sets"], result["models"]
    tables = isinstance(sets, dict) and isinstance(rows, dict)
    if not tables or not all(isinstance(row, dict) and row.keys() >= _ROW for row in rows.values()):
        raise TersenseError(f"{path} is no table of reproduce zoo; remove it to measure again")
    return result


def rates_of(imager: Imager) -> list[float]:
    """Return the rates to measure a model at: those of the table that it has, or its own."""
    network, own = imager.reconstructor, imager.rate
    if not network.any_rate:
        return [own]
    return [rate for rate in RATES if network.lowest_rate <= rate <= own] or [own]


def _cells(
    imager: Imager,
) -> Iterator[tuple[str, str, Callable[[], CameraLike], Readout | None]]:
    """Yield part, name, what makes the camera, and readout of all there is to measure on a set."""
    rates = rates_of(imager)
    for rate in rates:
        yield UNIFORM, f"{rate:.4g}", partial(imager.at_rate, rate), None
    for rate in rates if imager.camera.predictor is not None else []:
        closed = partial(AdaptiveCamera, imager, rate, "closed", ROUNDS)
        yield CLOSED, f"{rate:.4g}", closed, None
    for name in READOUTS if RATE in rates else []:
        yield "readouts", name, partial(imager.at_rate, RATE), CONDITIONS[name]


def _decibels(figures: dict[str, Any]) -> str:
    return "exact" if figures["psnr"] is None else f"{figures['psnr']:.2f} dB"
