"""The web page: the functions behind it, and the page itself in a real browser."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from skimage import data

import tersense.app.studio
import tersense.app.uploads
from cameras import adaptive_imager, random_camera
from tersense.app.state import capture, describe_comparison, explain, stock_shelf
from tersense.app.studio import Studio
from tersense.app.uploads import read_upload
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.evaluation.metrics import psnr
from tersense.io.images import read_image, write_image
from tersense.io.webpage import SAMPLES
from tersense.measurements.measurements import Measurements
from tersense.models.adaptive import AdaptiveCamera
from tersense.models.capture import Capture
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.sensing.patterns import Patterns

# Every value and image of a result.
SHOWN = (
    "#figures dd, #cards dd, #again img, #wrong img, #patterns img, #measured img, "
    "#uniform img, #adaptive img, #counts img, #worth dd"
)


@pytest.fixture
def studio(tmp_path, small_imager):
    results = tmp_path / "results"
    results.mkdir()
    studio = Studio({"small": {"25 %": small_imager}}, results, max_pixels=10_000)
    yield studio
    studio.close()


def test_models_that_differ_in_rate_only_are_one_family(tmp_path):
    files = []
    for rows in (12, 6):
        imager = random_camera(rows, 8, 8)
        imager.name = f"own-r{rows}"
        files.append(str(tmp_path / f"{rows}.safetensors"))
        write_model(files[-1], imager)
    shelf = stock_shelf(files)
    assert {family: list(rates) for family, rates in shelf.items()} == {"own": ["9.4 %", "19 %"]}


def test_the_default_comes_first(tmp_path):
    shelf = stock_shelf()
    assert next(iter(shelf)) == "lapped"
    assert Studio(shelf, tmp_path, 1).rates("lapped", "")[1] == "25 %"
    for universal in ("fast", "flex", "lapped", "large"):
        assert list(shelf[universal]) == ["0.98 %", "3.9 %", "10 %", "25 %", "30 %", "50 %"]


def test_a_model_for_any_rate_is_offered_at_the_rates_that_its_windows_allow(
    tmp_path, small_imager
):
    for stride, expected in (
        (8, ["3.1 %", "9.4 %", "25 %"]),
        (2, ["25 %", "50 %", "4e+02 %"]),
    ):
        patterns = Patterns(small_imager.phi[:, :stride, :stride] | 1, stride)
        write_model(tmp_path / "mine.safetensors", Imager.untrained(patterns, name="mine"))
        shelf = stock_shelf([str(tmp_path / "mine.safetensors")])
        assert {name: list(rates) for name, rates in shelf.items()} == {"mine": expected}


def test_every_built_in_family_says_what_it_is_for():
    shelf = stock_shelf(["lapped", "block-r25", "flex", "large", "fast", "paper-r25"])
    said = {family: explain(family, rates) for family, rates in shelf.items()}
    assert said == {
        "lapped": "Overlapping windows, every sampling ratio, two fifths of the arithmetic of "
        "large. 96×96 pixels, stride 32; 460 additions per measurement.",
        "block": "Windows side by side, fewest additions. 32×32 pixels, stride 32; "
        "51 additions per measurement.",
        "flex": "One model for every sampling ratio. 32×32 pixels, stride 32; "
        "51 additions per measurement.",
        "large": "Overlapping windows, every sampling ratio, four times the arithmetic of flex. "
        "96×96 pixels, stride 32; 460 additions per measurement.",
        "fast": "Overlapping windows, every sampling ratio, a third of the time of flex. "
        "96×96 pixels, stride 32; 460 additions per measurement.",
        "paper": "The network of the 2017 paper. 32×32 pixels, stride 32; "
        "51 additions per measurement.",
    }


def test_a_model_of_ones_own_is_explained_by_its_windows(small_imager):
    additions = round(np.count_nonzero(small_imager.phi) / 16)
    assert explain("small", {"25 %": small_imager}) == (
        f"Your own model, windows side by side. 8×8 pixels, stride 8; "
        f"{additions} additions per measurement."
    )
    lapped = Imager.untrained(Patterns(small_imager.phi, 4))
    assert explain("mine", {"100 %": lapped}).startswith(
        "Your own model, overlapping windows, any sampling ratio. 8×8 pixels, stride 4; "
    )


def test_two_models_of_one_name_are_both_on_offer(tmp_path, make_imager):
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for seed, path in enumerate(paths):
        write_model(path, make_imager("same", seed))
    shelf = stock_shelf([str(path) for path in paths])
    hashes = {imager.patterns.hash for rates in shelf.values() for imager in rates.values()}
    assert hashes == {make_imager("same", seed).patterns.hash for seed in (0, 1)}


def test_a_large_upload_is_shrunk_in_proportion_and_says_so(tmp_path):
    write_image(tmp_path / "large.png", data.astronaut()[:200, :400])
    image, note = read_upload(tmp_path / "large.png", 5_000)
    assert image.shape == (50, 100, 3)
    assert "400×200" in note
    same, silence = read_upload(tmp_path / "large.png", 200 * 400)
    assert (same.shape, silence) == ((200, 400, 3), "")


def test_bytes_pixels_and_damage_are_refused_without_the_servers_paths(
    tmp_path, refused, monkeypatch
):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    content = (tmp_path / "photo.png").read_bytes()
    (tmp_path / "half.png").write_bytes(content[: len(content) // 2])
    bomb = Image.new("1", (30_000, 30_000))
    bomb.save(tmp_path / "bomb.png")
    with refused("half.png", "not a readable image"):
        read_upload(tmp_path / "half.png", 10**6)
    with refused("bomb.png"):
        read_upload(tmp_path / "bomb.png", 10**6)
    monkeypatch.setattr(tersense.app.uploads, "MAX_PIXELS", 1999)
    with refused("photo.png: it has 50×40 pixels", "1,999"):
        read_upload(tmp_path / "photo.png", 10**6)
    monkeypatch.setattr(tersense.app.uploads, "MAX_BYTES", 100)
    with pytest.raises(TersenseError) as caught:
        read_upload(tmp_path / "photo.png", 10**6)
    assert str(tmp_path) not in str(caught.value)


def test_pixels_are_counted_before_they_are_decoded(tmp_path, refused):
    # A header that promises 9000×9000 pixels and a body that has none: were it decoded first, the
    # message would be about damage.
    Image.new("L", (9000, 9000)).save(tmp_path / "promise.png")
    content = (tmp_path / "promise.png").read_bytes()
    (tmp_path / "promise.png").write_bytes(content[:200])
    with refused("9000×9000", "40,000,000"):
        read_upload(tmp_path / "promise.png", 10**6)


def test_the_counts_are_those_of_the_image(small_imager):
    done = capture(small_imager, data.astronaut()[:20, :17])  # 3×3 windows, 3 channels
    quality, costs = done.quality, done.costs
    nonzeros = np.count_nonzero(small_imager.phi)
    assert quality["Measurements per pixel"] == (
        f"{16 * 9 / (20 * 17):.3f}",
        f"of each color, {16 * 9 * 3:,} in all",
    )
    assert costs["Arithmetic"] == (
        f"{nonzeros * 27 / 1e3:.3g} k additions",
        f"dense: {16 * 64 * 27 / 1e3:.3g} k multiply-adds",
    )
    bits = 16 * 27 * small_imager.patterns.accumulator_bits
    assert costs["Readout"][0] == f"{bits / 8 / 1024:.1f} KiB"
    assert costs["Readout"][1].startswith(f"{bits / (20 * 17 * 3):.2g} bits per pixel; ")
    assert quality["PSNR"][0] == f"{psnr(done.estimate, done.original):.2f} dB"


def test_a_broken_upload_becomes_a_message_on_the_page(studio, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(TersenseError, match=r"^broken\.png is not a readable image"):
        studio.work(tmp_path / "broken.png", "small", "25 %")


def test_bits_and_noise_are_what_the_file_says(studio, tmp_path):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    result = studio.work(tmp_path / "photo.png", "small", "25 %", "6", "30")
    done, files = result.done, result.files
    y = Measurements.load(files["tsm"], patterns=studio.shelf["small"]["25 %"].patterns)
    assert (y.header.readout.bits, y.header.readout.noise) == (6, 30.0)
    again = studio.shelf["small"]["25 %"].reconstruct(y)
    np.testing.assert_array_equal(read_image(files["reconstruction"]), again)
    assert done.costs["Readout"][1].startswith(f"{y.bits_per_pixel:.2g} bits per pixel; ")
    for wrong in (("7", "none"), ("exact", "31"), (["6"], "none"), (None, "none"), ("6", 30)):
        with pytest.raises(TersenseError, match=r"^(bits|noise) must be .*; choose one$"):
            studio.work(tmp_path / "photo.png", "small", "25 %", *wrong)


def test_sheets_let_the_background_of_the_page_through(studio, tmp_path):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    files = studio.work(tmp_path / "photo.png", "small", "25 %").files
    for sheet in ("patterns", "measurements"):  # white paper would be a gap on a dark page
        with Image.open(files[sheet]) as image:
            assert image.mode == "RGBA"


def test_people_at_once_get_their_own_images(studio, tmp_path):
    paths, results = [], {}
    for number in range(6):
        path = tmp_path / "photo" / f"{number}" / "same-name.png"
        path.parent.mkdir(parents=True)
        write_image(path, data.astronaut()[number : 41 + number, : 30 + 9 * number])
        paths.append(path)

    def visit(path):
        results[path] = studio.work(path, "small", "25 %").files

    guests = [threading.Thread(target=visit, args=(path,)) for path in paths]
    for guest in guests:
        guest.start()
    for guest in guests:
        guest.join()
    for path in paths:
        files = results[path]
        np.testing.assert_array_equal(read_image(files["original"]), read_image(path))
        y = Measurements.load(files["tsm"], patterns=studio.shelf["small"]["25 %"].patterns)
        again = studio.shelf["small"]["25 %"].reconstruct(y)
        np.testing.assert_array_equal(read_image(files["reconstruction"]), again)


def leave(folder, seconds_ago):
    """Put a file into a folder of its own, as an upload is, so long ago."""
    folder.mkdir()
    write_image(folder / "photo.png", data.astronaut()[:9, :9])
    then = time.time() - seconds_ago
    os.utime(folder, (then, then))
    return folder


def test_what_is_old_goes_and_what_is_looked_at_stays(studio):
    sample, old, seen, new = (
        leave(studio.folder / name, seconds)
        for name, seconds in [("sample", 9000), ("old", 4000), ("seen", 4000), ("new", 10)]
    )
    studio.furniture = {sample}
    studio.work(seen / "photo.png", "small", "25 %")
    studio.sweep()
    assert [path.exists() for path in (sample, old, seen, new)] == [True, False, True, True]


def test_only_the_latest_visits_are_kept(studio, monkeypatch):
    monkeypatch.setattr(tersense.app.studio, "VISITS_KEPT", 3)
    refused = studio.folder / "tmpabc"  # what gradio leaves of an upload that is too large
    refused.write_bytes(b"half")
    os.utime(refused, (time.time() - 160,) * 2)
    visits = [leave(studio.folder / f"{number}", 150 - number) for number in range(6)]
    studio.sweep()
    assert [path.exists() for path in (refused, *visits)] == [False] * 4 + [True] * 3


def test_an_upload_that_is_gone_is_asked_for_again(studio, tmp_path):
    with pytest.raises(TersenseError, match=r"^photo\.png is kept for a while only; upload it ag"):
        studio.work(tmp_path / "photo.png", "small", "25 %")


@pytest.fixture
def deciding_studio(tmp_path):
    """A page with a camera that decides, at its own rate and at a lower one."""
    whole = adaptive_imager()
    results = tmp_path / "results"
    results.mkdir()
    shelf = {"adaptive": {"25 %": whole.at_rate(0.25), "50 %": whole}}
    studio = Studio(shelf, results, max_pixels=10_000)
    yield studio
    studio.close()


def test_a_model_that_decides_is_compared_with_itself_at_as_many_measurements(
    deciding_studio, tmp_path
):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    done, _, files, compared = deciding_studio.work(
        tmp_path / "photo.png", "adaptive", "25 %", "exact", "10", 2
    )
    assert compared.rounds == 2
    assert compared.adaptive.taken == done.measurements.taken == compared.uniform.taken
    assert compared.adaptive.header.readout.noise == 10
    np.testing.assert_array_equal(read_image(files["adaptive"]), compared.adaptive_image)
    assert read_image(files["counts"]).shape == (40, 50, 3)
    worth = describe_comparison(compared)
    assert list(worth) == ["Uniform", "2 rounds", "Gain"]
    assert worth["Uniform"] == (done.quality["PSNR"][0], "16 in every window")
    assert worth["Gain"][1] == f"both of {done.measurements.taken:,} measurements"


def test_a_small_model_with_the_same_patterns_decides(deciding_studio, tmp_path):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    words = tmp_path / "photo.png", "adaptive", "25 %"
    alone = deciding_studio.work(*words).compared
    small = adaptive_imager(seed=1)
    small.reconstructor.phases = small.reconstructor.phases[:1]
    small.name = "small"
    deciding_studio.shelf["small"] = {"50 %": small}
    helped = deciding_studio.work(*words).compared
    y = AdaptiveCamera(small, 0.25, "closed", 3).sense(helped.original)
    np.testing.assert_array_equal(helped.adaptive.counts, y.counts)
    assert (helped.adaptive.counts != alone.adaptive.counts).any()
    whole = deciding_studio.shelf["adaptive"]["50 %"]
    np.testing.assert_array_equal(helped.adaptive_image, whole.reconstruct(y))
    assert describe_comparison(helped)["3 rounds"][1].endswith(" per window, decided by small")
    assert "decided" not in describe_comparison(alone)["3 rounds"][1]


def test_a_model_that_does_not_decide_is_not_compared(studio, tmp_path):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    results = studio.work(tmp_path / "photo.png", "small", "25 %")
    assert results.compared is None
    assert not {"adaptive", "counts"} & set(results.files)
    assert not studio.decides("small")


@pytest.mark.parametrize("wrong", [1, 6, 2.5, 10**9, "3", None, [3], True, float("nan")])
def test_rounds_are_few(deciding_studio, tmp_path, wrong):
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    with pytest.raises(TersenseError, match=r"^rounds must be from 2 to 5"):
        deciding_studio.work(tmp_path / "photo.png", "adaptive", "25 %", rounds=wrong)


def test_rounds_end_with_the_time_limit(deciding_studio, tmp_path, monkeypatch):
    """The uniform image is there in time; the first look of the second round is too late."""
    write_image(tmp_path / "photo.png", data.astronaut()[:40, :50])
    add = Capture.add

    def late(capture, values):
        add(capture, values)
        deciding_studio._stopping.set()

    monkeypatch.setattr(Capture, "add", late)
    with pytest.raises(TersenseError, match="being closed"):
        deciding_studio.work(tmp_path / "photo.png", "adaptive", "25 %")


def test_a_taken_port_is_one_line(capsys, tmp_path, small_imager):
    write_model(tmp_path / "small.safetensors", small_imager)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["app", "-m", str(tmp_path / "small.safetensors"), "--port", str(port)]
        assert main(arguments) == 2
    assert re.fullmatch(rf"tersense: .*:{port}.*--port\n", capsys.readouterr().err)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server, as a user starts it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    deciding = tmp_path_factory.mktemp("model") / "deciding.safetensors"
    write_model(deciding, adaptive_imager())
    command = [sys.executable, "-m", "tersense", "app", "-m", "block-r25", "-m", "flex",
               "-m", "paper-r25", "-m", str(deciding), "--port", str(port),
               "--pixels", "20000"]  # fmt: skip
    home = tmp_path_factory.mktemp("server")
    surroundings = {**os.environ, "TMPDIR": str(home)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings
    ) as server:
        assert server.stdout
        line = server.stdout.readline()
        assert f"http://127.0.0.1:{port}" in line
        yield f"http://127.0.0.1:{port}/"
        server.terminate()
        said = server.communicate(timeout=60)[1]
        assert said == "tersense: interrupted\n", said
    assert server.returncode == 128 + signal.SIGTERM
    assert not [path for path in home.rglob("*") if path.is_file()]  # nobody's images stay


def test_a_file_that_is_too_large_is_refused_by_the_server(address):
    # Not only by the page: anybody can send a request.
    too_large = bytes(tersense.app.uploads.MAX_BYTES + 2**20)
    answer = httpx.post(f"{address}gradio_api/upload", files={"files": ("a.png", too_large)})
    assert answer.status_code == 413
    answer = httpx.post(f"{address}gradio_api/upload", files={"files": ("a.png", b"small")})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../../etc/passwd", __file__])
def test_files_of_the_server_cannot_be_asked_for(address, path):
    answer = httpx.get(f"{address}gradio_api/file={path}")
    assert answer.status_code in (403, 404)


def test_the_page_in_a_browser(browser, address, tmp_path):
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    asked, failed = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))

    page.goto(address)  # a sample is there already
    pixels = page.locator(".figures small").first
    width = 173  # 451×300, shrunk to 20,000 pixels
    expect(pixels).to_contain_text(f"{width}×115")

    page.locator("#samples button").nth(2).click()
    expect(pixels).to_contain_text("141×141")

    photo = tmp_path / "odd photo.jpg"
    Image.fromarray(data.coffee()[100:197, 200:331]).save(photo)
    page.locator("#upload input").set_input_files(photo)
    expect(pixels).to_contain_text("131×97")
    expect(page.locator(".cards")).to_contain_text("block-r25")
    page.locator("#model input").click()
    page.get_by_role("option", name="flex").click()
    expect(page.locator("#model")).to_contain_text("One model for every sampling ratio")
    page.locator("#rate").get_by_text("10 %").click()
    expect(page.locator(".cards")).to_contain_text("flex")
    assert page.locator(".figures dd").first.inner_text().endswith("dB")
    page.locator("#bits").get_by_text("4", exact=True).click()
    expect(page.locator(".cards")).to_contain_text("0.71 bits per pixel")

    handle = page.locator("#again .handle, #again [class*=handle], #again .outer").first
    before = page.locator("#again img").last.evaluate("e => getComputedStyle(e).clipPath")
    box = handle.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 120, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert page.locator("#again img").last.evaluate("e => getComputedStyle(e).clipPath") != before

    with page.expect_download() as measured:
        page.locator("#tsm").click()
    with page.expect_download() as given:
        page.locator("#png").click()
    measured.value.save_as(tmp_path / "y.tsm")
    given.value.save_as(tmp_path / "page.png")
    assert main(["reconstruct", str(tmp_path / "y.tsm"), "-o", str(tmp_path / "cli.png")]) == 0
    np.testing.assert_array_equal(
        read_image(tmp_path / "cli.png"), read_image(tmp_path / "page.png")
    )

    page.locator("#model input").click()
    page.get_by_role("option", name="paper").click()
    expect(page.locator("#model")).to_contain_text("The network of the 2017 paper")
    expect(page.locator(".cards")).to_contain_text("paper-r25")

    assert {urlsplit(url).hostname for url in asked if not url.startswith(("data:", "blob:"))} == {
        "127.0.0.1"
    }
    assert not failed
    page.close()


def test_uniform_and_adaptive_are_seen_side_by_side(browser, address):
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.goto(address)
    expect(page.locator("#tsm")).to_be_enabled()
    page.get_by_role("tab", name="Adaptive").click()
    expect(page.locator("#unable")).to_be_visible()  # block-r25 measures uniformly
    expect(page.locator("#rounds")).to_be_hidden()

    page.locator("#model input").click()
    page.get_by_role("option", name="adaptive").click()
    expect(page.locator("#worth dt")).to_have_text(["Uniform", "3 rounds", "Gain"])
    expect(page.locator("#unable")).to_be_hidden()
    for image in ("#uniform img", "#adaptive img", "#counts img"):
        expect(page.locator(image)).to_be_in_viewport(ratio=1)
    expect(page.locator("#worth li")).to_have_count(5)
    page.locator("#rounds input[type=range]").press("ArrowLeft")
    expect(page.locator("#worth dt")).to_have_text(["Uniform", "2 rounds", "Gain"])

    page.locator("#model input").click()
    page.get_by_role("option", name="paper").click()
    expect(page.locator("#unable")).to_be_visible()
    expect(page.locator("#worth")).to_be_hidden()
    page.close()


def test_the_latest_wish_is_answered_however_fast_they_come(browser, address):
    """A wish that came while the one before was answered was lost together with it."""
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.goto(address)
    page.get_by_role("tab", name="Adaptive").click()
    slider = page.locator("#rounds input[type=range]")
    for sample, rounds in enumerate((5, 4, 2)):
        for family in ("block", "adaptive"):
            page.locator("#model input").click()
            page.get_by_role("option", name=family).click()
        expect(slider).to_be_visible()
        for key in ("Home", *["ArrowRight"] * (rounds - 2)):
            slider.press(key)
            page.locator("#samples button").nth(sample).click()
        expect(page.locator("#worth dt")).to_have_text(["Uniform", f"{rounds} rounds", "Gain"])
        expect(page.locator("#tsm")).to_be_enabled()
    page.close()


def expect_nothing_shown(page):
    """Nothing of the image before is left that could be taken for the next one's."""
    expect(page.locator(SHOWN)).to_have_count(0)
    expect(page.locator("#figures")).to_have_text("No result. Pick or upload an image.")
    for download in ("#tsm", "#png"):
        expect(page.locator(download)).to_be_disabled()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n\x1a\n and then nothing of the kind", "photo.png is not a readable image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(21 * 2**20), "maximum allowed size"),
    ],
    ids=["damaged", "oversized"],
)
def test_a_bad_upload_gives_a_readable_message(browser, address, tmp_path, content, message):
    (tmp_path / "photo.png").write_bytes(content)
    page = browser.new_page()
    page.goto(address)
    expect(page.locator("#tsm")).to_be_enabled(timeout=60_000)
    assert page.locator(SHOWN).count() > 8
    page.locator("#upload input").set_input_files(tmp_path / "photo.png")
    expect(page.get_by_text(message).first).to_be_visible(timeout=60_000)
    expect_nothing_shown(page)
    # And the next image is shown as ever.
    page.locator("#samples button").first.click()
    for download in ("#tsm", "#png"):
        expect(page.locator(download)).to_be_enabled(timeout=60_000)
    assert page.locator(SHOWN).count() > 8
    page.close()


