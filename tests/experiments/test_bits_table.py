"""The table of bits: our files and those of image codecs, of the same images."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from skimage import data
from skimage.metrics import peak_signal_noise_ratio

from cameras import deciding_imager
from tersense.cli.program import main
from tersense.experiments import bits
from tersense.io.images import write_image
from tersense.models.files import write_model


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bits, "SIZES", (1.0, 1.5))
    write_model("camera.safetensors", deciding_imager())
    (tmp_path / "photos").mkdir()
    write_image(tmp_path / "photos/a.png", data.camera()[100:180, 100:196])
    write_image(tmp_path / "photos/b.png", data.astronaut()[100:180, 100:196])
    return tmp_path


def test_methods_are_measured_in_gray_and_in_color(desk, capsys):
    chosen = ["--only", "encoder", "--only", "jpeg", "--only", "jpeg2000"]
    words = ["reproduce", "bits", "--test", "photos", "-m", "camera.safetensors", "-o", "o"]
    assert main([*words, *chosen]) == 0
    text = (desk / "o/bits.md").read_text()
    assert text in capsys.readouterr().out
    assert "## photos, color, 1 images" in text
    rows = json.loads((desk / "o/bits.json").read_text())["rows"]
    assert [row["set"] for row in rows] == ["photos", "photos, color"]
    for row in rows:
        own, jpeg, wavelets = row["methods"].values()
        assert list(row["methods"]) == ["adaptive, encoder", "jpeg", "jpeg2000"]
        for size, point in zip((1.0, 1.5), own, strict=True):
            assert 0.9 * size < point[0] <= size
        assert wavelets[1][1] > jpeg[1][1]  # as everybody knows
    with Image.open(desk / "o/bits.png") as plot:
        assert plot.size[0] > 500


def test_a_codec_is_what_pillow_writes(desk):
    """Between two qualities, what lies between them."""
    image = data.camera()[100:180, 100:196]
    points = []
    for quality in (50, 55):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality, optimize=True)
        close = peak_signal_noise_ratio(image, np.asarray(Image.open(file)))
        points.append((8 * len(file.getvalue()) / image.size, close))
    (low, worse), (high, better) = points
    curve = sorted(
        bits._encode(bits.CODECS["jpeg"], image, options) for options in bits.CODECS["jpeg"].options
    )
    found = bits._between(curve, (low * high) ** 0.5)
    assert found.psnr == pytest.approx((worse + better) / 2)
    assert bits._between(curve, 1e-3) is None
    assert bits._between(curve, 100.0) == curve[-1]


def test_an_image_that_comes_back_exactly_is_no_measure_of_a_codec():
    """As a JPEG may that is decoded and coded again with the same tables."""
    image, jpeg = np.full((80, 96), 128, np.uint8), bits.CODECS["jpeg"]
    assert np.isinf(bits._encode(jpeg, image, {"quality": 75}).psnr)
    assert bits._codec_curve(jpeg, [image]) == [None] * len(bits.SIZES)


def test_unknown_rows_are_told(desk, capsys):
    assert main(["reproduce", "bits", "--test", "photos", "--only", "png"]) == 2
    assert "rows of bits must be of encoder, refined, open, closed, jpeg" in capsys.readouterr().err
