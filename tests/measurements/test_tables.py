"""Tables of a real camera: whatever their order and calibration, they give the same image."""

import json
import subprocess

import numpy as np
import pytest
from skimage import data

import tersense
from cameras import random_camera
from tersense import Readout, read_measured
from tersense.cli.program import main
from tersense.evaluation.metrics import psnr
from tersense.export.base import export
from tersense.io.images import read_image, write_image
from tersense.measurements.measurements import MeasuredValues, Measurements
from tersense.sensing.bases import hadamard_patterns
from tersense.sensing.patterns import Patterns

SIZE = (21, 34)


@pytest.fixture
def camera(tmp_path):
    """A camera, an image, its measurements, and a function that writes table and manifest."""
    imager = random_camera(6, 8, 8)
    export("matrix", imager, tmp_path / "export")
    image = data.camera()[40 : 40 + SIZE[0], 60 : 60 + SIZE[1]]
    y = imager.sense(image).values

    def measured(table, suffix="npy", size=None, **entries):
        path = tmp_path / f"table.{suffix}"
        if suffix == "npy":
            np.save(path, table)
        else:
            path.write_text(table)
        manifest = json.loads((tmp_path / "export/manifest.json").read_text())
        (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"measured": entries}))
        return read_measured(path, tmp_path / "manifest.json", size)

    return imager, image, y, measured


def as_windows(y):
    """Return the table windows × rows of y (m, h, w)."""
    return y.reshape(len(y), -1).T


def test_the_c_program_and_this_package_give_the_same_images(tmp_path, capsys):
    imager = tersense.load("paper-r25")
    export("c", imager, tmp_path / "c")
    subprocess.run(["make", "-s", "encoder"], cwd=tmp_path / "c", check=True, timeout=300)
    (tmp_path / "tables").mkdir()
    images = {
        "camera": data.camera()[:100, :131],
        "moon": data.moon()[:64, :64],
        "coins": data.coins()[:33, :200],
    }
    for name, image in images.items():
        write_image(tmp_path / f"{name}.pgm", image)
        with (tmp_path / f"tables/{name}.csv").open("w") as table:
            command = [tmp_path / "c/encoder", tmp_path / f"{name}.pgm"]
            subprocess.run(command, stdout=table, check=True, timeout=60)
    manifest = str(tmp_path / "c/manifest.json")
    arguments = [str(tmp_path / "tables"), "--manifest", manifest, "-o", str(tmp_path / "again")]
    assert main(["reconstruct", *arguments]) == 0
    for name, image in images.items():
        y = imager.sense(image)
        measured = read_measured(tmp_path / f"tables/{name}.csv", tmp_path / "c")
        assert isinstance(measured, Measurements)
        assert measured.header == y.header
        np.testing.assert_array_equal(measured.values, y.values)
        again = read_image(tmp_path / f"again/{name}.png")
        np.testing.assert_array_equal(again, imager.reconstruct(y))


@pytest.mark.parametrize("camera_kind", ["array", "single"])
def test_readings_of_a_mirror_device_become_measurements(tmp_path, rng, camera_kind):
    imager, image = random_camera(5, 8, 4), data.camera()[:19, :27]
    export("patterns", imager, tmp_path / "dmd", camera=camera_kind, mirrors=(64, 64),
           image=(19, 27), scale=2, formats=["npy"])  # fmt: skip
    frames, plan = np.load(tmp_path / "dmd/frames.npy"), np.load(tmp_path / "dmd/plan.npz")
    top, left = json.loads((tmp_path / "dmd/plan.json").read_text())["origin"]
    scene = np.zeros((64, 64), int)
    scene[top : top + 38, left : left + 54] = image.repeat(2, axis=0).repeat(2, axis=1)
    detectors = plan["detectors"][:, 1].max() + 1
    readings = np.full((len(frames), detectors), 99.0)  # what is not connected reads anything
    for exposure, (group, _, _) in enumerate(plan["exposures"]):
        light = scene * frames[exposure]
        for s, detector, _, _, a, b, c, d in plan["detectors"]:
            if s == group:
                readings[exposure, detector] = light[a:c, b:d].sum()
    gain, offset = 2.0 ** rng.integers(-2, 3, detectors), rng.integers(0, 50, detectors)
    np.save(tmp_path / "readings.npy", readings * gain + offset)
    path = tmp_path / "dmd/manifest.json"
    calibration = {"gain": gain.tolist(), "offset": offset.tolist()}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"measured": calibration}))
    measured = read_measured(tmp_path / "readings.npy", path)
    np.testing.assert_array_equal(measured.values, imager.sense(image).values)


