"""What happens when somebody uses the page: an image's way from the upload to the results.

Every job has a time limit, and what guests leave behind is swept out.
"""

import contextlib
import os
import queue
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from torch.overrides import TorchFunctionMode

from tersense.app.decoder import Decoder
from tersense.app.state import (
    Capture,
    Shelf,
    capture,
    choose_readout,
    choose_rounds,
    deciding_camera,
    quickest_decider,
)
from tersense.errors import TersenseError
from tersense.experiments.comparison import Comparison, compare_sensing, counts_of
from tersense.io.count_maps import CountScale, draw_counts
from tersense.io.figures import draw_error, draw_measurements, draw_pattern_sheet
from tersense.io.images import write_image
from tersense.measurements.readout import Readout

AT_ONCE = 2  # people whose images are worked on; others wait in line
VISITS_KEPT = 200  # uploads, results and choices beyond the latest so many go sooner
_SECONDS_KEPT = 3600  # of uploads and results
_SECONDS_SURE = 60  # but nobody who waits in line loses an image, however many others come
_BYTES_KEPT = 2**31  # unless they fill the disk
_SECONDS_TO_DECODE = 15  # which takes one or two
_SECONDS_TO_CLOSE = 10
_CLOSING = "the page is being closed; come back later"
_USUAL_RATE = "25 %"  # of the default model


