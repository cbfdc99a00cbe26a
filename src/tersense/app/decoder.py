"""Decode uploads in a process of its own, which can be ended at any moment.

A decoder runs in C: nothing in its own process stops one that a hostile file keeps busy for hours
(a JPEG of ten thousand scans, say), and whatever it breaks, it breaks there. The two processes
exchange lines of JSON and plain pixels; nothing is unpickled.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from tersense.app.uploads import read_upload
from tersense.errors import TersenseError
from tersense.io.images import ImageArray, silence_decoders

MAX_MEMORY = 4 * 2**30  # bytes of address space: for 40 megapixels of any kind
_START = "from tersense.app.decoder import main; main()"


class Decoder:
    """A process that reads uploads, one at a time; it is started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def read(
        self, path: Path, max_pixels: int, stride: int, seconds: float
    ) -> tuple[ImageArray, str]:
        """Read an upload as `read_upload` does, within so many seconds.

        Starting the process is not the upload's fault, and takes none of them.
        """
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = _start()
        assert process.stdin
        assert process.stdout
        late = threading.Timer(max(0.0, seconds), process.kill)
        late.start()
        try:
            process.stdin.write(json.dumps([str(path), max_pixels, stride]).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if "error" in answer:
                raise TersenseError(answer["error"])
            pixels = process.stdout.read(math.prod(answer["shape"]))
            return np.frombuffer(pixels, np.uint8).reshape(answer["shape"]), answer["note"]
        except (OSError, json.JSONDecodeError) as error:  # it is gone: by us, or by itself
            ended = late.finished.is_set()
            reason = f"it takes more than {seconds:g} s" if ended else "its decoder failed"
            self.close()
            raise TersenseError(f"{path.name} is not a readable image: {reason}") from error
        finally:
            late.cancel()

    def stop(self) -> None:
        """End the process, also in the middle of an image; any thread may."""
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """End the process when it does nothing, and forget it."""
        self.stop()
        if process := self._process:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what was not sent any more
                    if pipe:
                        pipe.close()
            self._process = None


def _start() -> "subprocess.Popen[bytes]":
    # As this process finds its modules, so does that one; but none in the current folder.
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _START],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings,
    )  # fmt: skip
    assert process.stdout
    process.stdout.readline()  # empty if it failed, which is noticed when it is asked
    return process


def main() -> None:
    """Answer requests until nobody is there to send them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the page, which ends us
    _limit_memory()
    silence_decoders()
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        answer, pixels = _answer(*json.loads(line))
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + pixels)
        sys.stdout.buffer.flush()


def _answer(path: str, max_pixels: int, stride: int) -> tuple[dict[str, Any], bytes]:
    try:
        image, note = read_upload(path, max_pixels, stride)
    except TersenseError as error:
        return {"error": str(error)}, b""
    except MemoryError:
        return {"error": f"{Path(path).name} needs more memory than there is"}, b""
    return {"shape": image.shape, "note": note}, image.tobytes()


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # not every system has this
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