def test_an_array_of_y_needs_no_size_if_it_ends_with_whole_windows(camera):
    imager, _, _, measured = camera
    image = data.camera()[:24, :16]
    y = imager.sense(image)
    read = measured(y.values)
    assert read.header == y.header
    np.testing.assert_array_equal(read.values, y.values)


def test_color_is_an_array_of_three(camera):
    imager, _, _, measured = camera
    y = imager.sense(data.astronaut()[: SIZE[0], : SIZE[1]])
    read = measured(y.values, size=SIZE)
    assert read.header == y.header
    np.testing.assert_array_equal(imager.reconstruct(read), imager.reconstruct(y))


def test_orders_gain_and_offset_are_undone(camera, rng):
    imager, image, y, measured = camera
    rows, windows = rng.permutation(6), rng.permutation(15)
    gain, offset = np.array([2.0, 0.5, 4.0, 1.0, -8.0, 0.25]), np.arange(6)
    table = as_windows(y)[windows][:, rows] * gain + offset
    read = measured(table, size=SIZE, row_order=rows.tolist(), window_order=windows.tolist(),
                    gain=gain.tolist(), offset=offset.tolist())  # fmt: skip
    np.testing.assert_array_equal(read.values, y)
    np.testing.assert_array_equal(imager.reconstruct(read), imager.reconstruct(imager.sense(image)))


def test_windows_may_be_counted_down_first_and_one_number_calibrates_all(camera):
    _, _, y, measured = camera
    table = as_windows(y.transpose(0, 2, 1)) * 4 - 3
    entries = {"height": SIZE[0], "width": SIZE[1], "gain": 4, "offset": -3}
    np.testing.assert_array_equal(measured(table, column_major=True, **entries).values, y)


def test_what_is_not_in_the_table_is_missing(camera):
    imager, _, y, measured = camera
    table = as_windows(y)[2:, [4, 0]].astype(float)
    table[3, 1] = np.nan
    read = measured(table, size=SIZE, row_order=[4, 0], window_order=list(range(2, 15)),
                    missing_rows=[4])  # fmt: skip
    assert isinstance(read, MeasuredValues)
    there = ~np.isnan(read.values)
    expected = np.zeros((6, 15), bool)
    expected[0, 2:] = True
    expected[0, 5] = False
    np.testing.assert_array_equal(there.reshape(6, 15), expected)
    np.testing.assert_array_equal(read.values[there], y[there])
    assert read.missing == 1 - 12 / 90
    assert imager.reconstruct(read).shape == SIZE


def test_a_csv_file_tells_the_size_and_leaves_cells_empty(camera):
    _, _, y, measured = camera
    lines = [",".join(map(str, window)) for window in as_windows(y)]
    first, rest = lines[0].split(",", 1)
    lines[0] = "," + rest
    lines[1] = lines[1].rsplit(",", 1)[0] + ", "
    lines[2] = "NaN," + lines[2].split(",", 1)[1]
    read = measured("# height=21 width=34\n\n" + "\n".join(lines) + "\n", "csv")
    missing = [tuple(place) for place in np.argwhere(np.isnan(read.values))]
    assert missing == [(0, 0, 0), (0, 0, 2), (5, 0, 1)]
    assert first == str(y[0, 0, 0])
    np.testing.assert_array_equal(read.values[1:5], y[1:5])


def test_real_numbers_stay_real(camera, rng):
    imager, _, y, measured = camera
    noisy = as_windows(y) + rng.normal(0, 0.3, (15, 6))
    read = measured(noisy, size=SIZE)
    assert isinstance(read, MeasuredValues)
    np.testing.assert_array_equal(as_windows(read.values), noisy)
    exact = imager.estimate(imager.sense(data.camera()[40 : 40 + SIZE[0], 60 : 60 + SIZE[1]]))
    assert 0 < np.abs(imager.estimate(read) - exact).max() < 5


def test_noise_becomes_the_deviation_of_y_in_any_order(camera):
    _, _, y, measured = camera
    table = as_windows(y)[:, [3, 1]] * [-2.0, 4.0]
    read = measured(table, size=SIZE, row_order=[3, 1], gain=[-2, 4], noise=[6, 2])
    np.testing.assert_array_equal(read.values[[3, 1]], y[[3, 1]])
    np.testing.assert_array_equal(read.deviation[3], np.full((3, 5), 3.0))
    np.testing.assert_array_equal(read.deviation[1], np.full((3, 5), 0.5))
    read = measured(y * 2, size=SIZE, gain=2, noise=3)
    assert isinstance(read, MeasuredValues)  # whole numbers, but not exact ones
    np.testing.assert_array_equal(read.deviation, np.full(y.shape, 1.5))