def test_a_failed_reconstruction_leaves_nothing_of_the_one_before(
    browser, address, tmp_path, tmp_path_factory
):
    write_image(tmp_path / "gone.png", data.astronaut()[:40, :50])
    page = browser.new_page()
    page.goto(address)
    page.locator("#upload input").set_input_files(tmp_path / "gone.png")
    expect(page.locator(".figures small").first).to_have_text("50×40 pixels", timeout=60_000)
    for upload in list(tmp_path_factory.getbasetemp().glob("server*/**/gone.png")):
        upload.unlink(missing_ok=True)  # pytest has a link to the same folder
    page.locator("#bits").get_by_text("4", exact=True).click()
    expect(page.get_by_text("upload it again").first).to_be_visible(timeout=60_000)
    expect_nothing_shown(page)
    page.close()


def test_quality_slider_and_downloads_are_seen_on_a_laptop_without_scrolling(browser, address):
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(address)
    expect(page.locator("#tsm")).to_be_enabled(timeout=60_000)
    assert page.locator(".figures dt").all_inner_texts() == [
        "PSNR",
        "SSIM",
        "Measurements per pixel",
    ]
    for part in (".figures", "#again img >> nth=0", "#tsm", "#png"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    page.close()


def test_the_error_has_a_scale(browser, address):
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(address)
    page.get_by_role("tab", name="Error").click()
    expect(page.locator(".scale img")).to_be_in_viewport(ratio=1, timeout=60_000)
    assert page.locator(".scale img").evaluate("image => image.naturalWidth") == 256
    assert page.locator(".scale li").all_inner_texts() == ["0", "16", "32", "48", "64"]
    page.close()


def test_no_part_sticks_out_on_a_phone(browser, address):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(address)
    page.locator(".cards dd").first.wait_for(timeout=60_000)
    page.get_by_role("tab", name="Error").click()
    expect(page.locator(".scale img")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_samples_are_there():
    assert {read_image(path).ndim for path in SAMPLES} == {2, 3}
