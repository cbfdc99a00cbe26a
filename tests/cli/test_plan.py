"""A whole capture with a real camera, simulated mirror by mirror."""

import csv
import json

import numpy as np
import pytest
from PIL import Image
from skimage import data

from cameras import adaptive_imager
from tersense.cli.program import main
from tersense.io.images import read_image
from tersense.measurements.measurements import Measurements
from tersense.models.files import read_model, write_model

IMAGE = data.camera()[100:139, 120:177]
SCALE = 2


@pytest.fixture
def model(tmp_path):
    write_model(tmp_path / "adaptive.safetensors", adaptive_imager())
    return tmp_path / "adaptive.safetensors"


def read_csv(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def measure(folder, mirrors=(100, 140)):
    """Show every frame; each detector adds up the light of the mirrors in its field."""
    light = np.zeros(mirrors)
    upscaled = IMAGE.repeat(SCALE, 0).repeat(SCALE, 1)
    top, left = ((m - s) // 2 for m, s in zip(mirrors, upscaled.shape, strict=True))
    light[top : top + upscaled.shape[0], left : left + upscaled.shape[1]] = upscaled
    light += 1000 * (light == 0)  # what lies around the image must stay dark
    detectors = read_csv(folder / "detectors.csv")
    count = 1 + max(int(d["detector"]) for d in detectors)
    readings = []
    for exposure in read_csv(folder / "exposures.csv"):
        frame = np.asarray(Image.open(folder / exposure["frame"])).astype(bool)
        assert frame.shape == mirrors
        read = np.full(count, -7.0)  # of detectors that this set does not have
        for d in detectors:
            if d["set"] == exposure["set"]:
                field = (
                    slice(int(d["top"]), int(d["bottom"])),
                    slice(int(d["left"]), int(d["right"])),
                )
                read[int(d["detector"])] = (light * frame)[field].sum()
        readings.append(read)
    return np.array(readings)


def run(*arguments):
    assert main(["plan", *map(str, arguments)]) == 0


@pytest.mark.parametrize("camera", ["array", "single"])
@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_rounds_of_frames_and_readings_are_the_capture_of_python(tmp_path, model, camera, kind):
    run("--size", "57x39", "-m", model, "--rate", 0.2, "--rounds", 3, "-o", tmp_path / "0",
        "--camera", camera, "--mirrors", "140x100", "--scale", SCALE)  # fmt: skip
    imager = read_model(model)
    y, capture, exposures = imager.sense(IMAGE).values, imager.begin(IMAGE.shape, 0.2, 3), []
    number = 0
    while (request := capture.next()) is not None:
        folder, after = tmp_path / str(number), tmp_path / str(number + 1)
        places = np.argwhere(request.mask)
        listed = read_csv(folder / "measurements.csv")
        np.testing.assert_array_equal(
            [[int(p[k]) for k in ("row", "i", "j")] for p in listed], places
        )
        readings, table = measure(folder), tmp_path / f"readings.{kind}"
        exposures.append(len(readings))
        np.save(table, readings) if kind == "npy" else np.savetxt(table, readings, delimiter=",")
        run(folder, "--values", table, "-o", after)
        capture.add(y[request.mask])
        kept = Measurements.load(after / "measured.tsm")
        np.testing.assert_array_equal(kept.counts, capture.counts)
        np.testing.assert_array_equal(kept.values, capture.measurements().values)
        number += 1
    assert number == 3
    assert not (after / "png").exists()
    words = ["reconstruct", after / "measured.tsm", "-m", model, "-o", tmp_path / "x.png"]
    assert main(list(map(str, words))) == 0
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), capture.reconstruct())
    if camera == "single":
        assert sum(exposures) == 2 * capture.counts.sum()  # not one frame too many
    assert main(["plan", str(after), "--values", str(table), "-o", str(tmp_path / "no")]) == 2


