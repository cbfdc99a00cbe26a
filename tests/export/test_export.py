"""What all exports share: the folder, the manifest, the test vectors, the report."""

import json
import types

import numpy as np
import pytest

import tersense.export.base
from tersense.export.base import KINDS, Outcome, export
from tersense.export.test_vectors import make_vectors, photograph
from tersense.io.images import PHOTOGRAPH, read_gray
from tersense.measurements.manifest import Manifest
from tersense.models.info import cost_rows
from tersense.models.zoo import load
from tersense.sensing.patterns import Patterns


@pytest.fixture
def plain_kind(monkeypatch):
    """A kind of export that writes one file, or fails halfway."""

    def write(imager, vectors, folder, fail=False):
        (folder / "artifact.txt").write_text("half")
        if fail:
            raise RuntimeError("stop")
        return Outcome({"answer": 42}, {"answer": "42"})

    module = types.SimpleNamespace(write=write)
    monkeypatch.setitem(KINDS, "plain", "for tests")
    monkeypatch.setattr(tersense.export.base.importlib, "import_module", lambda name: module)
    return "plain"


def test_an_export_reads_back_as_written(tmp_path, small_imager, plain_kind):
    manifest, facts = export(plain_kind, small_imager, tmp_path / "out")
    assert Manifest.read(tmp_path / "out") == manifest
    assert facts == {"answer": "42"}
    assert manifest.details == {"answer": 42}
    assert manifest.phi == small_imager.patterns.hash
    present = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")}
    assert present == {*manifest.files, "manifest.json"}
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_an_export_that_fails_leaves_nothing(tmp_path, small_imager, plain_kind):
    with pytest.raises(RuntimeError):
        export(plain_kind, small_imager, tmp_path / "out", fail=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused(tmp_path, small_imager, plain_kind, refused):
    (tmp_path / "precious.txt").touch()
    with refused(tmp_path, "not empty"):
        export(plain_kind, small_imager, tmp_path)
    with refused("it is a file"):
        export(plain_kind, small_imager, tmp_path / "precious.txt")
    with refused("does not exist"):
        export(plain_kind, small_imager, tmp_path / "none" / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "precious.txt"]


def test_an_empty_folder_is_filled(tmp_path, small_imager, plain_kind):
    (tmp_path / "out").mkdir()
    export(plain_kind, small_imager, tmp_path / "out")
    assert (tmp_path / "out/manifest.json").is_file()


def test_an_unknown_kind_is_refused(tmp_path, small_imager, refused):
    with refused("'vhdl'", "verilog"):
        export("vhdl", small_imager, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 99}, "newer"),
        ({"format": None}, "format version"),
        ({"patterns": 15}, "cannot be right"),
        ({"stride": 9}, "stride 9"),
        ({"offset": 1}, "offset"),
        ({"rate": "much"}, "rate"),
        ({"alpha": [1.0]}, "alpha"),
        ({"alpha": ["one"] * 16}, "alpha"),
        ({"phi": "zz"}, "hex"),
        ({"nonzeros": 10**6}, "nonzeros"),
        ({"nonzeros_per_pattern": [1, 2, 3]}, "two numbers"),
        ({"pixel_order": "boustrophedon"}, "order"),
        ({"files": {"../../secret": {}}}, "outside"),
        ({"files": {"none.txt": {}}}, "missing"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path, small_imager, plain_kind, refused, change, reason):
    export(plain_kind, small_imager, tmp_path / "out")
    path = tmp_path / "out/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refused(path, reason):
        Manifest.read(tmp_path / "out")


def test_a_changed_file_is_noticed_unless_nobody_asks(tmp_path, small_imager, plain_kind, refused):
    manifest, _ = export(plain_kind, small_imager, tmp_path / "out")
    (tmp_path / "out/artifact.txt").write_text("hal!")
    with refused("artifact.txt", "changed"):
        Manifest.read(tmp_path / "out")
    assert Manifest.read(tmp_path / "out", check_files=False) == manifest


def test_what_is_no_manifest_is_refused(tmp_path, refused):
    with refused("cannot read"):
        Manifest.read(tmp_path / "none.json")
    for content in ("", "[]", "{}", '{"format": 1}', "nonsense"):
        (tmp_path / "manifest.json").write_text(content)
        with refused("not a usable manifest"):
            Manifest.read(tmp_path)


@pytest.fixture(params=[(8, 8), (8, 4), (9, 4), (8, 3), (400, 400)], ids=str)
def some_patterns(request, rng):
    window, stride = request.param
    phi = rng.choice(np.array([-1, 0, 1], np.int8), (5, window, window), p=[0.05, 0.85, 0.1])
    return Patterns(phi, stride)


def test_real_vectors_are_what_sensing_the_photograph_gives(some_patterns):
    from reference import sense_by_windows

    vectors = make_vectors(some_patterns)
    y = sense_by_windows(some_patterns.phi, some_patterns.stride, read_gray(PHOTOGRAPH))
    real = [k for k, name in enumerate(vectors.names) if name.startswith("real")]
    places = [tuple(map(int, vectors.names[k].split()[1].split(","))) for k in real]
    assert {places[0], places[-1]} == {(0, 0), (y.shape[1] - 1, y.shape[2] - 1)}
    for k, place in zip(real, places, strict=True):
        np.testing.assert_array_equal(vectors.measurements[k], y[(slice(None), *place)])


def test_the_worst_cases_reach_the_ends_of_every_row(some_patterns):
    vectors = make_vectors(some_patterns)
    plus, minus = some_patterns.signs_per_row
    np.testing.assert_array_equal(vectors.measurements.max(axis=0), 255 * plus)
    np.testing.assert_array_equal(vectors.measurements.min(axis=0), -255 * minus)
    short = vectors.short()
    assert short.measurements.max() == vectors.measurements.max()
    assert short.measurements.min() == vectors.measurements.min()
    assert {"all 0", "all 255"} < set(short.names)
    assert len(short) < len(vectors)


def test_a_piece_of_the_photograph_has_any_size():
    assert photograph(10, 1000).shape == (10, 1000)
    whole = read_gray(PHOTOGRAPH)
    np.testing.assert_array_equal(photograph(*whole.shape), whole)


def test_the_report_puts_dense_beside_it():
    rows = cost_rows(load("paper-r25").patterns)
    assert rows[0] == ["sparse ternary", "13,056", "0", "12.75", "14.75 KiB"]
    assert rows[1] == ["dense, 8 bits", "262,144", "262,144", "256.00", "256.00 KiB"]
    assert rows[2][-1] == "1024.00 KiB"
