"""Hold the batch commands under load: thousands of images, one in ten of them bad.

Example: python -m long.soak_batch --pictures 5000
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from skimage import data

from conftest import build_small_imager
from long.memory import Memory, growth
from tersense.evaluation.protocols import score_image
from tersense.io.images import read_gray, read_image, write_image
from tersense.models.files import write_model
from tersense.models.zoo import load

PER_FOLDER = 500
SECONDS_BETWEEN_SAMPLES = 0.05


def soak(count: int, seed: int = 0) -> dict[str, Any]:
    """Sense, reconstruct and evaluate so many images; check every result; return figures."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as scratch:
        model, photos, measured, again = (
            Path(scratch, name) for name in ("small.safetensors", "photos", "measured", "again")
        )
        write_model(model, build_small_imager())
        imager = load(str(model))
        good, bad = _write_images(photos, count, rng)

        figures = {"sense": _run("sense", photos, "-m", model, "-o", measured, bad=bad)}
        # Python's own answers, before some of the files are damaged.
        files = [_moved(path, photos, measured, ".tsm") for path in good]
        for path, file in zip(good, files, strict=True):
            assert file.read_bytes() == imager.sense(read_image(path)).to_bytes(imager.patterns), (
                file
            )
        assert len(list(measured.rglob("*"))) == len(files) + len(list(measured.iterdir()))

        damaged = {file for file in files if rng.random() < 0.1}
        for file in damaged:
            file.write_bytes(file.read_bytes()[: rng.integers(file.stat().st_size)])
        figures["reconstruct"] = _run(
            "reconstruct", measured, "-m", model, "-o", again, bad=damaged
        )
        for path, file in zip(good, files, strict=True):
            result = _moved(file, measured, again, ".png")
            assert result.exists() == (file not in damaged), result
            if file not in damaged:
                expected = imager.reconstruct(imager.sense(read_image(path)))
                np.testing.assert_array_equal(read_image(result), expected)

        # A mean over fewer images would mislead: evaluate stops at a bad one, and names it.
        report = Path(scratch, "report.json")
        stopped = _command("evaluate", photos, "-m", model, "--json", report)
        said = subprocess.run(stopped, capture_output=True, text=True)
        assert (said.returncode, said.stdout, report.exists()) == (2, "", False)
        assert any(str(path) in said.stderr for path in bad)
        for path in bad:
            path.unlink()
        figures["evaluate"] = _run("evaluate", photos, "-m", model, "--json", report, bad=())
        scores = json.loads(report.read_text())["images"]
        for path, score in zip(sorted(good), scores, strict=True):
            expected = score_image(imager, path.stem, read_gray(path))
            assert (score["name"], score["psnr"]) == (path.stem, expected.psnr)
    return figures


def _write_images(
    folder: Path, count: int, rng: np.random.Generator
) -> tuple[list[Path], set[Path]]:
    """Write images of many sizes, gray and color; return which are good and which bad."""
    good, bad = [], set()
    photographs = data.astronaut(), data.camera()
    for number in range(count):
        below = folder / f"{number // PER_FOLDER:03}"
        below.mkdir(parents=True, exist_ok=True)
        path = below / f"{number:06}{('.png', '.jpg', '.bmp')[number % 3]}"
        top, left, height, width = rng.integers((0, 0, 9, 9), (400, 400, 64, 64))
        image = photographs[rng.integers(2)][top : top + height, left : left + width]
        write_image(path, image)
        if rng.random() < 0.1:
            _spoil(path, rng)
            bad.add(path)
        else:
            good.append(path)
    return good, bad


def _spoil(path: Path, rng: np.random.Generator) -> None:
    """Empty an image, cut it off in its first half, or put noise in its place."""
    content = path.read_bytes()
    spoilt = b"", content[: len(content) // 2], rng.bytes(len(content))
    path.write_bytes(spoilt[rng.integers(3)])


def _moved(path: Path, source: Path, target: Path, suffix: str) -> Path:
    return (target / path.relative_to(source)).with_suffix(suffix)


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tersense", *map(str, words)]


def _run(*words: object, bad: Iterable[Path]) -> dict[str, Any]:
    """Run a command, see that it names just the bad files, and watch its memory."""
    began, memories, bad = time.monotonic(), [], {str(path) for path in bad}
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(_command(*words), stdout=out, stderr=err, env=surroundings)
        while process.poll() is None:
            try:
                memories.append(Memory.of(process.pid))
                process.wait(SECONDS_BETWEEN_SAMPLES)
            except (KeyError, ProcessLookupError, subprocess.TimeoutExpired):
                continue  # it is just ending, or still at work
        err.seek(0)
        said = err.read()
    assert process.returncode == (1 if bad else 0), said[-2000:]
    # Lines of progress stand before the files that failed.
    lines = [line for line in said.splitlines() if line.startswith("  ")]
    assert len(lines) == len(bad), f"{len(lines)} of {len(bad)} are named"
    for path in bad:
        assert any(str(path) in line for line in lines), f"{path} is not named"
    # The first half of the samples is start-up: libraries, the model, the compiled kernel.
    return {
        "failed": len(bad),
        "seconds": round(time.monotonic() - began, 1),
        "own MiB": round(memories[-2].own, 1),
        "growth": round(growth([memory.own for memory in memories], warm=0.5), 4),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Hold the batch commands under load.")
    parser.add_argument("--pictures", type=int, default=5000)
    figures = soak(parser.parse_args().images)
    for name, values in figures.items():
        print(name, values)
        assert values["growth"] < 0.05, f"{name}: memory grew"


if __name__ == "__main__":
    main()