def test_a_measurement_file_is_a_beginning_and_values_may_be_measurements(tmp_path, model, capsys):
    imager = read_model(model)
    imager.at_rate(0.1).sense(IMAGE).save(tmp_path / "uniform.tsm")
    run(tmp_path / "uniform.tsm", "-m", model, "--psnr", 60, "--rate", 0.3, "-o", tmp_path / "0")
    assert "predicted PSNR" in capsys.readouterr().out
    asked = read_csv(tmp_path / "0/measurements.csv")
    y = imager.sense(IMAGE).values
    values = [y[int(p["row"]), int(p["i"]), int(p["j"])] for p in asked]
    np.savetxt(tmp_path / "v.csv", values)
    run(tmp_path / "0", "--values", tmp_path / "v.csv", "-o", tmp_path / "1")
    kept = Measurements.load(tmp_path / "1/measured.tsm")
    assert kept.counts.min() >= imager.at_rate(0.1).rows
    there = np.arange(imager.rows)[:, None, None] < kept.counts
    np.testing.assert_array_equal(kept.values, np.where(there, y, 0))


def test_a_model_that_moved_is_remembered(tmp_path, model):
    run("--size", "57x39", "-m", model, "--rate", 0.2, "-o", tmp_path / "0")
    count = len(read_csv(tmp_path / "0/measurements.csv"))
    np.savetxt(tmp_path / "v.csv", np.linspace(0, 90, count))
    moved = model.rename(tmp_path / "moved.safetensors")
    run(tmp_path / "0", "--values", tmp_path / "v.csv", "-m", moved, "-o", tmp_path / "1")
    assert json.loads((tmp_path / "1/round.json").read_text())["model"] == str(moved)


def test_windows_without_measurements_are_planned_without_a_prediction(tmp_path, model, capsys):
    imager = read_model(model)
    counts = np.full(imager.geometry.grid(*IMAGE.shape), 8)
    counts[0] = 0
    imager.sense(IMAGE, counts=counts).save(tmp_path / "part.tsm")
    run(tmp_path / "part.tsm", "-m", model, "--rate", 0.3, "-o", tmp_path / "0")
    assert "predicted" not in capsys.readouterr().out


def test_noise_is_remembered(tmp_path, model):
    run("--size", "57x39", "-m", model, "--rate", 0.2, "--noise", 5, "-o", tmp_path / "0")
    count = len(read_csv(tmp_path / "0/measurements.csv"))
    np.savetxt(tmp_path / "v.csv", np.linspace(0, 90, count))
    run(tmp_path / "0", "--values", tmp_path / "v.csv", "-o", tmp_path / "1")
    assert Measurements.load(tmp_path / "1/measured.tsm").header.readout.noise == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "new"], "--size or with a measurement file"),
        (["--size", "40x30", "-o", "new"], "--rate, or a --psnr"),
        (["--size", "40x30", "--rate", "0.2", "--values", "v.csv", "-o", "new"], "got none"),
        (["0", "-o", "new"], "give them with --values"),
        (["0", "--values", "v.csv", "--rate", "0.2", "-o", "new"], "0 knows --rate already"),
        (["gone", "--values", "v.csv", "-o", "new"], "gone does not exist"),
        (["broken", "-o", "new"], "broken is not the folder of a round"),
        (["0", "--values", "v.csv", "--camera", "array", "-o", "new"], "0 knows --camera already"),
        (["0", "--values", "v.csv", "--scale", "1", "-o", "new"], "0 knows --scale already"),
        (["gray.tsm", "--rate", "0.5", "--noise", "3", "-o", "new"], "tells the noise of its"),
        (["0", "--values", "v.csv", "-o", "new"], "32 exposures × 12 detectors"),
        (["color.tsm", "--rate", "0.5", "-m", "adaptive.safetensors", "-o", "new"], "gray images"),
        (["broken", "--values", "v.csv", "-o", "new"], "broken is not the folder of a round"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_mistakes_get_one_line(tmp_path, model, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    run("--size", "57x39", "-m", model, "--rate", 0.2, "-o", "0")
    np.savetxt("v.csv", [[1, 2], [3, 4]], delimiter=",")
    read_model(model).sense(np.stack([IMAGE] * 3, -1)).save("color.tsm")
    read_model(model).at_rate(0.1).sense(IMAGE).save("gray.tsm")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/round.json").write_text(json.dumps({"model": 3}))
    capsys.readouterr()
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "new").exists()
