"""Patterns of the user's own, from the file to the image."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.linalg
import scipy.sparse
from skimage import data

import tersense
from reference import sense_slowly
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.io.images import to_gray, write_image
from tersense.sensing.patterns import random_patterns, read_patterns
from tersense.training.config import build_config, read_config, write_toml
from tersense.training.run import train

PICTURE = to_gray(data.chelsea())[50:121, 120:210]
TERNARY = random_patterns(16, 8, 0.2, seed=4).phi
SIGNS = scipy.linalg.hadamard(64)[:16].reshape(16, 8, 8).astype(np.int8)
MIRRORS = (SIGNS > 0).astype(np.int8)
KINDS = {"ternary": TERNARY, "signs": SIGNS, "mirrors": MIRRORS}


def config_for(path, out, **sensing):
    return build_config(
        {
            "sensing": {"patterns": str(path), "stride": 8, **sensing},
            "reconstructor": {"name": "mlp", "hidden": [64]},
            "data": {"train": "package:skimage/data", "crop": 8, "samples": 4000},
            "train": {"out": str(out), "epochs": 6, "batch": 200, "lr": 0.01},
        }
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64, ">f8"])
@pytest.mark.parametrize("flat", [False, True])
def test_npy_files_of_every_type_are_read(kind, dtype, flat, tmp_path):
    phi = KINDS[kind].reshape(16, 64) if flat else KINDS[kind]
    np.save(tmp_path / "mine.npy", phi.astype(dtype))
    patterns = read_patterns(tmp_path / "mine.npy")
    np.testing.assert_array_equal(patterns.phi, KINDS[kind])
    assert patterns.stride == 8


def test_booleans_fortran_order_and_a_stride_are_fine(tmp_path):
    np.save(tmp_path / "mine.npy", np.asfortranarray(MIRRORS.astype(bool)))
    patterns = read_patterns(tmp_path / "mine.npy", stride=4)
    np.testing.assert_array_equal(patterns.phi, MIRRORS)
    assert patterns.stride == 4


@pytest.mark.parametrize(
    "variables",
    [
        {"A": SIGNS.reshape(16, 64)},
        {"A": SIGNS.astype(float)},
        {"H": SIGNS.reshape(16, 64), "note": "by hand", "rate": 0.25},
        {"phi": SIGNS.reshape(16, 64), "patterns": SIGNS.transpose(1, 2, 0), "stride": 8},
        {"A": scipy.sparse.csc_matrix(SIGNS.reshape(16, 64).astype(float))},
    ],
    ids=lambda v: "-".join(v),
)
def test_mat_files_are_read(variables, tmp_path):
    if "note" in variables:
        variables = {k: v for k, v in variables.items() if k != "note"}
    scipy.io.savemat(tmp_path / "mine.mat", variables)
    np.testing.assert_array_equal(read_patterns(tmp_path / "mine.mat").phi, SIGNS)


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (2 * TERNARY, "2"),
        (TERNARY * 0.5, "0.5"),
        (TERNARY * np.nan, "nan"),
        (MIRRORS * np.uint8(255), "255"),
        (TERNARY.astype(complex), "complex128"),
        (TERNARY.astype(str), "<U"),
        (TERNARY[:, :, :7], "(16, 8, 7)"),
        (np.ones((4, 63)), "(4, 63)"),
        (np.ones(64), "(64,)"),
        (np.ones(()), "()"),
        (np.ones((0, 8, 8)), "(0, 8, 8)"),
        (np.ones((3, 0)), "(3, 0)"),
        (np.eye(64)[:5] * (np.arange(5) != 3)[:, None], "pattern 3"),
    ],
)
def test_what_is_no_pattern_is_refused(array, told, tmp_path, refused):
    path = tmp_path / "mine.npy"
    np.save(path, array)
    with refused(path, told):
        read_patterns(path)


def test_files_that_cannot_be_read_are_refused(tmp_path, refused):
    with refused("none.npy", "No such file"):
        read_patterns(tmp_path / "none.npy")
    with refused("mine.csv", ".npy or .mat"):
        read_patterns(tmp_path / "mine.csv")
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "whole.npy", TERNARY)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-9])
    huge = (tmp_path / "whole.npy").read_bytes().replace(b"(16, 8, 8), }  ", b"(9**9,8, 8), }")
    (tmp_path / "huge.npy").write_bytes(huge)
    (tmp_path / "junk.mat").write_bytes(b"MATLAB?" * 40)
    (tmp_path / "folder.npy").mkdir()
    for name in ("pickle.npy", "cut.npy", "huge.npy", "junk.mat", "folder.npy"):
        with refused(name):
            read_patterns(tmp_path / name)
    scipy.io.savemat(tmp_path / "two.mat", {"A": SIGNS, "B": SIGNS})
    with refused("two.mat", "A, B", "phi"):
        read_patterns(tmp_path / "two.mat")
    with refused("stride of 9", "1 to 8"):
        read_patterns(tmp_path / "whole.npy", stride=9)


def test_patterns_decide_window_rate_and_density(tmp_path):
    np.save(tmp_path / "mine.npy", TERNARY)
    sensing = config_for(tmp_path / "mine.npy", "run", window=32, rate=0.5).sensing
    assert (sensing.kind, sensing.window, sensing.rate) == ("fixed", 8, 0.25)
    assert sensing.density == pytest.approx(12 / 64)
    # Pairs of mirror patterns: more measurements than pixels.
    np.save(tmp_path / "pairs.npy", np.concatenate([MIRRORS, 1 - MIRRORS[1:]] * 3))
    assert config_for(tmp_path / "pairs.npy", "run").sensing.rate == 93 / 64


def test_settings_that_contradict_the_patterns_are_refused(tmp_path, refused):
    np.save(tmp_path / "mine.npy", TERNARY)
    with refused("sensing.kind", "fixed"):
        config_for(tmp_path / "mine.npy", "run", kind="float")
    with refused("sensing.kind", "sensing.patterns"):
        build_config({"sensing": {"kind": "fixed"}})
    with refused("stride of 32", "8×8"):
        config_for(tmp_path / "mine.npy", "run", stride=32)
    with refused("linear", "no weights"):
        tables = {"sensing": {"patterns": str(tmp_path / "mine.npy"), "stride": 8},
                  "reconstructor": {"name": "linear"},
                  "data": {"train": "package:skimage/data", "crop": 8, "samples": 4000},
                  "train": {"out": str(tmp_path / "run"), "batch": 200}}  # fmt: skip
        train(build_config(tables))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["alpha", "learned"])
def test_only_the_reconstructor_is_trained(kind, scale, tmp_path):
    np.save(tmp_path / "mine.npy", KINDS[kind])
    train(config_for(tmp_path / "mine.npy", tmp_path / "run", scale=scale))
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run/metrics.jsonl").open()]
    assert losses[-1] < 0.5 * losses[0]
    imager = tersense.load(tmp_path / "run")
    np.testing.assert_array_equal(imager.phi, KINDS[kind])
    y = imager.sense(PICTURE)
    np.testing.assert_array_equal(y.values, sense_slowly(PICTURE, KINDS[kind], 8))
    assert psnr(imager.reconstruct(y), PICTURE) > 20
    assert str(tmp_path) not in json.dumps(imager.about["recipe"]["sensing"])


def test_a_run_resumes_with_the_same_patterns_only(tmp_path, refused):
    path = tmp_path / "mine.npy"
    np.save(path, TERNARY)
    config = config_for(path, tmp_path / "run")
    train(config)
    longer = read_config(tmp_path / "run/config.toml", ["train.epochs=7"])
    train(longer, resume=True)
    np.save(path, np.roll(TERNARY, 1, axis=0))
    with refused("mine.npy", "other patterns"):
        train(read_config(tmp_path / "run/config.toml", ["train.epochs=8"]), resume=True)


def test_the_settings_survive_their_file(tmp_path):
    np.save(tmp_path / "mine.npy", TERNARY)
    config = config_for(tmp_path / "mine.npy", "run")
    (tmp_path / "config.toml").write_text(write_toml(config))
    assert read_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize("stride", [8, 5])
def test_patterns_serve_before_any_training(stride, tmp_path):
    np.save(tmp_path / "mine.npy", TERNARY)
    imager = tersense.load(tmp_path / "mine.npy", stride=stride)
    y = imager.sense(PICTURE)
    y.save(tmp_path / "y.tsm")
    again = imager.reconstruct(tersense.Measurements.load(tmp_path / "y.tsm"))
    assert again.shape == PICTURE.shape
    assert psnr(again, PICTURE) > 24
    imager.save_pretrained(tmp_path / "camera")
    kept = tersense.load(tmp_path / "camera")
    np.testing.assert_array_equal(kept.reconstruct(y), again)


def test_a_model_keeps_its_own_stride(refused):
    with refused("paper-r25", "own stride"):
        tersense.load("paper-r25", stride=16)


def test_the_commands_take_patterns(tmp_path, capsys):
    np.save(tmp_path / "mine.npy", SIGNS)
    (tmp_path / "pictures").mkdir()
    write_image(tmp_path / "pictures/cat.png", PICTURE)
    mine = str(tmp_path / "mine.npy")
    y, again = str(tmp_path / "y.tsm"), str(tmp_path / "again.png")
    assert main(["info", mine]) == 0
    assert main(["sense", str(tmp_path / "pictures/cat.png"), "-m", mine, "-o", y]) == 0
    assert main(["reconstruct", y, "-m", mine, "-o", again]) == 0
    assert main(["evaluate", str(tmp_path / "pictures"), "-m", mine]) == 0
    assert main(["demo", "-m", mine, "-o", str(tmp_path / "demo")]) == 0
    for kind in ("matrix", "c", "verilog", "patterns"):
        assert main(["export", kind, "-m", mine, "-o", str(tmp_path / kind)]) == 0
    for name in ("phi.npy", "phi.mat"):  # what is written out can be read in
        np.testing.assert_array_equal(read_patterns(tmp_path / "matrix" / name).phi, SIGNS)
    np.save(tmp_path / "mine.npy", 3 * SIGNS)
    capsys.readouterr()
    assert main(["info", mine]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tersense: ")
    assert len(error.splitlines()) == 1


def test_errors_are_of_the_packages_own_kind(tmp_path):
    with pytest.raises(TersenseError):
        tersense.load(tmp_path / "none.mat")


def test_what_is_no_npy_file_is_not_taken_for_a_pickle(tmp_path, refused):
    (tmp_path / "mine.npy").write_text("nonsense")
    with refused("mine.npy", "not a .npy file"):
        tersense.load(tmp_path / "mine.npy")
