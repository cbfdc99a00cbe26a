"""The web page and those who mean it harm: each attack that once succeeded, and its end."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from conftest import build_small_imager
from long import attacks
from long.guests import Page, Request, encode
from long.siege import siege
from tersense.app import decoder
from tersense.app.decoder import Decoder
from tersense.app.guard import HEADERS, Guard, require_names
from tersense.app.state import stock_shelf
from tersense.app.studio import Studio
from tersense.app.uploads import MAX_ASPECT, fit_size, read_upload
from tersense.errors import TersenseError
from tersense.io.images import write_image
from tersense.models.files import write_model
from tersense.models.imager import Imager

PHOTO = encode(attacks.GRAY, "png")
SECONDS = 3  # an image may take


def build_endless_imager():
    """A camera whose reconstruction takes minutes: it looks for more digits than there are."""
    return Imager.untrained(build_small_imager().patterns, "tv", "endless", tolerance=1e-30)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    imagers = build_small_imager(), build_small_imager("other", 1), build_endless_imager()
    for imager in imagers:
        write_model(folder / f"{imager.name}.safetensors", imager)
    return [str(folder / f"{imager.name}.safetensors") for imager in imagers]


@pytest.fixture(scope="module")
def address(tmp_path_factory, models):
    """A page, as a user starts it; at the end it must go in good order, whatever it does."""
    home = tmp_path_factory.mktemp("page")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tersense", "app", "--port", str(port), "--pixels", "20000",
               "--seconds", str(SECONDS), "--allow-host", "camera.example"]  # fmt: skip
    command += [part for model in models for part in ("-m", model)]
    surroundings = {**os.environ, "TMPDIR": str(home)}
    log, address = home / "log", f"http://127.0.0.1:{port}/"
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdout=-1, stderr=said, text=True, env=surroundings) as program,
    ):
        assert address in program.stdout.readline()
        try:
            yield address
            fill_the_line(Page(address))
            program.send_signal(signal.SIGHUP)  # while two images are worked on
            assert program.wait(timeout=60) == 128 + signal.SIGHUP
        finally:
            program.kill()
    assert "terminate called" not in log.read_text()
    assert log.read_text().endswith("tersense: interrupted\n")
    assert [path for path in home.rglob("*") if path.is_file()] == [log]


def fill_the_line(page):
    """Send more images than may wait, none of which would ever be done."""
    asked = [None, None, "endless", "25 %", "exact", "none", 3]
    with ThreadPoolExecutor(8) as guests:
        answers = list(guests.map(lambda _: page.join("show", asked, uuid.uuid4().hex), range(60)))
    assert {answer.status_code for answer in answers} == {200, 503}
    full = next(answer for answer in answers if answer.status_code == 503)
    assert full.json()["detail"].startswith("Queue is full. Max size is 50")


@pytest.fixture(scope="module")
def page(address):
    return Page(address)


@given(st.integers(1, 10**7), st.floats(1, MAX_ASPECT), st.integers(1024, 10**6),
       st.integers(1, 512))  # fmt: skip
def test_neither_pixels_nor_windows_exceed_their_bound(short, aspect, max_pixels, stride):
    long = int(short * aspect)
    width, height = fit_size(long, short, max_pixels, stride)
    assert width * height <= max_pixels
    windows = math.ceil(width / stride) * math.ceil(height / stride)
    assert windows <= max(4, 2 * max_pixels // stride**2)
    assert fit_size(short, long, max_pixels, stride) == (height, width)


def test_even_a_line_of_pixels_would_be_shrunk_to_the_bound():
    width, height = fit_size(40_000_000, 1, 500_000, 32)
    assert width * height <= 500_000
    assert -(-width // 32) <= 2 * 500_000 // 32**2


def test_a_line_of_pixels_is_refused_before_it_is_decoded(tmp_path, refused):
    """A PNG of 4.9 KB became an image of 1×4,472,135 pixels."""
    (tmp_path / "line.png").write_bytes(attacks.black_png(40_000_000, 1)[:60])
    with refused("line.png: it has 40000000×1 pixels", "50 times"):
        read_upload(tmp_path / "line.png", 500_000)


def test_scans_are_counted_not_what_looks_like_them(tmp_path, refused):
    """A JPEG of 20 MB in 300,000 scans kept its decoder busy for hours."""
    comment = encode(attacks.GRAY, "jpeg", progressive=True, comment=1000 * b"\xff\xda")
    for content in (comment, attacks.many_scans(50)):
        (tmp_path / "a.jpg").write_bytes(content)
        read_upload(tmp_path / "a.jpg", 500_000)
    (tmp_path / "a.jpg").write_bytes(attacks.many_scans(70))
    with refused("a.jpg: a JPEG must have at most 64 scans"):
        read_upload(tmp_path / "a.jpg", 500_000)


@pytest.mark.parametrize("rate", ["99 %", None, 7, [], {"a": 1}])
def test_a_rate_of_the_model_before_is_no_fault_of_the_guest(page, rate):
    """Gradio refused it, with a traceback in the log, when a model was changed twice quickly."""
    shown, refusal = page.ask("offer", ["other", rate], uuid.uuid4().hex)
    assert not refusal
    assert shown[0]["value"] == "25 %"


@pytest.mark.parametrize("family", ["none", None, 7, [], {"a": 1}])
def test_a_model_that_is_not_there_is_refused_in_a_line(page, family):
    _, refusal = page.ask("offer", [family, "25 %"], uuid.uuid4().hex)
    assert refusal.startswith("model must be one of small, other, endless")


def test_a_decoder_that_does_not_end_is_ended(tmp_path, monkeypatch, refused):
    (tmp_path / "a.png").write_bytes(PHOTO)
    with contextlib.closing(Decoder()) as reader:
        monkeypatch.setattr(decoder, "_START", "import time; print(flush=True); time.sleep(600)")
        with refused("a.png is not a readable image: it takes more than 0.2 s"):
            reader.read(tmp_path / "a.png", 10_000, 8, 0.2)
        monkeypatch.setattr(decoder, "_START", "raise SystemExit")
        with refused("a.png is not a readable image: its decoder failed"):
            reader.read(tmp_path / "a.png", 10_000, 8, 60)
        monkeypatch.undo()
        image, note = reader.read(tmp_path / "a.png", 10_000, 8, 60)
        np.testing.assert_array_equal(image, attacks.GRAY)
        assert note == ""


def test_a_reconstruction_that_does_not_end_is_ended(tmp_path):
    write_image(tmp_path / "a.png", attacks.GRAY)
    studio = Studio({"endless": {"25 %": build_endless_imager()}}, tmp_path, 10_000, seconds=0.5)
    with contextlib.closing(studio), pytest.raises(TersenseError, match=r"takes more than 0\.5 s"):
        studio.work(tmp_path / "a.png", "endless", "25 %")


def test_what_somebody_waits_for_is_kept_however_many_come(tmp_path, small_imager):
    studio = Studio({"small": {"25 %": small_imager}}, tmp_path, 10_000)
    for number in range(300):
        (tmp_path / str(number)).mkdir()
    studio.sweep()
    assert len(list(tmp_path.iterdir())) == 300
    for number in range(300):
        os.utime(tmp_path / str(number), (1e9 + number,) * 2)
    studio.sweep()
    assert not list(tmp_path.iterdir())


def test_a_guest_is_answered_while_others_attack(page):
    """An image that takes forever, and files that are meant to, do not keep anybody waiting."""
    bad = [Request(name, content, "small", "25 %") for name, content, _ in attacks.bad_files()]
    bad += [Request("a.png", PHOTO, "endless", "25 %")]
    with ThreadPoolExecutor(len(bad)) as attackers:
        answers = attackers.map(page.visit, bad)
        shown, refusal = page.visit(Request("a.png", PHOTO, "small", "25 %"))
        assert shown, refusal
        said = [refusal for _, refusal in answers]
    for (_, _, expected), refusal in zip(attacks.bad_files(), said, strict=False):
        assert expected in refusal
    assert f"takes more than {SECONDS} s" in said[-1]


@pytest.mark.parametrize("attack", dict.fromkeys(attacks.ATTACKS), ids=lambda a: a.__name__)
def test_every_attack_gets_its_answer(page, attack, rng):
    attack(page, rng)


def test_good_and_hostile_guests_at_the_same_time(address, models):
    shelf = stock_shelf(models[:2])
    waits, _ = siege(address, shelf, 24, 12)
    assert len(waits) == 24
    assert max(waits) < 30


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "camera.example"])
def test_the_page_answers_to_its_own_names(address, name):
    port = httpx.URL(address).port
    answer = httpx.get(f"{address}config", headers={"Host": f"{name}:{port}"})
    assert answer.status_code == 200
    posted = httpx.post(
        f"{address}gradio_api/upload", files={"files": ("a.png", PHOTO)},
        headers={"Host": f"{name}:{port}", "Origin": f"http://{name}:{port}"},
    )  # fmt: skip
    assert posted.status_code == 200


@pytest.mark.parametrize(
    "name",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.7", "[", ""],
)
def test_the_page_does_not_answer_to_other_names(address, name):
    answer = httpx.get(address, headers={"Host": name})
    assert answer.status_code in (400, 421)  # 400: by uvicorn, of no name at all
    assert "gradio" not in answer.text


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_a_page_for_all_answers_to_addresses_and_the_name_of_the_machine_only(address):
    guard = Guard(None, address)
    own = socket.gethostname()
    for name in ("192.0.2.7:80", "[2001:db8::1]:80", "localhost:80", own, f"{own}.local:80"):
        assert guard._is_own(name), name
    for name in ("evil.example", "192.0.2.7.evil.example", ""):
        assert not guard._is_own(name), name


@pytest.mark.parametrize("name", ["http://camera.example", "camera.example:80", "a b", "[", "*"])
def test_a_name_that_nobody_could_come_by_is_refused(name, refused):
    require_names(["camera.example", "192.0.2.7", "[::1]"])
    with refused("--allow-host must be a name such as camera.example.org, got", repr(name)):
        require_names([name])


def test_every_answer_tells_the_browser_what_the_page_may_do(address):
    for path in ("", "config", "favicon.ico", "nothing", "gradio_api/file=/etc/passwd"):
        answer = httpx.get(address + path)
        assert {key: answer.headers.get(key) for key in HEADERS} == HEADERS
    assert "frame-ancestors 'none'" in HEADERS["content-security-policy"]
    assert HEADERS["x-content-type-options"] == "nosniff"


def test_guests_do_not_find_what_belongs_to_others(address, page):
    shown, _ = page.visit(Request("mine.png", PHOTO, "small", "25 %"))
    *_, measured, given = shown
    own, result = Path(given["path"]), Path(measured["path"])
    assert uuid.UUID(own.parent.name).version == 4  # nobody guesses it
    assert httpx.get(f"{address}gradio_api/file={result}").status_code == 200
    for guess in (own.parents[1], own.parent, own.parents[2] / ".lock", own.parent / "*",
                  own.parents[1] / "mine.png", f"{own.parent}/../icon.png/.."):  # fmt: skip
        assert httpx.get(f"{address}gradio_api/file={guess}").status_code in (403, 404), guess
    with httpx.stream("GET", f"{address}gradio_api/queue/data?session_hash=1") as stranger:
        assert '"session_not_found":true' in next(stranger.iter_lines())


def test_the_policy_does_not_hinder_the_page(browser, address, tmp_path):
    said, tab = [], browser.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(address)
    expect(tab.locator("#tsm")).to_be_enabled(timeout=60_000)
    (tmp_path / "a.png").write_bytes(PHOTO)
    tab.locator("#upload input").set_input_files(tmp_path / "a.png")
    expect(tab.locator(".figures small").first).to_have_text("50×60 pixels", timeout=60_000)
    tab.get_by_role("tab", name="Error").click()
    with tab.expect_download():
        tab.locator("#tsm").click()
    assert not [text for text in said if "Content Security Policy" in text or "refused" in text]
    # When the line is full, the page says so, and nothing of the image before is left.
    tab.route("**/queue/join*", lambda route: route.fulfill(status=503, json={"detail": "full"}))
    tab.locator("#samples button").nth(2).click()
    expect(tab.get_by_text("currently busy. Please try again").first).to_be_visible(timeout=60_000)
    expect(tab.locator(".figures dd")).to_have_count(0)
    tab.close()


HOLD = """
import sys
from tersense.app.folder import folder_for_guests
with folder_for_guests() as folder:
    (folder / "somebody's.png").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_page_has_left_goes_with_the_next_and_a_running_one_keeps_its_own(tmp_path):
    surroundings = {**os.environ, "TMPDIR": str(tmp_path)}
    (tmp_path / "tersense-page-of-somebody").mkdir()  # without a lock: not known to be one
    with contextlib.ExitStack() as stack:
        programs, folders = [], []
        for number in range(3):
            programs.append(stack.enter_context(subprocess.Popen(
                [sys.executable, "-c", HOLD], stdin=-1, stdout=-1, text=True, env=surroundings
            )))  # fmt: skip
            folders.append(Path(programs[-1].stdout.readline().strip()))
            if number == 0:
                programs[0].kill()
                programs[0].wait(timeout=60)
                assert (folders[0] / "somebody's.png").exists()
        assert not folders[0].parent.exists()
        assert (folders[1] / "somebody's.png").exists()
        assert (folders[2] / "somebody's.png").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["tersense-page-of-somebody"]
