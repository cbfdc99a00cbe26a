"""Plain loops in place of vector instructions: the same integers, and one note."""

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from reference import sense_by_windows
from tersense.sensing import additions, counted, loops

ROOT = Path(__file__).parents[2]

# An llvmlite without vectors, before or after our code for them is imported.
FORCED = """
import json, sys, warnings
import numpy as np
from llvmlite import ir

def vector_type(*_):
    raise TypeError("vectors are gone")

if sys.argv[1] == "imported":
    from tersense.sensing import _simd
ir.VectorType = vector_type
from tersense.sensing.additions import AddOnlySensor
from tersense.sensing.counted import CountedSensor

phi, image, counts = (np.load(name) for name in sys.argv[2:])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    y = AddOnlySensor(phi, 12)(image), CountedSensor(phi, 12)(image, counts)
print(json.dumps([[part.tolist() for part in y], [str(note.message) for note in caught]]))
"""


@pytest.fixture
def plain(monkeypatch):
    for module in (additions, counted):
        monkeypatch.setattr(module, "compiles", lambda *_: False)


def patterns(rng, m, B, density=0.3):
    return (rng.choice([-1, 1], (m, B, B)) * (rng.random((m, B, B)) < density)).astype(np.int8)


@pytest.mark.usefixtures("plain")
def test_any_geometry_is_exact():
    @given(st.integers(1, 24), st.integers(1, 24), st.integers(1, 70), st.integers(1, 70),
           st.sampled_from([np.uint8, np.uint16]), st.integers(0, 2**32))  # fmt: skip
    @settings(max_examples=60)
    def check(B, stride, H, W, dtype, seed):
        rng = np.random.default_rng(seed)
        phi = patterns(rng, 3, B, rng.choice([0, 0.1, 1]))
        image = rng.integers(0, np.iinfo(dtype).max, (H, W), dtype, endpoint=True)
        y = additions.AddOnlySensor(phi, min(stride, B))(image)
        np.testing.assert_array_equal(y, sense_by_windows(phi, min(stride, B), image))

    check()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_threads_rows_and_the_first_patterns_are_those_of_the_vectors(rng, plain, dtype):
    sensor = additions.AddOnlySensor(patterns(rng, 6, 24), 16)
    image = rng.integers(0, 256, (1600, 1400), dtype)
    options = {"threads": 3, "rows": (2, 99), "most": 4}
    loops = sensor(image, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additions, "compiles", lambda *_: True)
        vectors = sensor(image, **options)
    assert loops.dtype == vectors.dtype
    np.testing.assert_array_equal(loops, vectors)


def test_here_they_are_not_needed(rng, monkeypatch):
    """A kernel that no longer compiles would go unnoticed: everything else works without it."""
    monkeypatch.setattr(loops, "_works", {})
    phi = patterns(rng, 300, 12)
    counts = np.where(rng.random((10, 75)) < 0.1, 300, 1)
    for dtype in (np.uint8, np.uint16):
        image = rng.integers(0, 256, (120, 900), dtype)
        additions.AddOnlySensor(phi, 12)(image)
        counted.CountedSensor(phi, 12)(image, counts)
    assert list(loops._works.values()) == [True] * 4


@pytest.mark.parametrize("moment", ["imported", "importing"])
def test_where_vectors_do_not_compile_loops_sense_the_same(rng, tmp_path, moment):
    """Counts differ so much that groups of windows pay; nothing is kept of former compilations."""
    phi, image = patterns(rng, 300, 12), rng.integers(0, 256, (120, 900), np.uint8)
    counts = np.where(rng.random((10, 75)) < 0.1, 300, 1)
    sensor = counted.CountedSensor(phi, 12)
    assert sensor._pays(counts.ravel())
    names = [str(tmp_path / name) for name in ("phi.npy", "image.npy", "counts.npy")]
    for name, values in zip(names, (phi, image, counts), strict=True):
        np.save(name, values)
    done = subprocess.run(
        [sys.executable, "-c", FORCED, moment, *names], capture_output=True, text=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    y, notes = json.loads(done.stdout)
    np.testing.assert_array_equal(y[0], additions.AddOnlySensor(phi, 12)(image))
    np.testing.assert_array_equal(y[1], sensor(image, counts))
    (note,) = notes
    assert note.startswith(f"numba {metadata.version('numba')} has no vector instructions")


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_the_compiler_is_bounded_by_what_is_tested(name):
    """The version that runs here is allowed, and no later minor version, which nobody tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {Requirement(text).name: Requirement(text) for text in project["dependencies"]}
    tested = Version(metadata.version(name))
    assert tested in wanted[name].specifier
    assert f"{tested.major}.{tested.minor + 1}.0" not in wanted[name].specifier
    assert f"{tested.major + 1}.0" not in wanted[name].specifier
