"""The page without a server, in a real browser: its files and images against the package."""

import functools
import http.server
import json
import os
import threading
from urllib.parse import urlsplit

import numpy as np
import onnx
import onnxruntime
import pytest
from filelock import FileLock
from PIL import Image
from playwright.sync_api import expect
from skimage import data

import tersense.export.onnx
import tersense.export.web
from cameras import deciding_imager, random_camera, short_flex
from readmes import check_readme, run_the_program_of_the_readme
from tersense.cli.program import main
from tersense.evaluation.metrics import psnr
from tersense.export.base import export
from tersense.export.onnx import model_inputs, reconstructor_model, sensor_model
from tersense.export.web import RUNTIME, describe_camera
from tersense.io.images import read_image
from tersense.measurements.manifest import Manifest
from tersense.measurements.measurements import Measurements
from tersense.measurements.readout import Readout
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.files import write_model

CLOSE = 0.01  # dB


@pytest.fixture(scope="module")
def imager():
    return short_flex()


@pytest.fixture(scope="module")
def network(imager, tmp_path_factory):
    """Return what gives the network as ONNX; torch takes long, so that workers share the file."""
    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "short-flex.onnx"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            onnx.save(reconstructor_model(imager), made)
    return lambda _: onnx.load(made)


@pytest.fixture(scope="module")
def folder(imager, network, tmp_path_factory):
    """The page as a user writes it."""
    model, folder = (tmp_path_factory.mktemp("web") / name for name in ("flex.safetensors", "page"))
    write_model(model, imager)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tersense.export.web, "reconstructor_model", network)
        assert main(["export", "web", "-m", str(model), "-o", str(folder)]) == 0
    check_readme(folder, Manifest.read(folder))
    return folder


def test_onnx_takes_counts_and_noise(imager, network, tmp_path, monkeypatch):
    monkeypatch.setattr(tersense.export.onnx, "reconstructor_model", network)
    manifest, _ = export("onnx", imager, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx/reconstructor.onnx")
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes == {
        "y": ["n", 512, "h", "w"],
        "inside": ["height", "width"],
        "counts": ["n", "h", "w"],
        "noise": [512],
    }
    image = data.astronaut()[:40, 100:170]
    y = imager.sense(image, bits=6, noise=30.0, counts=np.array([[512, 9, 100], [30, 0, 1]]))
    again = session.run(None, model_inputs(imager, y))[0]
    np.testing.assert_allclose(again.transpose(1, 2, 0), imager.estimate(y), atol=0.01)
    assert manifest.details["checked"]["largest_difference"] < 0.01
    run_the_program_of_the_readme(tmp_path / "onnx", check_readme(tmp_path / "onnx", manifest))


class Host(http.server.SimpleHTTPRequestHandler):
    """A static host; one that sends the headers which threads need, if asked to."""

    isolated = False

    def end_headers(self):
        if self.isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_):
        pass


class IsolatedHost(Host):
    isolated = True


def serve(folder, host):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(host, directory=folder)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/"


@pytest.fixture(scope="module")
def address(folder):
    server, address = serve(folder, Host)
    yield address
    server.shutdown()


