"""Plots: the figures that they show, and the files that they leave."""

import json

import numpy as np
import pytest
from skimage import data

from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.experiments.curves import PAPER, read_figures, read_training
from tersense.experiments.plots import coverage
from tersense.experiments.readouts import measure_readouts
from tersense.io.figures import draw_measurements, draw_pattern_sheet
from tersense.io.images import read_image, write_image
from tersense.models.zoo import load
from tersense.sensing.operator import SensingOperator
from tersense.sensing.patterns import Patterns


@pytest.fixture
def run(tmp_path):
    """The folder of a training that was killed while it wrote."""
    folder = tmp_path / "my-run"
    folder.mkdir()
    lines = [
        {"step": 10, "seconds": 1.0, "epoch": 1, "loss": 5.0, "lr": 0.1},
        {"step": 10, "seconds": 1.0, "validation_psnr": 20.0},
        {"step": 20, "seconds": 2.0, "epoch": 2, "loss": 3.0, "lr": 0.1},
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 30, "se'
    (folder / "metrics.jsonl").write_text(text)
    return folder


def make_table(path, name, points, published=None):
    """Write a table of `reproduce` with points (rate, density, psnr)."""
    rows = [
        {
            "name": f"{rate}-{density}",
            "label": "row",
            "published": [published, None],
            "protocol": {"config": {"sensing": {"rate": rate, "density": density}}, "quick": False},
            "sets": {"Set11": {"overlapping": {"mean": {"psnr": psnr}}}},
        }
        for rate, density, psnr in points
    ]
    path.write_text(json.dumps({"table": name, "rows": rows}))
    return path


def test_a_training_is_read_up_to_the_line_that_was_cut_off(run):
    curves = read_training(run)
    assert (curves["loss"].x, curves["loss"].y) == ([10, 20], [5, 3])
    assert (curves["validation_psnr"].x, curves["validation_psnr"].y) == ([10], [20])
    assert curves["loss"].name == "my-run"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("config", "train", {"epochs": 10}), "train.epochs"),
        (("config", "data", {"samples": 1000}), "data.samples"),
        (("quick", True), "quick"),
        (("protocols", {"overlapping": 4}), "protocols"),
        (("pictures", {"Set11": "other"}), "images of Set11"),
    ],
)
def test_tables_made_in_different_ways_are_not_drawn_together(tmp_path, change, said):
    """Two runs of one table with another budget, data or stride would join to one curve."""
    full = make_table(tmp_path / "a.json", "rates", [(0.25, 0.05, 30.0), (0.1, 0.05, 27.0)])
    result = json.loads(full.read_text())
    for row in result["rows"]:
        row["protocol"] |= {"tests": ["Set11"], "protocols": {"overlapping": 2}}
        row["protocol"] |= {"pictures": {"Set11": "one"}}
        row["protocol"]["config"] |= {"train": {"epochs": 50}, "data": {"samples": 5000}}
    full.write_text(json.dumps(result))
    assert read_figures([full, full], "rate")
    for row in result["rows"]:
        *place, key, value = change
        where = row["protocol"][place[0]] if place else row["protocol"]
        where[key] = value
    other = tmp_path / "b.json"
    other.write_text(json.dumps(result))
    with pytest.raises(TersenseError, match=rf"b\.json.*{said}.*apart"):
        read_figures([full, other], "rate")


def test_evaluations_at_different_strides_are_not_joined(tmp_path):
    for number, (rate, stride) in enumerate([(0.1, 2), (0.25, 4)]):
        result = {"model": f"block-r{number}", "data": "Set11", "protocol": "overlapping",
                  "stride": stride, "rate": rate, "mean": {"psnr": 30.0}, "images": []}  # fmt: skip
        (tmp_path / f"{number}.json").write_text(json.dumps(result))
    with pytest.raises(TersenseError, match=r"other stride.*4 and not 2"):
        read_figures([tmp_path / "0.json", tmp_path / "1.json"], "rate")


def test_points_of_a_table_are_drawn_in_order_with_the_papers_beside(tmp_path):
    points = [(0.25, 0.05, 30.0), (0.1, 0.05, 27.0), (0.2, 0.05, None)]
    ours, paper = read_figures([make_table(tmp_path / "t.json", "rates", points, 25.0)], "rate")
    assert (ours.name, ours.x, ours.y) == ("Set11, overlapping", [0.1, 0.25], [27.0, 30.0])
    assert (paper.name, paper.x) == (PAPER, [0.1, 0.2, 0.25])


def test_models_that_differ_in_rate_only_are_one_curve(tmp_path):
    for model, rate, psnr in (("own-r25", 0.25, 35.0), ("own-r10", 0.1, 30.0), ("x", 0.3, 1.0)):
        result = {"model": model, "data": "Set11", "protocol": "own geometry", "rate": rate,
                  "mean": {"psnr": psnr}}  # fmt: skip
        (tmp_path / f"{model}.json").write_text(json.dumps(result))
    own, other = read_figures(sorted(tmp_path.glob("*.json")), "rate")
    assert (own.x, own.y, other.y) == ([0.1, 0.25], [30.0, 35.0], [1.0])


