"""Damaged files of every kind are used or refused by one clear line; `make fuzz` runs many more."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from readers import make_readers

NAMES = (
    "image .png", "image .jpg", "image .webp", "image .tif", "image .bmp", "image .gif",
    "image .ppm", "measurements", "coded measurements", "model", "configuration", "HDF5",
    "manifest", "table .csv",
    "table .npy", "coded .rice", "coder .json", "patterns .npy", "patterns .mat", "counts .npy",
    "round .json", "round .npy", "log", "figures", "results", "checkpoint", "cache",
    "deep image .png", "deep image .tif", "deep image .ppm",
)  # fmt: skip


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return make_readers(tmp_path_factory.mktemp("good"))


def test_all_kinds_are_there(readers):
    assert set(readers) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_good_files_are_read(readers, tmp_path, name):
    reader = readers[name]
    outcomes = [reader.meet(tmp_path / f"a{reader.suffix}", seed) for seed in reader.seeds]
    assert "read" in outcomes


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_damaged_files_are_read_or_refused_by_one_line(readers, tmp_path, capfd, name, random):
    reader = readers[name]
    reader.meet(tmp_path / f"a{reader.suffix}", reader.damaged(random))
    assert capfd.readouterr() == ("", "")