@pytest.fixture(scope="module")
def opened(browser, address):
    """A page that nothing goes wrong on, and from which no request goes elsewhere."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text))
    page.goto(address)
    expect(page.locator("#percent")).to_have_text("10 %")
    expect(page.locator("#figures p")).to_have_text("No result. Pick or upload an image.")
    assert not [url for url in asked if "onnx" in url or "ort" in urlsplit(url).path]  # not yet
    yield page, asked
    assert {urlsplit(url).hostname for url in asked if not url.startswith("blob:")} == {"127.0.0.1"}
    assert not wrong
    page.close()


@pytest.fixture
def page(opened):
    """The same page on a laptop, everything as it was chosen at first."""
    page, _ = opened
    page.set_viewport_size({"width": 1366, "height": 768})
    page.evaluate("document.querySelector('#choices').reset()")
    return page


def upload(page, folder, pixels):
    Image.fromarray(pixels).save(folder / "odd photo.png")
    page.locator("#file").set_input_files(folder / "odd photo.png")
    size = f"{pixels.shape[1]}×{pixels.shape[0]}"
    expect(page.locator("#figures")).to_contain_text(size)


def choose(page, name, value):
    page.locator(f"input[name={name}][value='{value}']").check(force=True)


def choose_rate(page, percent):
    page.locator("#rate").fill(str(percent))


def results(page, folder):
    """Wait for an image, download what there is, and read it as the CLI does."""
    expect(page.locator("#png")).to_be_enabled()
    for name in ("tsm", "png"):
        with page.expect_download() as download:
            page.locator(f"#{name}").click()
        assert download.value.suggested_filename.startswith("odd photo")
        download.value.save_as(folder / f"page.{name}")
    return Measurements.load(folder / "page.tsm"), read_image(folder / "page.png")


def check(page, folder, imager, image, expected):
    """Compare measurements bit for bit, and images by their PSNR."""
    y, again = results(page, folder)
    np.testing.assert_array_equal(y.values, expected.values)
    assert y.header == expected.header
    assert (y.counts is None) == (expected.counts is None)
    if expected.counts is None:
        assert (folder / "page.tsm").read_bytes() == expected.to_bytes()
    else:
        np.testing.assert_array_equal(y.counts, expected.counts)
    own = imager.reconstruct(expected)
    assert abs(psnr(again, image) - psnr(own, image)) <= CLOSE
    assert np.abs(again.astype(int) - own).max() <= 1  # weights of 16 bits, then rounding
    assert page.locator("#figures dd").first.inner_text() == f"{psnr(again, image):.2f} dB"
    return y


def test_a_color_image_of_odd_size_in_every_mode(opened, page, imager, tmp_path):
    image = data.coffee()[100:181, 200:299]
    upload(page, tmp_path, image)
    for mode, rate, bits in [
        ("uniform", 10, 0),
        ("uniform", 25, 6),
        ("open", 25, 0),
        ("encoder", 3, 10),
    ]:
        choose(page, "mode", mode)
        choose(page, "bits", bits)
        choose_rate(page, rate)
        readout = Readout.ranging(bits or None)
        camera = imager.at_rate(rate / 100)
        if mode == "uniform":
            expected = camera.sense(image, readout=readout)
        else:
            expected = AdaptiveCamera(imager, rate / 100, mode).sense(image, readout)
        check(page, tmp_path, imager, image, expected)
    expect(page.locator("#cards")).to_contain_text("WebAssembly, 1 thread (this host allows one)")
    assert any("reconstructor.onnx" in url for url in opened[1])  # the worker's requests are seen


def test_a_wide_gray_image_is_cut_into_tiles_whose_seams_do_not_show(page, imager, tmp_path):
    image = data.camera()[200:233, :450]  # 15 windows: two tiles
    upload(page, tmp_path, image)
    check(page, tmp_path, imager, image, imager.at_rate(0.1).sense(image))


def test_noise_is_that_of_the_file_and_the_network_is_told(page, imager, tmp_path):
    image = data.camera()[100:164, 100:228]
    upload(page, tmp_path, image)
    choose(page, "noise", 100)
    y, again = results(page, tmp_path)
    assert y.header.readout == Readout(noise=100.0)
    errors = y.values - imager.at_rate(0.1).sense(image).values
    assert abs(errors.mean()) < 15
    assert 90 < errors.std() < 110
    assert abs(psnr(again, image) - psnr(imager.reconstruct(y), image)) <= CLOSE


def test_a_sample_is_seen_on_a_laptop_without_scrolling(page):
    page.locator("summary").click()
    choose(page, "colors", "gray")
    page.locator("summary").click()
    page.locator("[data-sample]").nth(1).click()
    expect(page.locator("#png")).to_be_enabled()
    assert page.locator("#figures dt").all_inner_texts() == [
        "PSNR",
        "SSIM",
        "Measurements per pixel",
    ]
    for part in ("#figures", "#compare", "#tsm", "#png"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    seen = [page.locator("#right").evaluate("canvas => canvas.toDataURL()")]
    for view, ticks in (("error", "0 16 32 48 64"), ("counts", "51 72 102 144 204")):
        choose(page, "view", view)
        assert page.locator("#bar li").all_inner_texts() == ticks.split()
        seen.append(page.locator("#right").evaluate("canvas => canvas.toDataURL()"))
    assert len(set(seen)) == 3
    page.locator("#divider").focus()
    page.keyboard.press("Home")
    assert page.locator("#compare").evaluate("e => e.style.getPropertyValue('--at')") == "0%"
    assert page.locator("#png").is_enabled()  # nothing is measured again for that


def test_a_bad_file_gives_a_message_and_nothing_of_the_image_before(page, tmp_path):
    upload(page, tmp_path, data.camera()[:40, :50])
    expect(page.locator("#png")).to_be_enabled()
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing of the kind")
    page.locator("#file").set_input_files(tmp_path / "broken.png")
    expect(page.locator("#failed")).to_contain_text("broken.png is not an image")
    for part in ("#shown", "#sheets", "#progress", "#figures dd", "#cards dd"):
        expect(page.locator(part).first).to_be_hidden()
    upload(page, tmp_path, data.camera()[:40, :50])
    expect(page.locator("#failed")).to_be_hidden()


def test_no_part_sticks_out_on_a_phone(page, tmp_path):
    page.set_viewport_size({"width": 375, "height": 812})
    upload(page, tmp_path, data.camera()[:40, :50])
    expect(page.locator("#png")).to_be_enabled()
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375


def test_threads_share_the_work_where_the_page_is_isolated(browser, folder, imager, tmp_path):
    server, address = serve(folder, IsolatedHost)
    page = browser.new_page()
    page.goto(address)
    expect(page.locator("#percent")).to_have_text("10 %")
    image = data.camera()[100:164, 180:244]  # in flat sky 0.02 gray levels are 0.02 dB
    upload(page, tmp_path, image)
    check(page, tmp_path, imager, image, imager.at_rate(0.1).sense(image))
    cores = page.evaluate("navigator.hardwareConcurrency")
    if cores > 1:
        expect(page.locator("#cards")).to_contain_text(f"WebAssembly, {min(8, cores)} threads")
    page.close()
    server.shutdown()


def test_decisions_are_those_of_python_whatever_the_weights(page, rng):
    """Random weights, sums from nothing to the largest, budgets from the least to all rows."""
    decide = """async ([mode, ...values]) => (await import('./decision.js'))[mode](...values)"""
    for seed in range(12):
        camera = deciding_imager(seed)
        decision, rows = camera.camera.decision, camera.rows
        weights = describe_camera(camera)["decision"]
        grid = (int(rng.integers(1, 5)), int(rng.integers(1, 6)))
        y = (rng.normal(0, 10 ** rng.uniform(0, 4), (rows, *grid))).astype(np.int64)
        mean = int(rng.integers(weights["levels"][0], rows + 1))
        for mode, rule in (("openLoop", decision.open_loop), ("decide", decision.decide)):
            budget = mean * grid[0] * grid[1]
            values = [mode, weights, y.reshape(-1).tolist(), grid, budget]
            assert page.evaluate(decide, values) == rule(y, budget).reshape(-1).tolist()


def test_models_that_the_page_cannot_show_are_refused(tmp_path, refused, capsys):
    write_model(tmp_path / "lapped.safetensors", random_camera(5, 16, 8))
    out = str(tmp_path / "page")
    assert main(["export", "web", "-m", str(tmp_path / "lapped.safetensors"), "-o", out]) == 2
    assert "windows side by side" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_weights_that_16_bits_cannot_hold_are_refused(imager, tmp_path, refused, monkeypatch):
    model = sensor_model(random_camera(9, 8, 8).patterns)
    monkeypatch.setattr(tersense.export.web, "reconstructor_model", lambda imager: model)
    monkeypatch.setattr(tersense.export.web, "_compare", lambda *_: float("nan"))
    with refused("16 bits must not cost more", "nothing was exported"):
        export("web", imager, tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_the_license_of_the_runtime_goes_with_it(folder):
    assert "Microsoft" in (folder / "ort/LICENSE").read_text()
    said = json.loads((folder / "ort/package.json").read_text())
    assert (said["name"], said["version"], said["license"]) == (
        RUNTIME.name,
        RUNTIME.version,
        "MIT",
    )
