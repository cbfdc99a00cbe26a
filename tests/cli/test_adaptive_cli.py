"""Adaptive sensing as a user meets it: sense, reconstruct, evaluate."""

import json

import numpy as np
import pytest
from skimage import data

from cameras import adaptive_imager, deciding_imager
from tersense.cli.program import main
from tersense.io.images import read_image, write_image
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import read_model, write_model
from tersense.models.zoo import read

COLOR = data.astronaut()[:57, 100:181]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model("model.safetensors", deciding_imager())
    write_model("plain.safetensors", adaptive_imager())
    write_image(tmp_path / "gray.png", COLOR[..., 1])
    write_image(tmp_path / "color.png", COLOR)
    return tmp_path


@pytest.mark.parametrize("image", ["gray", "color"])
@pytest.mark.parametrize("mode", ["closed", "open", "encoder"])
def test_sense_then_reconstruct_gives_the_image_of_the_capture(desk, capsys, mode, image):
    words = ["sense", f"{image}.png", "-m", "model.safetensors", "--adaptive", mode]
    assert main([*words, "--rate", "0.2", "-o", "y.tsm"]) == 0
    y, said = read("y.tsm", "model.safetensors"), capsys.readouterr().out
    assert y.per_pixel == pytest.approx(12 * 88 / (57 * 81))
    assert f"{y.per_pixel:.4g} and" in said
    assert f"{y.counts.min()} to {y.counts.max()} per window, 12.0 on average" in said
    assert main(["reconstruct", "y.tsm", "-m", "model.safetensors", "-o", "again.png"]) == 0
    camera = AdaptiveCamera(read_model("model.safetensors"), 0.2, mode)
    (capture,) = camera.captures(read_image(f"{image}.png"))
    apart = np.abs(read_image("again.png").astype(int) - capture.reconstruct())
    assert apart.max() <= 1
    np.testing.assert_array_equal(y.counts, capture.counts)


def test_maps_rounds_and_quality_can_be_chosen(desk, capsys):
    words = ["sense", "color.png", "-m", "model.safetensors", "--adaptive", "closed", "-o", "y.tsm"]
    assert main([*words, "--rate", "0.2", "--maps", "own", "--rounds", "2"]) == 0
    assert read("y.tsm", "model.safetensors").counts.shape == (3, 8, 11)
    assert main([*words, "--psnr", "70", "--rate", "0.25"]) == 0
    assert read("y.tsm", "model.safetensors").counts.mean() == 16
    assert main([*words, "--psnr", "5"]) == 0
    assert read("y.tsm", "model.safetensors").counts.mean() < 8


@pytest.mark.parametrize("mode", ["closed", "open", "encoder", "change", "oracle", "uniform"])
def test_evaluate_counts_measurements_and_tells_predictions(desk, capsys, mode):
    words = ["evaluate", "gray.png", "-m", "model.safetensors", "--adaptive", mode]
    assert main([*words, "--rate", "0.2", "--json", "r.json"]) == 0
    result, said = json.loads((desk / "r.json").read_text()), capsys.readouterr().out
    assert result["measurements_per_pixel"] == pytest.approx(12 * 88 / (57 * 81))
    assert result["adaptive"]["mode"] == mode
    assert f"adaptive: {mode}" in said
    assert ("prediction" in result) == (mode == "closed") == ("predicted PSNR is off by" in said)


def test_evaluate_lets_another_model_decide(desk, capsys):
    other = deciding_imager(seed=1)
    other.name = "other"
    write_model(desk / "other.safetensors", other)
    words = ["evaluate", "gray.png", "-m", "model.safetensors", "--adaptive", "closed"]
    words = [*words, "--rate", "0.2", "--rounds", "4", "--json", "r.json"]
    scores = []
    for more in ([], ["--decider", "other.safetensors"]):
        assert main([*words, *more]) == 0
        result = json.loads((desk / "r.json").read_text())
        assert result["measurements_per_pixel"] == pytest.approx(12 * 88 / (57 * 81))
        scores.append(result["mean"]["psnr"])
    assert result["adaptive"]["decider"] == "other"
    assert scores[0] != scores[1]
    assert "at most 4 rounds, decided by other" in capsys.readouterr().out
    words = ["evaluate", "gray.png", "-m", "model.safetensors", "--bpp", "2", "--json", "r.json"]
    assert main([*words, "--adaptive", "closed", "--decider", "other.safetensors"]) == 0
    assert "counts: closed, 3 rounds, decided by other" in capsys.readouterr().out


def test_evaluate_until_a_quality_is_predicted(desk, capsys):
    words = ["evaluate", "gray.png", "-m", "model.safetensors", "--adaptive", "closed"]
    assert main([*words, "--psnr", "5", "--rounds", "4", "--json", "r.json"]) == 0
    result, said = json.loads((desk / "r.json").read_text()), capsys.readouterr().out
    assert result["adaptive"] == {"mode": "closed", "rounds": 4, "psnr": 5, "own_maps": False}
    assert result["measurements_per_pixel"] < 0.1
    assert "at most 4 rounds, until 5 dB are predicted" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "3"], "say --adaptive, too"),
        (["--psnr", "30"], "say --adaptive, too"),
        (["--maps", "own"], "say --adaptive, too"),
        (["--adaptive", "closed"], "add --rate, as in --rate 0.1"),
        (["--adaptive", "open", "--rate", "0.2", "--rounds", "3"], "about --adaptive closed, not"),
        (["--adaptive", "closed", "--rate", "0.9"], "rate must lie between"),
        (["--adaptive", "closed", "--rate", "0.2", "--counts", "c.npy"], "decides the counts"),
        (["--adaptive", "open", "--rate", "0.2", "-m", "plain.safetensors"], "no decision"),
        (["--bpp", "2", "--plain"], "the size of a coded file; leave --plain out"),
        (["--adaptive", "closed", "--rate", "0.25", "-m", "paper-r25"], "cannot decide"),
    ],
    ids=str,
)
def test_mistakes_get_one_line(desk, capsys, arguments, said):
    words = ["sense", "gray.png", "-o", "y.tsm", "-m", "model.safetensors", *arguments]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (desk / "y.tsm").exists()


def test_the_paper_s_protocol_is_not_adaptive(desk, capsys):
    words = ["evaluate", "gray.png", "-m", "model.safetensors", "--adaptive", "uniform"]
    assert main([*words, "--rate", "0.2", "--stride", "4"]) == 2
    assert "leave it out with --adaptive" in capsys.readouterr().err