def test_the_noise_of_two_readings_adds_up(tmp_path):
    imager = random_camera(2, 4, 4)
    export("patterns", imager, tmp_path / "dmd", mirrors=(24, 24), image=(8, 8), scale=3)
    path = tmp_path / "dmd/manifest.json"
    entries = {"gain": 2.0, "noise": [8.0, 6.0, 4.0, 2.0]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"measured": entries}))
    np.save(tmp_path / "readings.npy", np.zeros((4, 4)))
    read = read_measured(tmp_path / "readings.npy", path)
    alone = np.sqrt(2) * np.array([[4.0, 3.0], [2.0, 1.0]]) / 9
    np.testing.assert_allclose(read.deviation, np.broadcast_to(alone, (2, 2, 2)))


@pytest.mark.parametrize("size", [(64, 64), (50, 70)])
def test_an_estimate_that_is_told_the_noise_of_each_row_is_better(rng, size, monkeypatch):
    monkeypatch.setattr("tersense.models.imager.TILE_PIXELS", 40**2)  # several tiles
    camera = tersense.Imager.untrained(Patterns(hadamard_patterns(8, 32), 8), "linear")
    image = data.camera()[100 : 100 + size[0], 200 : 200 + size[1]]
    exact = camera.sense(image)
    deviation = np.where(np.arange(32) % 2, 400.0, 1.0)[:, None, None]
    values = exact.values + deviation * rng.normal(size=exact.values.shape)
    untold = camera.reconstruct(MeasuredValues(values, exact.header))
    told = camera.reconstruct(MeasuredValues(values, exact.header, deviation))
    assert psnr(told, image) > psnr(untold, image) + 3
    same = MeasuredValues(values, exact.header, np.broadcast_to(deviation, values.shape))
    np.testing.assert_array_equal(camera.reconstruct(same), told)


@pytest.mark.parametrize("deviation", [np.ones(7), np.array([-1.0]), np.array([np.nan])])
def test_deviations_that_cannot_be_are_refused(camera, deviation):
    imager, image, y, _ = camera
    with pytest.raises(ValueError, match="deviations must"):
        MeasuredValues(y.astype(float), imager.sense(image).header, deviation)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({}, ["size of the image is not known", "--size"]),
        ({"size": (40, 34)}, ["25 windows × 6 rows", "15 × 6"]),
        ({"size": SIZE, "row_order": [0, 0, 1, 2, 3, 4]}, ["row_order", "0 to 5"]),
        ({"size": SIZE, "row_order": [0, 1]}, ["15 windows × 2 rows"]),
        ({"size": SIZE, "window_order": [15]}, ["window_order", "0 to 14"]),
        ({"size": SIZE, "missing_rows": [6]}, ["missing_rows", "0 to 5"]),
        ({"size": SIZE, "gain": 0}, ["gain of 0"]),
        ({"size": SIZE, "gain": [1, 2]}, ["gain has 2 values", "6"]),
        ({"size": SIZE, "noise": -1}, ["measured.noise", "at least 0"]),
        ({"size": SIZE, "noise": [1, 2]}, ["noise has 2 values", "6"]),
        ({"size": SIZE, "gain": "two"}, ["measured.gain", "two"]),
        ({"size": SIZE, "gian": 2}, ["gian", "did you mean gain"]),
        ({"size": SIZE, "window_order": [1], "column_major": True}, ["leave one out"]),
    ],
)
def test_a_table_that_does_not_fit_is_refused(camera, refused, entries, said):
    _, _, y, measured = camera
    with refused("table.npy", *said):
        measured(as_windows(y), **entries)


def test_a_table_that_is_none_is_refused(camera, refused, tmp_path):
    _, _, y, measured = camera
    with refused("the other way round"):
        measured(as_windows(y).T, size=SIZE)
    with refused("(6, h, w)", "(7, 3, 5)"):
        measured(np.zeros((7, 3, 5)))
    with refused("window_order"):
        measured(y, size=SIZE, window_order=[1])
    with refused("table.npy", "numbers"):
        measured(np.array(["a", "b"]))
    with refused("table.npy", "infinite"):
        measured(as_windows(y) + np.inf, size=SIZE)
    with refused("table.npy"):
        measured(np.array([{}], dtype=object))
    with refused("table.csv"):
        measured("1,2\n3", "csv", size=SIZE)
    with refused("table.csv", "numbers"):
        measured("", "csv", size=SIZE)
    with refused(".npy, .csv or .rice"):
        measured("1", "txt")
    with refused("cannot read"):
        read_measured(tmp_path / "none.npy", tmp_path / "manifest.json")
    (tmp_path / "empty.npy").touch()
    with refused("empty.npy"):
        read_measured(tmp_path / "empty.npy", tmp_path / "manifest.json")


