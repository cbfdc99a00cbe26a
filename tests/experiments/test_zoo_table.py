"""The table of models: its counts against hand-made ones, its figures against evaluate's."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from torch import nn

from cameras import adaptive_imager, random_camera
from tersense.cli.program import main
from tersense.evaluation.protocols import score_image
from tersense.experiments import zoo
from tersense.experiments.bench import costs, yardstick
from tersense.experiments.bench.yardstick import Yardstick
from tersense.experiments.zoo_report import PUBLISHED, panels, zoo_to_markdown
from tersense.io.files import write_json
from tersense.io.images import write_image
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import read_model, write_model

RATES = (0.01, 0.1, 0.25)  # of which the camera has two


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Build a camera that decides, one of a single rate, two sets of images; measure on one."""
    folder = tmp_path_factory.mktemp("desk")
    single = random_camera(8, 8, 8)
    single.name = "single"
    write_model(folder / "deciding.safetensors", adaptive_imager())
    write_model(folder / "single.safetensors", single)
    for name in ("Set11", "others"):
        (folder / name).mkdir()
        for image, pixels in (("a", data.camera()), ("b", data.brick())):
            write_image(folder / name / f"{image}.png", pixels[100:148, 100:148])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(zoo, "RATES", RATES)
        patch.setattr(costs, "THREADS", 1)
        patch.setattr(yardstick, "PHASES", 1)
        assert run() == 0
    return folder


@pytest.fixture
def desk(measured, tmp_path, monkeypatch):
    """Copy all of that, with the figures that are known already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "RATES", RATES)
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(*words):
    models = ["-m", "deciding.safetensors", "-m", "single.safetensors"]
    given = ["--test", "Set11", *models, "--quick", "--device", "cpu", "-o", "o"]
    return main(["reproduce", "zoo", *given, *words])


def read():
    return json.loads(Path("o/zoo.json").read_text())


def test_multiply_adds_of_convolutions_are_those_of_pencil_and_paper():
    network = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2))
    image = torch.zeros(1, 3, 21, 33)
    by_hand = 21 * 33 * 8 * 3 * 25 + 10 * 16 * 4 * 8 * 9
    assert costs.count_multiply_adds(lambda: network(image)) == by_hand


def test_the_yardstick_has_the_published_layers():
    """Its authors' file at 25 % holds 799,075 numbers: Φ, its scale, thresholds, and these."""
    of_phase = 9 * (32 + 6 * 32 * 32 + 32)
    counted = costs.describe_yardstick()
    assert counted["weights"] == 9 * (of_phase + 1) == 799_075 - 272 * 33**2 - 1 - 9
    # Φᵀ once, and Φ and Φᵀ in each of nine phases, 272 per pixel each.
    assert counted["multiply_adds"] == 9 * of_phase + 19 * 272
    assert Yardstick()(torch.randn(2, 272, 2, 1)).shape == (2, 1, 66, 33)


