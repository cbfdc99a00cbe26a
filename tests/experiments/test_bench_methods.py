"""The comparison of methods: it measures what it says; the times themselves are nobody's test."""

import json
import sys

import numpy as np
import pytest
import torch
from skimage import data

from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.experiments.bench import methods as bench_methods
from tersense.io.images import write_image
from tersense.models.imager import Imager
from tersense.sensing.patterns import random_patterns

EVERY = ["paper-r25", "O-NL-SDA", "BP, gap 1e-3", "BP, gap 1e-4", "TV, gap 1e-3", "BP by spgl1"]


def test_bench_methods_writes_table_json_and_plot(tmp_path, capsys):
    out, plot = tmp_path / "methods.json", tmp_path / "methods.png"
    arguments = ["--quick", "--stride", "32", "--json", str(out), "--plot", str(plot)]
    assert main(["bench", "methods", *arguments]) == 0
    result = json.loads(out.read_text())
    text = capsys.readouterr().out
    blocks, overlapping = result["cases"]
    assert [m["name"] for m in blocks["methods"]] == EVERY
    assert [m["name"] for m in overlapping["methods"]] == [n for n in EVERY if "TV" not in n]
    assert (blocks["windows"], overlapping["windows"]) == (4, 1)
    for case in result["cases"]:
        ours = case["methods"][0]["seconds"]
        for method in case["methods"]:
            ratios = np.divide(method["seconds"], ours)
            assert method["ratio"]["median"] == pytest.approx(np.median(ratios))
            assert method["about"] in text
        figures = {method["name"]: method["psnr"] for method in case["methods"]}
        assert figures["O-NL-SDA"] is None  # it is not trained
        assert figures["BP, gap 1e-3"] == pytest.approx(figures["BP, gap 1e-4"], abs=0.1)
        assert figures["BP, gap 1e-3"] == pytest.approx(figures["BP by spgl1"], abs=0.3)
        assert figures["paper-r25"] > figures["BP, gap 1e-3"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_spgl1_agrees_with_our_solver_and_puts_windows_in_their_places():
    image = np.ascontiguousarray(data.camera()[100:116, 200:224])
    patterns = random_patterns(16, 8)
    theirs, ours = Imager.untrained(patterns, "spgl1"), Imager.untrained(patterns, "bp")
    y = ours.measure(torch.from_numpy(image)[None])
    estimates = [camera.capture(image)[0] for camera in (theirs, ours)]
    assert np.abs(estimates[0] - estimates[1]).mean() < 2  # a window out of place: above 20
    norms = [np.abs(_dct(e.reshape(2, 8, 3, 8).swapaxes(1, 2))).sum() for e in estimates]
    assert norms[0] == pytest.approx(norms[1], rel=5e-3)
    np.testing.assert_allclose(
        theirs.operator.forward(torch.from_numpy(estimates[0])), y[0], rtol=1e-3, atol=0.5
    )


def test_spgl1_is_given_whole_windows_only():
    camera = Imager.untrained(random_patterns(4, 8), "spgl1")
    with pytest.raises(TersenseError, match="whole windows of 8×8"):
        camera.reconstruct_batch(torch.zeros(1, 4, 2, 1), (12, 8))


def test_without_spgl1_the_others_are_compared_and_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "spgl1", None)
    methods, missing = bench_methods.list_methods()
    assert [m.name for m in methods] == EVERY[:-1]
    assert missing == ["spgl1"]


def test_the_compared_networks_have_the_sizes_of_the_tables():
    methods = {m.name: m.camera for m in bench_methods.list_methods()[0]}
    assert all(camera.rows == 256 and camera.geometry.window == 32 for camera in methods.values())
    shapes = [tuple(layer.weight.shape) for layer in methods["O-NL-SDA"].reconstructor.layers]
    assert shapes == [(1024, 256), (256, 1024), (1024, 256)]
    assert np.count_nonzero(methods["TV, gap 1e-3"].phi) == 256 * 51
    assert np.count_nonzero(methods["BP, gap 1e-3"].phi) > 256 * 600


def test_the_tolerance_reaches_the_solver():
    image = np.ascontiguousarray(data.camera()[100:132, 200:232])
    rough, exact = (Imager.untrained(random_patterns(64), "bp", tolerance=t) for t in (0.3, 1e-4))
    atoms = [np.abs(_dct(camera.capture(image)[0])).sum() for camera in (rough, exact)]
    assert atoms[1] < 0.999 * atoms[0]


def _dct(image):
    from scipy.fft import dctn

    return dctn(image.astype(np.float64), axes=(-2, -1), norm="ortho")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stride", "33"], "stride 33"),
        (["--count", "0"], "--count"),
        (["--plot", "p.xyz"], ".png, .svg or .pdf"),
        (["no-such-folder"], "no-such-folder"),
    ],
)
def test_impossible_requests_are_one_line(capsys, arguments, message):
    assert main(["bench", "methods", "--quick", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_images_that_are_too_small_are_refused(tmp_path, capsys):
    write_image(tmp_path / "small.png", data.camera()[:255, :300])
    assert main(["bench", "methods", str(tmp_path)]) == 2
    assert "300×255 pixels; at least 256×256" in capsys.readouterr().err
