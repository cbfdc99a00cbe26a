"""Both protocols against what they say they do."""

import json

import h5py
import numpy as np
import pytest
import torch
from skimage import data
from skimage.metrics import peak_signal_noise_ratio

import tersense
from tersense import Readout
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.evaluation.protocols import (
    evaluate_folder,
    reconstruct_overlapping,
    score_image,
    score_images,
)
from tersense.io.files import write_json
from tersense.io.images import write_image
from tersense.models.imager import Imager
from tersense.sensing.geometry import Geometry


@pytest.fixture(scope="module")
def imager():
    return tersense.load("paper-r25")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    write_image(folder / "camera.png", data.camera()[100:196, 200:330])
    write_image(folder / "coffee.png", data.coffee()[100:164, 100:164])
    return folder


def test_own_geometry_is_one_reconstruction_clipped_and_not_rounded(imager, folder):
    result = evaluate_folder(imager, folder)
    image = data.camera()[100:196, 200:330]
    estimate = imager.estimate(imager.sense(image)).clip(0, 255)
    expected = peak_signal_noise_ratio(image.astype(float), estimate, data_range=255)
    assert result["images"][0]["name"] == "camera"
    assert result["images"][0]["psnr"] == pytest.approx(expected, abs=1e-4)


def test_the_mean_is_a_mean_of_images(imager, folder):
    result = evaluate_folder(imager, folder)
    for figure in ("psnr", "ssim"):
        values = [image[figure] for image in result["images"]]
        assert result["mean"][figure] == pytest.approx(np.mean(values))


def test_threads_that_compare_change_neither_figures_nor_order(imager, rng):
    sides = rng.integers(12, 70, 20)
    images = [(str(n), rng.integers(0, 256, (s, s), np.uint8)) for n, s in enumerate(sides)]
    readout = Readout(noise=60.0, seed=1)
    together = score_images(imager, images, readout)
    for score, image in zip(together, images, strict=True):
        alone = score_image(imager, *image, readout=readout)
        figures = ("name", "psnr", "ssim", "measurements", "bits", "pixels")
        assert [getattr(score, f) for f in figures] == [getattr(alone, f) for f in figures]


def test_measurements_a_pixel_are_counted_not_assumed(imager, folder):
    result = evaluate_folder(imager, folder)
    windows = 3 * 5 + 2 * 2  # 96×130 needs a fifth, mostly empty column
    assert result["measurements_per_pixel"] == windows * 256 / (96 * 130 + 64 * 64)
    assert result["rate"] == 0.25


def average_slowly(imager, image, stride):
    """The paper's protocol with plain loops, border windows and all."""
    extended = np.pad(image, 32, mode="reflect")
    total, count = np.zeros(extended.shape), np.zeros(extended.shape)
    for row in range(0, extended.shape[0] - 31, stride):
        for column in range(0, extended.shape[1] - 31, stride):
            place = np.s_[row : row + 32, column : column + 32]
            total[place] += imager.estimate(imager.sense(extended[place]))
            count[place] += 1
    return (total / np.maximum(count, 1))[32:-32, 32:-32]


@pytest.mark.parametrize(("size", "stride"), [((40, 50), 8), ((33, 64), 16), ((20, 37), 7)])
def test_overlapping_equals_plain_loops(imager, size, stride):
    image = data.camera()[200 : 200 + size[0], 150 : 150 + size[1]]
    fast, taken = reconstruct_overlapping(imager, image, stride)
    # Windows may start anywhere in the mirrored border, but end inside it.
    expected = average_slowly(imager, image, stride)
    np.testing.assert_allclose(fast, expected, atol=2e-3)
    assert taken % 256 == 0


def test_overlapping_takes_many_more_measurements_and_says_so(imager, folder):
    result = evaluate_folder(imager, folder, stride=8)
    assert result["stride"] == 8
    assert result["rate"] == 0.25
    # m/S² = 4 per pixel, and more at the border
    assert 4 < result["measurements_per_pixel"] < 10
    assert result["mean"]["psnr"] > evaluate_folder(imager, folder)["mean"]["psnr"]