def test_an_unrolled_network_is_counted_by_its_layers():
    """Two phases of 8 channels at half size, 32 rows of 16×16 windows every 8 pixels."""
    imager = adaptive_imager()
    counted = costs.count_costs(imager, imager.rate)
    side, grid = 256, 32
    fine, coarse = (side // 2) ** 2, (side // 4) ** 2
    convolutions = sum(fine * 9 * (8 + memory + 3 * 8 + 4) * 8 for memory in (0, 8))
    # The entry of gates and what normalizes y are left to a margin of a few percent.
    convolutions += 2 * coarse * (4 * 9 + 2 * 4) * 64
    steps = 3 * grid**2 * 32 * 16**2 + 2 * 2 * grid**2 * 32**2
    assert counted["uniform"]["multiply_adds"] * side**2 == pytest.approx(
        convolutions + steps, rel=0.05
    )
    # Four images: from a part of the first round's rows, and after each of three rounds.
    assert 4 < counted["closed-3"]["multiply_adds"] / counted["uniform"]["multiply_adds"] < 5


def test_the_table_holds_what_evaluate_measures(desk, capsys):
    text, result = (desk / "o/zoo.md").read_text(), read()
    assert run() == 0
    assert (text, result) == ((desk / "o/zoo.md").read_text(), read())  # nothing was missing
    assert text in capsys.readouterr().out
    assert "A quick run" in text
    assert list(result["models"]) == ["adaptive", "single"]
    figures = result["models"]["adaptive"]["sets"]["Set11"]
    assert list(figures["uniform"]) == list(figures["closed-3"]) == ["0.1", "0.25"]
    assert list(figures["readouts"]) == list(zoo.READOUTS)
    imager = read_model("deciding.safetensors")
    images = [data.camera()[100:148, 100:148], data.brick()[100:148, 100:148]]
    closed = AdaptiveCamera(imager, 0.25, "closed", 3)
    for way, camera in (("uniform", imager.at_rate(0.25)), ("closed-3", closed)):
        scores = [score_image(camera, "", image) for image in images]
        assert figures[way]["0.25"]["psnr"] == pytest.approx(np.mean([s.psnr for s in scores]))
        assert figures[way]["0.25"]["ssim"] == pytest.approx(np.mean([s.ssim for s in scores]))
        assert f"{figures[way]['0.25']['psnr']:.2f} / " in text
    single = result["models"]["single"]
    assert list(single["sets"]["Set11"]["uniform"]) == ["0.125"]
    assert single["sets"]["Set11"].keys() == {"uniform"}  # it decides nothing and has no 25 %
    assert single["bytes"] == (desk / "single.safetensors").stat().st_size
    products = (8 * 24 + 24 * 64) / 64 + 8 * 9 / 32**2  # of the network, and Φ⋆1 of 3×3 windows
    assert single["costs"]["uniform"] == {"weights": 1992, "multiply_adds": products}
    with Image.open("o/zoo.png") as plot:
        assert plot.size[0] > 500


def test_published_systems_are_converted_by_the_speed_of_the_yardstick(desk):
    result = read()
    (panel,) = panels(result)
    for point, (psnr, billions) in zip(panel.converted, PUBLISHED.values(), strict=True):
        ratio = billions * 1e9 / 256**2 / result["yardstick"]["multiply_adds"]
        assert point.seconds == pytest.approx(ratio * panel.yardstick)
        assert point.psnr == psnr
    assert [point.label for point in panel.ours] == ["adaptive", "adaptive, 3 rounds"]
    other = result | {"sets": {"others": ""}}
    assert panels(other)[0].converted == []  # their figures are of Set11
    assert "converted" not in zoo_to_markdown(other)


def test_what_is_known_is_not_measured_again(desk, monkeypatch):
    """Stop in the middle, go on; then add a set. Each figure is measured once."""
    result = read()
    result["models"]["adaptive"]["sets"] = {}
    write_json("o/zoo.json", result)
    measured = []
    honest = zoo.score_images

    def scored(camera, images, readout=None):
        if len(measured) == 3:
            measured.append("stopped")
            raise KeyboardInterrupt
        measured.append((camera.name, camera.rate, type(camera), str(readout)))
        return honest(camera, images, readout)

    monkeypatch.setattr(zoo, "score_images", scored)
    assert run() == 130
    assert sum(map(len, read()["models"]["adaptive"]["sets"]["Set11"].values())) == 3
    assert run() == 0
    assert len(measured) - 1 == 4 + len(zoo.READOUTS)
    assert len(set(measured)) == len(measured)
    assert read()["models"]["adaptive"]["seconds"] == result["models"]["adaptive"]["seconds"]
    again = len(measured)
    assert run("--test", "others", "--only", "uniform") == 0
    assert len(measured) == again + 3
    assert set(read()["sets"]) == {"Set11", "others"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "speed"], "rows of zoo must be of uniform, closed-3, readouts, costs"),
        (["-m", "single.safetensors"], "two models are called single"),
        (["-m", "none"], "no model or model file is called none"),
        (["--test", "none"], "none does not exist"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_said_at_once(desk, capsys, arguments, said):
    shutil.rmtree("o")
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (desk / "o").exists()


def test_figures_of_other_files_images_and_machines_are_not_mixed(desk, capsys, monkeypatch):
    def refused(*parts):
        assert run() == 2
        told = capsys.readouterr().err
        assert all(part in told for part in (*parts, "choose another --out"))
        assert told.count("\n") == 1

    result = read()
    del result["models"]["single"]["seconds"]["cpu"]
    write_json("o/zoo.json", result)
    with monkeypatch.context() as patch:
        patch.setattr(zoo, "device_name", lambda device: "another one")
        refused("on another machine", "this is another one")
    write_model("deciding.safetensors", adaptive_imager(seed=1))
    refused("with another file of adaptive")
    write_image("Set11/c.png", data.moon()[:48, :48])
    refused("with other images in Set11")
    for broken, said in (
        ("[", "is damaged"),
        ('{"a": 1}', "is no result"),
        ('{"table": 1, "quick": 1, "sets": {}, "models": {"a": {}}}', "no table"),
    ):
        (desk / "o/zoo.json").write_text(broken)
        assert run() == 2
        assert said in capsys.readouterr().err


def test_the_table_needs_images(desk, capsys):
    assert main(["reproduce", "zoo", "-m", "single.safetensors"]) == 2
    assert "zoo needs --test DIR" in capsys.readouterr().err
