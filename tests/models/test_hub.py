"""Cameras in folders and on the hub. The hub is a folder here: no test touches the network."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest.mock import create_autospec

import huggingface_hub
import numpy as np
import pytest
import torch
from skimage import data

import tersense
from tersense.errors import install_hint
from tersense.evaluation.protocols import evaluate_folder
from tersense.io.images import write_image
from tersense.models import hub as hub_module
from tersense.models import measured
from tersense.models.files import write_model
from tersense.training.config import build_config

PICTURE = data.camera()[100:151, 200:270]


def card_of(folder):
    return (Path(folder) / "README.md").read_text(encoding="utf-8")


def blocks(card, language):
    return re.findall(rf"```{language}\n(.*?)```", card, re.DOTALL)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose repositories are folders; what huggingface_hub does not offer fails."""
    root = tmp_path / "hub"
    api = create_autospec(huggingface_hub.HfApi, instance=True)
    api.create_repo.side_effect = lambda *, repo_id, **_: f"https://hub.example/{repo_id}"

    def upload(*, repo_id, folder_path, **_):
        shutil.copytree(folder_path, root / repo_id)

    def download(repo_id, filename, **_):
        path = root / repo_id / filename
        if not path.exists():
            raise huggingface_hub.errors.LocalEntryNotFoundError(f"404: no\n {repo_id}")
        return str(path)

    api.upload_folder.side_effect = upload
    make_api = create_autospec(huggingface_hub.HfApi, return_value=api)
    monkeypatch.setattr(huggingface_hub, "HfApi", make_api)
    real = huggingface_hub.hf_hub_download
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", create_autospec(real, side_effect=download)
    )
    return root


def test_a_folder_holds_the_camera(small_imager, tmp_path):
    small_imager.save_pretrained(tmp_path / "a/camera")
    assert sorted(p.name for p in (tmp_path / "a/camera").iterdir()) == [
        "README.md",
        "model.safetensors",
    ]
    again = tersense.from_pretrained(tmp_path / "a/camera")
    assert isinstance(again, tersense.Imager)
    np.testing.assert_array_equal(again.phi, small_imager.phi)
    y = again.sense(PICTURE)
    np.testing.assert_allclose(again.estimate(y), small_imager.estimate(y), atol=0.5)
    np.testing.assert_array_equal(
        tersense.Imager.from_pretrained(tmp_path / "a/camera").reconstruct(y), again.reconstruct(y)
    )