def test_a_lapped_camera_has_no_overlapping_protocol(folder):
    sensor = tersense.TernarySensor(window=8, stride=4)
    from tersense.reconstruction.base import build_reconstructor

    network = build_reconstructor("mlp", {"hidden": [8]}, Geometry(8, 4), 4)
    lapped = tersense.Imager("lapped", sensor.freeze(), torch.ones(4), 128.0, 64.0, network)
    with pytest.raises(TersenseError, match="lapped"):
        evaluate_folder(lapped, folder, stride=2)


@pytest.mark.parametrize("stride", [0, 33, -2])
def test_impossible_strides_are_refused(imager, folder, stride):
    with pytest.raises(TersenseError, match="stride"):
        evaluate_folder(imager, folder, stride=stride)


def test_json_has_the_agreed_keys(imager, folder, tmp_path):
    write_json(tmp_path / "result.json", evaluate_folder(imager, folder))
    result = json.loads((tmp_path / "result.json").read_text())
    agreed = {"model", "data", "window", "stride", "rate", "measurements_per_pixel", "mean"}
    assert agreed <= set(result)
    assert set(result["images"][0]) == {"name", "psnr", "ssim", "seconds"}
    assert set(result["mean"]) == {"psnr", "ssim"}


def write_patches(path, patches):
    with h5py.File(path, "w") as file:
        file["patches"] = patches
    return path


def test_patches_of_a_file_are_images_named_by_number(imager, tmp_path):
    windows = [data.camera()[top : top + 32, 200:232] for top in (0, 150, 300)]
    for number, window in enumerate(windows):
        write_image(tmp_path / f"{number}.png", window)
    flat = np.stack(windows).reshape(3, 1024)
    patches = evaluate_folder(imager, write_patches(tmp_path / "p.h5", flat))
    images = evaluate_folder(imager, tmp_path)
    assert patches["data"] == "p.h5"
    assert [image["name"] for image in patches["images"]] == ["0", "1", "2"]
    for one, other in zip(patches["images"], images["images"], strict=True):
        assert (one["psnr"], one["ssim"]) == pytest.approx((other["psnr"], other["ssim"]))
    assert patches["measurements_per_pixel"] == 0.25


@pytest.mark.parametrize("name", ["missing.h5", "broken.h5"])
def test_files_without_patches_are_refused(imager, tmp_path, refused, name):
    (tmp_path / "broken.h5").write_bytes(b"no HDF5")
    with refused(name):
        evaluate_folder(imager, tmp_path / name)


def test_the_spread_is_that_of_the_images(imager, tmp_path):
    crops = [data.camera()[n : n + 32, 2 * n : 2 * n + 32] for n in range(0, 210, 10)]  # 21 of them
    result = evaluate_folder(imager, write_patches(tmp_path / "p.h5", np.stack(crops)))
    values = sorted(image["psnr"] for image in result["images"])
    spread = result["spread"]["psnr"]
    assert (spread["lowest"], spread["median"], spread["highest"]) == pytest.approx(
        (values[0], values[10], values[-1])
    )
    assert sum(v <= spread["25 %"] for v in values) == 6  # the fewest that are a quarter of 21
    assert result["spread"]["exact"] == 0
    assert result["spread"]["mean_of_others"] == pytest.approx(result["mean"]["psnr"])


class Perfect:
    """A camera that gives some images back exactly."""

    name, rows, rate, geometry = "perfect", 1, 0.25, Geometry(32, 32)

    def capture(self, image, readout=None, depth=8):
        return image + (image.max() > 200) * 1.0, image.size // 4, 2 * image.size