class Deadline(TorchFunctionMode):
    """A time limit, and a request to stop, for all that this thread computes within it.

    Every call of torch looks at the clock first: rounds of a network and steps of a solver are made
    of such calls, those of other packages as well.

    Args:
        seconds: From now on.
        stopping: Set when the page ends.
    """

    def __init__(self, seconds: float, stopping: threading.Event) -> None:
        super().__init__()
        self._seconds, self._stopping = seconds, stopping
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until it is over."""
        return self._end - time.monotonic()

    def check(self) -> None:
        """Raise an error if the time is over."""
        if self._stopping.is_set():
            raise TersenseError(_CLOSING)
        if self.left < 0:
            raise TersenseError(
                f"this takes more than {self._seconds:g} s here; send a smaller image, or choose "
                "another model"
            )

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self.check()
        return func(*args, **(kwargs or {}))


class Results(NamedTuple):
    """What came of an image, and the files that hold it, by name."""

    done: Capture
    note: str  # what was done to the image before
    files: dict[str, str]
    compared: Comparison | None = None  # with adaptive sensing, where the model decides


class Studio:
    """What happens when somebody uses the page.

    Args:
        shelf: The cameras on offer.
        folder: Where uploads come and results go; old ones are swept out.
        max_pixels: Larger images are shrunk.
        seconds: The most that one image may take.

    `furniture` names what in the folder belongs to the page itself and stays.
    """

    def __init__(self, shelf: Shelf, folder: Path, max_pixels: int, seconds: float = 120) -> None:
        self.shelf, self.folder, self.max_pixels = shelf, folder, max_pixels
        self.seconds = seconds
        self.furniture: set[Path] = set()
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._decoders = [Decoder() for _ in range(AT_ONCE)]
        self._idle: queue.SimpleQueue[Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def rates(self, family: str, before: object) -> tuple[list[str], str]:
        """Return a family's rates, and the one to choose: as before, the usual or the highest."""
        rates = list(self.shelf[family])
        usual = _USUAL_RATE if _USUAL_RATE in rates else rates[-1]
        return rates, before if isinstance(before, str) and before in rates else usual

    def decides(self, family: str) -> bool:
        """Return whether a family can decide where to measure."""
        return deciding_camera(self.shelf[family]) is not None

    def work(
        self,
        path: Path,
        family: str,
        rate: str,
        bits: str = "exact",
        noise: str = "none",
        rounds: float = 3,
    ) -> Results:
        """Sense and reconstruct an image, and write what came of it, within the time limit.

        Rounds matter to families that decide where to measure.
        """
        readout, times = choose_readout(bits, noise), choose_rounds(rounds)
        if self._stopping.is_set():
            raise TersenseError(_CLOSING)
        try:
            # Always the same threads: each that has ever computed keeps memory of its own.
            job = self._threads.submit(self._work, path, family, rate, readout, times)
        except RuntimeError as error:  # closed since
            raise TersenseError(_CLOSING) from error
        return job.result()

    def _work(self, path: Path, family: str, rate: str, readout: Readout, rounds: int) -> Results:
        self._touch(path)
        decoder = self._idle.get()
        try:
            with Deadline(self.seconds, self._stopping) as deadline:
                deadline.check()
                imager = self.shelf[family][rate]
                stride = imager.patterns.stride
                seconds = min(_SECONDS_TO_DECODE, round(deadline.left, 1))
                image, note = decoder.read(path, self.max_pixels, stride, seconds)
                done = capture(imager, image, readout)
                compared = None
                if (whole := deciding_camera(self.shelf[family])) is not None:
                    compared = compare_sensing(
                        whole, image, imager.rate, rounds, readout,
                        quickest_decider(self.shelf, whole), (done.measurements, done.estimate),
                    )  # fmt: skip
                deadline.check()
                return Results(done, note, self._write(path.stem, done, compared), compared)
        finally:
            self._idle.put(decoder)

    def _write(self, stem: str, done: Capture, compared: Comparison | None) -> dict[str, str]:
        folder = self.folder / uuid.uuid4().hex  # which nobody guesses
        folder.mkdir()
        images = {
            "original": done.original,
            "reconstruction": done.estimate,
            "error": draw_error(done.estimate, done.original),
            "patterns": draw_pattern_sheet(done.imager.phi, transparent=True),
            "measurements": draw_measurements(done.measurements.values, transparent=True),
        }
        if compared is not None:
            counts, stride = counts_of(compared.adaptive), compared.imager.geometry.stride
            scale = CountScale.of(counts)
            images["adaptive"] = compared.adaptive_image
            images["counts"] = draw_counts(done.original, counts, stride, scale, numbers=True)
        files = {name: folder / f"{stem}-{name}.png" for name in images}
        for name, pixels in images.items():
            write_image(files[name], pixels)
        files["tsm"] = folder / f"{stem}.tsm"
        done.measurements.save(files["tsm"], done.imager.patterns)
        return {name: str(file) for name, file in files.items()}

    def _touch(self, upload: Path) -> None:
        """Keep an upload for another while, if it is still there."""
        if not upload.is_file():
            raise TersenseError(f"{upload.name} is kept for a while only; upload it again")
        if upload.is_relative_to(self.folder):
            os.utime(upload.parent)

    def sweep(self) -> None:
        """Remove what was left long ago, and of the rest all but the newest."""
        left = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # an upload that just found its place
                left.append((path.stat().st_mtime, path, _size(path)))
        left = sorted(found for found in left if found[1] not in self.furniture)
        now, size = time.time(), 0
        for place, (when, path, own_size) in enumerate(reversed(left)):
            size += own_size
            limit = _SECONDS_SURE if place >= VISITS_KEPT else _SECONDS_KEPT
            if when < now - limit or size > _BYTES_KEPT:
                _remove(path)

    def close(self) -> None:
        """Stop the jobs that are running, and wait until they have."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._threads.shutdown(wait=False)
        for decoder in self._decoders:
            decoder.stop()
        end, idle = time.monotonic() + _SECONDS_TO_CLOSE, []
        for _ in self._decoders:
            with contextlib.suppress(queue.Empty):
                idle.append(self._idle.get(timeout=max(0.0, end - time.monotonic())))
        for decoder in idle:
            decoder.close()
            self._idle.put(decoder)  # who comes late is told, not kept waiting


def _size(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:  # what gradio keeps of an upload that it refused
        path.unlink(missing_ok=True)
