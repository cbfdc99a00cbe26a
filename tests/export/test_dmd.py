"""A mirror device simulated from the exported frames and plan alone measures what sense does."""

import json

import numpy as np
import pytest
from PIL import Image
from skimage import data

from cameras import random_camera
from tersense.export.base import export
from tersense.measurements.exposures import Plan
from tersense.measurements.manifest import Manifest

GEOMETRIES = {
    "blocks": (6, 8, 8),
    "lapped": (3, 16, 8),
    "lapped four deep": (2, 8, 2),
    "window is no multiple of the stride": (4, 7, 3),
}
MIRRORS = (90, 113)


def read_frames(folder, form, plan):
    """Read all frames, (E, rows, columns) of 0 and 1, in one of the formats."""
    count, shape = plan["exposures"], MIRRORS
    if form == "npy":
        return np.load(folder / "frames.npy")
    if form == "png":
        paths = sorted((folder / "png").iterdir())
        assert all(Image.open(path).mode == "1" for path in paths)
        return np.stack([np.array(Image.open(path)) for path in paths])
    if form == "bits":
        row_bytes = -(-shape[1] // 8)
        packed = np.fromfile(folder / "frames.bits", np.uint8).reshape(count, shape[0], row_bytes)
        return np.unpackbits(packed, axis=2)[:, :, : shape[1]]
    bitmaps = [np.array(Image.open(path)) for path in sorted((folder / "bitmaps").iterdir())]
    bits = [
        bitmap[:, :, "RGB".index(name[0])] >> int(name[1]) & 1
        for bitmap in bitmaps
        for name in plan["bits of a bitmap"]
    ]
    assert not np.any(bits[count:])
    return np.stack(bits[:count])


def expose(folder, form, image, rng):
    """Simulate the device: return readings (E, detectors), NaN where there is no detector."""
    plan, tables = json.loads((folder / "plan.json").read_text()), np.load(folder / "plan.npz")
    scale, (top, left) = plan["plan"]["scale"], plan["origin"]
    scene = rng.integers(0, 256, MIRRORS)  # light falls beside the image too
    bright = np.kron(image, np.ones((scale, scale), int))
    scene[top : top + bright.shape[0], left : left + bright.shape[1]] = bright
    frames = read_frames(folder, form, plan)
    assert frames.shape == (plan["exposures"], *MIRRORS)
    readings = np.full((plan["exposures"], plan["detectors"]), np.nan)
    for exposure, (group, _, _) in enumerate(tables["exposures"]):
        light = scene * frames[exposure]
        for s, detector, _, _, first, begin, last, end in tables["detectors"]:
            if s == group:
                readings[exposure, detector] = light[first:last, begin:end].sum()
    return readings


def combine(folder, readings, shape):
    """Turn readings into y by the tables of the plan, as another program would."""
    plan, tables = json.loads((folder / "plan.json").read_text()), np.load(folder / "plan.npz")
    y = np.zeros(shape)
    for exposure, (group, row, sign) in enumerate(tables["exposures"]):
        for s, detector, i, j, *_ in tables["detectors"]:
            if s == group:
                y[row, i, j] += sign * readings[exposure, detector] / plan["plan"]["scale"] ** 2
    return y


@pytest.mark.parametrize("camera", ["array", "single"])
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
@pytest.mark.parametrize(("size", "scale"), [((16, 24), 3), ((19, 27), 2), ((5, 3), 1)])
def test_the_mirrors_measure_what_sense_does(tmp_path, rng, camera, geometry, size, scale):
    imager = random_camera(*geometry)
    folder = tmp_path / "frames"
    manifest, _ = export("patterns", imager, folder, camera=camera, mirrors=MIRRORS, image=size,
                         scale=scale, formats=["npy"])  # fmt: skip
    image = data.camera()[100 : 100 + size[0], 200 : 200 + size[1]]
    y = imager.sense(image).values
    readings = expose(folder, "npy", image, rng)
    np.testing.assert_array_equal(combine(folder, readings, y.shape), y)
    plan = Plan(**manifest.details["plan"])
    np.testing.assert_array_equal(plan.measurements(readings), y)


def test_every_format_shows_the_same_frames(tmp_path, rng):
    imager = random_camera(7, 8, 4)
    options = {"mirrors": MIRRORS, "image": (13, 22), "planes": "BRG"}
    forms = ["png", "bits", "bitmaps", "npy"]
    export("patterns", imager, tmp_path / "frames", formats=forms, **options)
    plan = json.loads((tmp_path / "frames/plan.json").read_text())
    assert plan["exposures"] == 2 * 7 * 4
    assert plan["bits of a bitmap"][:9] == ["B0", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "R0"]
    frames = {form: read_frames(tmp_path / "frames", form, plan) for form in forms}
    assert frames["npy"].any()
    for form in forms:
        np.testing.assert_array_equal(frames[form], frames["npy"])


@pytest.mark.parametrize("image", [(8, 8), (64, 64), (80, 112)])
def test_an_array_needs_two_frames_a_pattern_whatever_the_size_of_the_image(tmp_path, image):
    for geometry, sets in (((6, 8, 8), 1), ((6, 8, 4), 4), ((6, 8, 2), 16)):
        folder = tmp_path / f"sets-{sets}"
        export("patterns", random_camera(*geometry), folder, mirrors=MIRRORS, image=image,
               formats=["bits"])  # fmt: skip
        used = min(sets, -(-image[0] // geometry[2]) * -(-image[1] // geometry[2]))
        assert json.loads((folder / "plan.json").read_text())["exposures"] == 2 * 6 * used


def test_windows_of_a_set_do_not_overlap(tmp_path):
    export("patterns", random_camera(2, 7, 3), tmp_path / "f", mirrors=MIRRORS, image=(40, 50),
           scale=1)  # fmt: skip
    detectors = np.load(tmp_path / "f/plan.npz")["detectors"]
    for group in set(detectors[:, 0]):
        seen = np.zeros(MIRRORS, int)
        for top, left, bottom, right in detectors[detectors[:, 0] == group, 4:]:
            seen[top:bottom, left:right] += 1
        assert seen.max() == 1
    windows = [tuple(line) for line in detectors[:, 2:4]]
    assert len(windows) == len(set(windows)) == 14 * 17


def test_the_report_counts_the_lit_mirrors(tmp_path):
    _, facts = export("patterns", random_camera(300, 8, 4), tmp_path / "f", mirrors=MIRRORS,
                      image=(13, 22), scale=4, formats=["npy"])  # fmt: skip
    lit = np.load(tmp_path / "f/frames.npy").mean()
    assert (
        f"{lit * 90 * 113 / (13 * 22 * 16):.2%} of the image's, {lit:.2%} of all"
        in (facts["lit mirrors"])
    )
    assert facts["exposures"].startswith("2,400")
    assert "100 RGB bitmaps" in facts["controller"]
    assert "loaded 6 times" in facts["controller"]


def test_the_defaults_fill_the_device(tmp_path):
    export("patterns", random_camera(2, 8, 8), tmp_path / "array", mirrors=MIRRORS)
    export("patterns", random_camera(2, 8, 8), tmp_path / "single", mirrors=MIRRORS,
           camera="single")  # fmt: skip
    array, single = (
        Plan(**Manifest.read(tmp_path / name).details["plan"]) for name in ("array", "single")
    )
    assert (array.height, array.width, array.scale, array.origin) == (16, 24, 4, (13, 8))
    assert (single.height, single.width, single.scale, single.origin) == (8, 8, 11, (1, 12))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"camera": "triple"}, ["triple", "array, single"]),
        ({"image": (100, 10)}, ["10×100", "does not fit", "113×90"]),
        ({"image": (10, 10), "scale": 10}, ["10×10 mirrors", "does not fit"]),
        ({"scale": 20}, ["every 8 pixels", "smaller scale"]),
        ({"scale": -1}, ["scale"]),
        ({"formats": ["gif"]}, ["gif", "png, bits, npy, bitmaps"]),
        ({"formats": []}, ["nothing"]),
        ({"planes": "RGG"}, ["RGG"]),
        ({"camera": "single", "image": (90, 113), "mirrors": (900, 1130), "scale": 1},
         ["exposures", "100,000"]),
        ({"mirrors": (10**6, 10**6), "formats": ["npy"]}, ["GiB", "fewer formats"]),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused(tmp_path, refused, options, said):
    imager = random_camera(400, 8, 8)
    with refused(*said):
        export("patterns", imager, tmp_path / "f", **{"mirrors": MIRRORS, **options})
    assert not (tmp_path / "f").exists()


def test_readings_of_another_shape_are_refused(refused):
    plan = Plan("array", 4, 8, 8, 16, 16, 90, 113, 2)
    with refused("8 exposures × 4 detectors", "8 × 3"):
        plan.measurements(np.zeros((8, 3)))