def test_exact_images_are_counted_and_never_averaged_away(tmp_path):
    levels = np.array([0, 0, 250, 250, 0], np.uint8)
    patches = np.broadcast_to(levels[:, None], (5, 1024))
    path = write_patches(tmp_path / "p.h5", patches)
    result = evaluate_folder(Perfect(), path)
    assert result["mean"]["psnr"] is None
    assert [image["psnr"] is None for image in result["images"]] == [True, True, False, False, True]
    spread = result["spread"]
    assert spread["exact"] == 3
    assert spread["mean_of_others"] == pytest.approx(20 * np.log10(255))
    assert spread["psnr"]["lowest"] == pytest.approx(20 * np.log10(255))
    assert spread["psnr"]["median"] is None
    write_json(tmp_path / "r.json", result)
    assert json.loads((tmp_path / "r.json").read_text()) == result


def test_one_file_is_evaluated_too_in_gray_or_in_color(small_imager, tmp_path):
    write_image(tmp_path / "coffee.png", data.coffee()[:64, :48])
    gray = evaluate_folder(small_imager, tmp_path / "coffee.png")
    color = evaluate_folder(small_imager, tmp_path / "coffee.png", color=True)
    assert [image["name"] for image in gray["images"]] == ["coffee"]
    assert (gray["color"], color["color"]) == (False, True)
    original = data.coffee()[:64, :48]
    estimate = np.clip(small_imager.estimate(small_imager.sense(original)), 0, 255)
    assert color["mean"]["psnr"] == pytest.approx(psnr(estimate, original))
    assert color["measurements_per_pixel"] == gray["measurements_per_pixel"]
    with pytest.raises(TersenseError, match="overlapping protocol is for gray"):
        evaluate_folder(small_imager, tmp_path / "coffee.png", stride=4, color=True)


def test_what_does_not_exist_is_not_called_a_folder(small_imager, tmp_path, refused):
    with refused("none does not exist", "an image, a folder of images"):
        evaluate_folder(small_imager, tmp_path / "none")


def test_images_are_scored_by_sense_and_estimate_after_a_call_that_compiles(
    small_imager, tmp_path, monkeypatch
):
    """The first of the seconds must not hold what is done once, and no path is taken but sense."""
    sensed, honest = [], Imager.sense
    monkeypatch.setattr(
        Imager,
        "sense",
        lambda self, image, **k: (sensed.append(image.shape), honest(self, image, **k))[1],
    )
    write_image(tmp_path / "a.png", data.camera()[:24, :40])
    evaluate_folder(small_imager, tmp_path)
    assert sensed == [(8, 8), (24, 40)]


def test_a_readout_costs_quality_and_states_its_bits(imager, folder):
    exact = evaluate_folder(imager, folder)
    coarse = evaluate_folder(imager, folder, readout=Readout.covering(12_750, 6, noise=20.0))
    assert coarse["mean"]["psnr"] < exact["mean"]["psnr"] - 1
    per_pixel = coarse["measurements_per_pixel"]
    assert coarse["bits_per_pixel"] == pytest.approx(6 * per_pixel)
    assert exact["bits_per_pixel"] == pytest.approx(16 * per_pixel)
    assert exact["readout"] is None
    assert Readout.from_dict(coarse["readout"]) == Readout.covering(12_750, 6, noise=20.0)
    image = data.camera()[100:196, 200:330]
    y = imager.sense(image, readout=Readout.covering(12_750, 6, noise=20.0))
    again = psnr(imager.estimate(y).clip(0, 255), image)
    assert coarse["images"][0]["psnr"] == pytest.approx(again)


def test_overlapping_windows_are_read_out_exactly(imager, folder):
    with pytest.raises(TersenseError, match="overlapping protocol is for exact measurements"):
        evaluate_folder(imager, folder, stride=8, readout=Readout(noise=1.0))


@pytest.mark.parametrize(("model", "said"), [
    ("paper-r25", "told to paper-r25, which cannot use it: it believes every value"),
    ("matrix.npy", "the error is told to matrix\n"),
])  # fmt: skip
def test_evaluate_says_who_can_use_the_error(imager, folder, tmp_path, capsys, model, said):
    np.save(tmp_path / "matrix.npy", imager.phi[:64])
    model = str(tmp_path / model) if model.endswith(".npy") else model
    line = ["evaluate", str(folder / "camera.png"), "-m", model, "--noise", "20", "--bits", "8"]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert "bits per pixel" in printed
