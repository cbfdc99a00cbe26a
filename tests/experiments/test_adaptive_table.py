"""The table of adaptive sensing: what evaluate measures, and the worst image of each way."""

import json

import numpy as np
import pytest
from skimage import data

from cameras import adaptive_imager, deciding_imager
from tersense.cli.program import main
from tersense.evaluation.protocols import Score, score_image
from tersense.experiments import adaptive
from tersense.io.images import write_image
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import read_model, write_model


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(adaptive, "RATES", (0.1, 0.2))
    write_model("good.safetensors", deciding_imager())
    write_model("plain.safetensors", adaptive_imager())
    (tmp_path / "pictures").mkdir()
    for name, image in (("a", data.camera()), ("b", data.moon()), ("c", data.brick())):
        write_image(tmp_path / f"pictures/{name}.png", image[100:164, 100:148])
    return tmp_path


def test_every_way_is_measured_and_the_worst_image_told(desk, capsys):
    words = ["reproduce", "adaptive", "--test", "pictures", "-m", "good.safetensors", "-o", "o"]
    assert main([*words, "--quick"]) == 0
    text = (desk / "o/adaptive.md").read_text()
    assert text in capsys.readouterr().out
    assert "A quick run" in text
    result = json.loads((desk / "o/adaptive.json").read_text())
    assert [row["rate"] for row in result["rows"]] == [0.1, 0.2]
    row = result["rows"][1]
    assert list(row["ways"]) == [way.name for way in adaptive.WAYS]
    uniform = np.array([image["psnr"] for image in row["ways"]["uniform"]["images"]])
    assert len(uniform) == 2
    for name, figures in row["ways"].items():
        psnr = np.array([image["psnr"] for image in figures["images"]])
        assert figures["worst"] == pytest.approx((psnr - uniform).min())
        assert figures["measurements_per_pixel"] == pytest.approx(12 * 36 / 48**2)
        shown = f"{psnr.mean():.2f}"
        assert (shown if name == "uniform" else f"{shown} ({figures['worst']:+.2f})") in text
    camera = AdaptiveCamera(read_model("good.safetensors"), 0.2, "closed", 5)
    score = score_image(camera, "a", data.camera()[100:148, 100:148])
    assert row["ways"]["closed-5"]["images"][0]["psnr"] == pytest.approx(score.psnr, abs=1e-3)


def test_another_model_decides_for_all(desk, capsys):
    other = deciding_imager(seed=1)
    other.name = "other"
    write_model("other.safetensors", other)
    words = ["reproduce", "adaptive", "--test", "pictures", "-m", "good.safetensors", "-o", "o"]
    assert main([*words, "--quick", "--decider", "other.safetensors", "--only", "closed-10"]) == 0
    row = json.loads((desk / "o/adaptive.json").read_text())["rows"][1]
    assert row["model"] == "adaptive, decided by other"
    camera = AdaptiveCamera(read_model("good.safetensors"), 0.2, "closed", 10, decider=other)
    score = score_image(camera, "a", data.camera()[100:148, 100:148])
    assert row["ways"]["closed-10"]["images"][0]["psnr"] == pytest.approx(score.psnr, abs=1e-3)
    assert main(["reproduce", "zoo", "--test", "pictures", "--decider", "other.safetensors"]) == 2
    assert "tables adaptive and bits, not zoo" in capsys.readouterr().err


def test_images_that_come_back_exactly_have_no_worst(monkeypatch):
    scores = {"uniform": [np.inf, 30.0], "open": [np.inf, 29.0], "closed-2": [np.inf, 31.0]}

    def score_images(camera, images):
        return [Score("a", psnr, 1.0, 0.0, 1, 8, 64) for psnr in scores[camera]]

    monkeypatch.setattr(adaptive, "score_images", score_images)
    monkeypatch.setattr(adaptive, "summarize", lambda *_: {})
    monkeypatch.setattr(adaptive, "read_set", lambda *_: [])
    cameras = {name: Named(name) for name in scores}
    found = adaptive._measure(cameras, "set", [], quick=True)
    assert {name: figures["worst"] for name, figures in found.items()} == {
        "uniform": 0, "open": -1, "closed-2": 0
    }  # fmt: skip


class Named(str):
    """A camera that is its name."""

    def describe(self):
        return {}


def test_chosen_ways_are_measured_on_whole_images(desk):
    words = ["reproduce", "adaptive", "--test", "pictures", "-m", "plain.safetensors", "-o", "o"]
    assert main([*words, "--only", "closed-2"]) == 0
    result = json.loads((desk / "o/adaptive.json").read_text())
    assert list(result["rows"][0]["ways"]) == ["uniform", "closed-2"]
    assert len(result["rows"][0]["ways"]["uniform"]["images"]) == 3
    assert "A quick run" not in (desk / "o/adaptive.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "plain.safetensors"], "no decision for sensors"),
        (["-m", "good.safetensors", "--only", "closed-4"], "got 'closed-4'"),
        (["-m", "good.safetensors", "--test", "pictures"], "the same name: pictures, pictures"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_said_at_once(desk, capsys, arguments, said):
    assert main(["reproduce", "adaptive", "--test", "pictures", "-o", "o", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (desk / "o").exists()