def test_the_card_tells_geometry_figures_and_license(small_imager, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    write_image(images / "one.png", PICTURE)
    results = [evaluate_folder(small_imager, images, stride) for stride in (None, 4)]
    small_imager.save_pretrained(tmp_path / "camera", figures=results, license="mit")
    card = card_of(tmp_path / "camera")
    front = huggingface_hub.ModelCard(card).data
    assert (front.license, front.library_name) == ("mit", "tersense")
    assert front.pipeline_tag == "image-to-image"
    assert "16 of 8×8 pixels, every 8 (blocks)" in card
    assert small_imager.patterns.hash in card
    for result, option in zip(results, ("", " --stride 4"), strict=True):
        assert f"| {result['mean']['psnr']:.2f} | {result['mean']['ssim']:.4f} |" in card
        assert f"`tersense evaluate images -m FOLDER{option}`" in card


def test_figures_may_come_from_a_file_of_evaluate(small_imager, tmp_path):
    (tmp_path / "p").mkdir()
    write_image(tmp_path / "p/flat.png", np.full((16, 16), 7, np.uint8))
    result = evaluate_folder(small_imager, tmp_path / "p")
    result["mean"]["psnr"] = None  # came back exactly
    small_imager.save_pretrained(tmp_path / "c", figures=[json.loads(json.dumps(result))])
    assert "| ∞ |" in card_of(tmp_path / "c")


def test_the_cards_python_runs_where_the_card_lies(small_imager, tmp_path):
    small_imager.save_pretrained(tmp_path / "FOLDER")
    (code,) = blocks(card_of(tmp_path / "FOLDER"), "python")
    start = "import numpy as np; image = np.zeros((20, 30), np.uint8)\n"
    check = "\nassert again.shape == image.shape\n"
    subprocess.run([sys.executable, "-c", start + code + check], check=True, cwd=tmp_path)


@pytest.mark.parametrize("name", ["paper-r25", "block-r25"])
def test_the_cards_settings_are_a_configuration_without_the_makers_paths(name, tmp_path):
    imager = tersense.load(name)
    imager.save_pretrained(tmp_path)
    (settings,) = blocks(card_of(tmp_path), "toml")
    config = build_config(tomllib.loads(settings))
    assert config.sensing.rate == imager.patterns.rate
    assert config.reconstructor["name"] == imager.reconstructor.registered_name
    assert config.train.lr == imager.about["recipe"]["train"]["lr"]
    assert "/tmp" not in settings
    assert config.train.start == ""


def results_row(start):
    """Return the figures of the first row of docs/results.md that begins so."""
    page = Path(__file__).parents[2] / "docs/results.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return re.findall(r"\d+\.\d{2,}", next(line for line in lines if line.startswith(start)))


@pytest.mark.parametrize("name", measured.QUALITY)
def test_figures_of_built_in_models_are_those_of_the_results(name):
    for rate, text in measured.QUALITY[name].items():
        called = f"{name} --rate {rate:g}" if name in measured.UNIVERSAL else name
        assert results_row(f"| `{called}` | ")[-10:] == text.split()
    assert tersense.load(name).rate == pytest.approx(max(measured.QUALITY[name]), rel=0.03)


@pytest.mark.parametrize("name", measured.UNIVERSAL)
def test_figures_of_universal_networks_are_those_of_the_results(name):
    for images, text in measured.UNIVERSAL[name].items():
        row = results_row(f"| `{name}`, {images} | ")
        assert [row[3], *row[5:]] == text.split()


@pytest.mark.parametrize("name", measured.ADAPTIVE)
def test_figures_of_adaptive_sensing_are_those_of_the_results(name):
    adaptive = results_row(f"| ours, `{name}`, [adaptive](adaptive.md), five rounds | ")
    assert adaptive[-3:] == list(measured.ADAPTIVE[name].values())


def test_the_card_of_flex_tells_rates_readouts_and_adaptive_sensing(tmp_path, monkeypatch):
    monkeypatch.setattr(hub_module, "_figures", lambda *_: "")  # takes a while at every rate
    imager = tersense.load("flex")
    imager.name = "somebody/mine"  # it is known by what it is, not by its name
    card = card_of(imager.save_pretrained(tmp_path))
    assert "| 0.1 | 30.60 / 0.8955 | 28.04 / 0.7922 |" in card
    assert "| Set11 | 35.51 | 32.33 | 29.68 | 25.46 | 35.33 | 34.26 | 32.87 | 30.76 |" in card
    assert "32.49 at 0.1 (uniform: 30.60); 37.56 at 0.25 (uniform: 35.51)" in card
    (code,) = blocks(card, "python")
    assert "imager.at_rate(0.1)" in code


def test_a_compact_model_is_known_when_it_was_written_in_full(tmp_path):
    write_model(tmp_path / "own.safetensors", tersense.load("lapped"))
    again = tersense.load(tmp_path / "own.safetensors")
    assert measured.measured_figures(again) == measured.measured_figures(tersense.load("lapped"))
    assert "PSNR" in measured.measured_figures(again)


def test_a_model_that_was_changed_has_not_been_measured(small_imager):
    imager = tersense.load("block-r25")
    assert "35.82 / 0.9552" in measured.measured_figures(imager)
    with torch.no_grad():
        next(imager.reconstructor.parameters()).view(-1)[0] += 1
    assert measured.measured_figures(imager) == ""
    assert measured.measured_figures(tersense.load("flex").at_rate(0.1)) == ""
    assert measured.measured_figures(small_imager) == ""


def test_what_is_pushed_comes_back(small_imager, hub):
    address = small_imager.push_to_hub("somebody/camera", license="mit")
    assert address == "https://hub.example/somebody/camera"
    again = tersense.from_pretrained("somebody/camera")
    assert again.name == "somebody/camera"
    np.testing.assert_array_equal(again.phi, small_imager.phi)
    assert 'from_pretrained("somebody/camera")' in card_of(hub / "somebody/camera")


def test_a_folder_comes_before_the_hub(small_imager, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_imager.save_pretrained("somebody/camera")
    assert tersense.from_pretrained("somebody/camera").name == small_imager.name


def test_what_is_nowhere_is_refused_in_one_line(hub, refused, tmp_path):
    with refused("nobody/nothing", "no folder here", "404"):
        tersense.from_pretrained("nobody/nothing")
    with refused("not-there", "built in"):
        tersense.from_pretrained("not-there")
    with refused(tmp_path / "x"):
        tersense.from_pretrained(tmp_path / "x")


def test_an_upload_that_fails_is_told_in_one_line(small_imager, hub, refused):
    huggingface_hub.HfApi.return_value.create_repo.side_effect = OSError("no\nroute")
    with refused("somebody/camera", "no route"):
        small_imager.push_to_hub("somebody/camera")


def test_without_huggingface_hub_folders_work_and_the_rest_says_what_to_install(
    small_imager, tmp_path, monkeypatch, refused
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    small_imager.save_pretrained(tmp_path / "camera")
    tersense.from_pretrained(tmp_path / "camera")
    with refused(install_hint("hub")):
        small_imager.push_to_hub("somebody/camera")
    with refused(install_hint("hub")):
        tersense.from_pretrained("somebody/camera")