def test_a_table_needs_its_manifest_and_the_right_camera(camera, capsys, tmp_path):
    _, _, y, measured = camera
    measured(as_windows(y), size=SIZE)
    out = str(tmp_path / "out.png")
    assert main(["reconstruct", str(tmp_path / "table.npy"), "-o", out]) == 2
    assert "--manifest" in capsys.readouterr().err
    arguments = ["--manifest", str(tmp_path / "manifest.json"), "--size", "34x21", "-o", out]
    assert main(["reconstruct", str(tmp_path / "table.npy"), "-m", "paper-r25", *arguments]) == 2
    assert "use the model that sensed them" in capsys.readouterr().err


@pytest.mark.parametrize("converter", [
    {"step": 33}, {"steps": (11, 50, 33, 20, 90, 47)},
    {"steps": (11, 50, 33, 20, 90, 47), "offsets": (0, 3, -40, 1, 9, -5)},
], ids=str)  # fmt: skip
def test_codes_and_deep_pixels_are_read_as_what_they_are(tmp_path, rng, converter):
    imager, size = random_camera(6, 8, 4), (21, 34)
    exact = imager.sense(rng.integers(0, 4096, size).astype(np.uint16), depth=12)
    export("c", imager, tmp_path / "c", depth=12, bits=9, **converter)
    steps = tuple(map(float, converter.get("steps", ())))
    offsets = converter.get("offsets", ())
    y = exact.read_out(Readout(9, float(converter.get("step", 1)), steps=steps, offsets=offsets))
    np.save(tmp_path / "codes.npy", as_windows(y.values))
    read = read_measured(tmp_path / "codes.npy", tmp_path / "c/manifest.json", size)
    assert isinstance(read, Measurements)
    assert read.header == y.header
    np.testing.assert_array_equal(read.values, y.values)
    # What misses a value or has noise is told as sums, and their errors as those of both.
    path, codes = tmp_path / "c/manifest.json", as_windows(y.values).astype(float)
    unit = np.broadcast_to(y.header.readout.unit, y.values.shape)
    codes[3, 2] = np.nan
    np.save(tmp_path / "codes.npy", codes)
    for noise in (0.0, 0.5):
        content = json.loads(path.read_text()) | {"measured": {"noise": noise}}
        (tmp_path / "manifest.json").write_text(json.dumps(content))
        read = read_measured(tmp_path / "codes.npy", tmp_path / "manifest.json", size)
        assert isinstance(read, MeasuredValues)
        assert (read.header.depth, read.header.readout.exact) == (12, True)
        there = ~np.isnan(read.values)
        assert (~there).sum() == 1
        np.testing.assert_array_equal(read.values[there], y.header.readout.values(y.values)[there])
        deviation = np.broadcast_to(read.deviation, y.values.shape)
        expected = unit * (1 / 12 + noise**2) ** 0.5
        np.testing.assert_allclose(deviation[there], expected[there])
    assert imager.reconstruct(read).dtype == np.uint16


def test_sums_of_deep_pixels_are_exact(tmp_path, rng):
    imager, size = random_camera(6, 8, 4), (21, 34)
    export("c", imager, tmp_path / "whole", depth=12)
    y = imager.sense(rng.integers(0, 4096, size).astype(np.uint16), depth=12)
    np.save(tmp_path / "sums.npy", as_windows(y.values))
    read = read_measured(tmp_path / "sums.npy", tmp_path / "whole/manifest.json", size)
    assert read.header == y.header
    np.testing.assert_array_equal(read.values, y.values)


def test_steps_that_no_quantizer_has_are_refused(tmp_path, refused):
    imager, size = random_camera(6, 8, 4), (21, 34)
    export("c", imager, tmp_path / "c", bits=9)
    np.save(tmp_path / "codes.npy", as_windows(imager.sense(np.zeros(size, np.uint8)).values))
    content = json.loads((tmp_path / "c/manifest.json").read_text())
    for quantizer in ({"step": 0}, {"step": "big"}, [], {}, {"step": 1.5}, {"bits": 0, "step": 2},
                      {"bits": 9, "steps": [1, 2]}, {"bits": 9, "steps": 7},
                      {"bits": 9, "steps": [1] * 6, "offsets": [1, 2]},
                      {"bits": 9, "step": 2, "offsets": "all"}):  # fmt: skip
        content["details"]["quantizer"] = quantizer
        (tmp_path / "manifest.json").write_text(json.dumps(content))
        with refused("usable steps"):
            read_measured(tmp_path / "codes.npy", tmp_path / "manifest.json", size)