@pytest.mark.parametrize(
    ("content", "against", "parts"),
    [
        ("[]", "rate", ["bad.json", "no result of"]),
        ('{"rows": [{"sets": 3}]}', "rate", ["bad.json", "no result of"]),
        ("{", "rate", ["bad.json", "no result of"]),
        ('{"model": "a"}', "density", ["bad.json", "table's JSON"]),
        ("{}", "size", ["rate or density", "size"]),
    ],
)
def test_what_is_no_result_is_refused(tmp_path, refused, content, against, parts):
    (tmp_path / "bad.json").write_text(content)
    with refused(*parts):
        read_figures([tmp_path / "bad.json"], against)


def test_one_rate_is_no_curve(tmp_path, refused):
    table = make_table(tmp_path / "t.json", "rates", [(0.25, 0.1, 30.0), (0.25, 0.2, 31.0)])
    with refused("all of one rate"):
        read_figures([table], "rate")
    assert read_figures([table], "density")


def test_a_broken_log_is_named_with_its_line(run, refused):
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("nonsense\n" + text)
    with refused("metrics.jsonl", "line 1"):
        read_training(run)
    with pytest.raises(TersenseError, match="cannot read"):
        read_training(run / "absent.jsonl")


@pytest.mark.parametrize("stride", [8, 4, 3, 2])
def test_coverage_is_what_the_operator_does_in_the_middle_of_an_image(rng, stride):
    phi = rng.integers(-1, 2, (5, 8, 8)).astype(np.int8)
    import torch

    magnitudes = SensingOperator(torch.from_numpy(np.abs(phi).astype(np.float32)), stride)
    size = 12 * stride
    y = torch.ones(5, 12, 12)
    used = magnitudes.adjoint(y, (size, size)).numpy()
    middle = slice(5 * stride, 6 * stride)
    np.testing.assert_array_equal(coverage(Patterns(phi, stride)), used[middle, middle])


def test_a_sheet_shows_every_entry_of_every_pattern(rng):
    phi = rng.integers(-1, 2, (7, 4, 4)).astype(np.int8)
    sheet = draw_pattern_sheet(phi, columns=3, scale=1)
    assert sheet.shape == (3 * 4 + 2 * 2, 3 * 4 + 2 * 2, 3)
    colors = {-1: (33, 92, 168), 0: (235, 235, 235), 1: (214, 96, 32)}
    fifth = sheet[6:10, 6:10]  # second row, second column
    for place in np.ndindex(4, 4):
        assert tuple(fifth[place]) == colors[int(phi[4][place])]


def test_measurements_are_drawn_around_middle_gray():
    values = np.array([[[0, 10, -10]], [[0, 0, 1000]]], np.int16)
    image = draw_measurements(values, columns=1)
    side = 64 // 3
    assert image.shape == (2 * side + 2, 3 * side, 3)
    assert image[0, ::side, 0].tolist() == [128, 255, 0]
    assert image[-1, ::side, 0].tolist() == [128, 128, 255]
    assert draw_measurements(np.stack([values] * 3), columns=1).shape == image.shape


def test_every_plot_command_leaves_an_image(tmp_path, run, capsys):
    table = make_table(tmp_path / "t.json", "sparsity", [(0.25, 0.05, 30), (0.25, 0.5, 29)], 27.0)
    photo = tmp_path / "photo.png"
    write_image(photo, data.astronaut()[:70, 100:205])
    commands = {
        "training.png": ["training", run, run],
        "psnr.svg": ["psnr", table, "--against", "density"],
        "patterns.png": ["patterns", "-m", "block-r25"],
        "coverage.png": ["coverage", "-m", "block-r25"],
        "readout.png": ["readout", photo, "-m", "paper-r25", "--against", "noise"],
        "strip.png": ["strip", photo, "-m", "paper-r25", "--crop", "10", "5", "50", "40"],
    }
    for name, arguments in commands.items():
        out = tmp_path / name
        assert main(["plot", *map(str, arguments), "-o", str(out)]) == 0
        assert out.stat().st_size > 1000
        assert str(out) in capsys.readouterr().out
    m = len(load("block-r25").patterns)
    assert read_image(tmp_path / "patterns.png").shape[0] == -(-m // 16) * (96 + 6) - 6


def test_a_worse_readout_is_a_lower_point(tmp_path):
    write_image(tmp_path / "photo.png", data.camera()[100:260, 100:260])
    for against, values in (("bits", (8, 3)), ("noise", (300, 3)), ("photons", (1, 0.01))):
        (curve,) = measure_readouts([load("paper-r25")], tmp_path, against, values)
        assert curve.name == "paper-r25, not told"
        assert curve.x == sorted(values)
        rising = against != "noise"
        assert (curve.y[1] > curve.y[0] + 1) == rising
    with pytest.raises(TersenseError, match="not 'gain'"):
        measure_readouts([load("paper-r25")], tmp_path, "gain")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["coverage", "-o", "x.gif"], ".png, .svg or .pdf"),
        (["patterns", "-o", "x.txt"], "ending in one of"),
        (["strip", "PHOTO", "--crop", "0", "0", "500", "9", "-o", "x.png"], "not inside"),
        (["training", "nowhere", "-o", "x.png"], "cannot read"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(tmp_path, capsys, arguments, part):
    write_image(tmp_path / "photo.png", data.astronaut()[:70, 100:205])
    given = [str(tmp_path / "photo.png") if a == "PHOTO" else a for a in arguments]
    given[-1] = str(tmp_path / given[-1])
    assert main(["plot", *given]) == 2
    message = capsys.readouterr().err
    assert part in message
    assert message.count("\n") == 1
