"""Hostile guests of the web page: files that are meant to break it, and requests that are.

Each attack says what the page has to answer.
"""

import functools
import io
import socket
import struct
import uuid
import zlib
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import numpy as np
from PIL import Image

from long.guests import Page, Request, encode
from tersense.app.uploads import MAX_BYTES

GRAY = np.arange(3000, dtype=np.uint32).reshape(60, 50).astype(np.uint8)


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return a part of a PNG file."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


@functools.cache
def black_png(width: int, height: int, more: bytes = b"") -> bytes:
    """Return a PNG of one bit per pixel: kilobytes for millions of them."""
    pixels = zlib.compress(bytes(height * (1 + (width + 7) // 8)), 9)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header), more, chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@functools.cache
def many_scans(count: int) -> bytes:
    """Return a JPEG that is gone through so often; a few bytes and 50 ms for each time."""
    file = io.BytesIO()
    Image.new("L", (6000, 6000)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + count * last + content[-2:]


@functools.cache
def bad_files() -> list[tuple[str, bytes, str]]:
    """Return name, content and a part of the refusal."""
    profile = chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(40 * 2**20)))
    texts = b"".join(
        chunk(b"zTXt", b"%d\0\0" % n + zlib.compress(bytes(2**20 - 1))) for n in range(70)
    )
    return [
        ("line.png", black_png(40_000_000, 1), "40000000×1 pixels, one side more than 50 times"),
        ("column.png", black_png(1, 9_000_000), "1×9000000 pixels, one side more than 50 times"),
        ("scans.jpg", many_scans(300_000), "at most 64 scans"),
        ("profile.png", black_png(50, 40, profile), "profile.png is not a readable image"),
        ("texts.png", black_png(50, 40, texts), "texts.png is not a readable image"),
        ("promise.png", black_png(9000, 9000)[:60], "9000×9000 pixels, more than 40,000,000"),
        ("cut.png", encode(GRAY, "png")[:99], "cut.png is not a readable image"),
        ("photo.avif", encode(GRAY, "avif"), "none of PNG, JPEG, WebP, TIFF, BMP, GIF and PNM"),
        ("noise.gif", b"GIF89a" + bytes(range(256)), "noise.gif is not a readable image"),
    ]


@functools.cache
def odd_files() -> list[tuple[str, bytes]]:
    """Return images that are as good as any, for all that is around them."""
    frames = [Image.fromarray(np.roll(GRAY, n)) for n in range(200)]
    exif = Image.Exif()
    exif[0x0112], exif[0x9286] = 6, bytes(60_000)  # turned; a comment
    animated = {"save_all": True, "append_images": frames, "duration": 1}
    return [
        ("frames.gif", encode(GRAY, "gif", **animated)),
        ("frames.webp", encode(GRAY, "webp", **animated)),
        ("frames.png", encode(GRAY, "png", **animated)),
        ("turned.jpg", encode(GRAY, "jpeg", exif=exif)),
        ("profile.jpg", encode(GRAY, "jpeg", icc_profile=bytes(5 * 2**20))),
        ("large.png", black_png(6000, 6000)),
    ]


Attack = Callable[[Page, np.random.Generator], None]


def send_bad_file(page: Page, rng: np.random.Generator) -> None:
    """Upload a file that must be refused, with one line."""
    files = bad_files()
    name, content, refusal = files[rng.integers(len(files))]
    shown, said = page.visit(Request(name, content, "small", "25 %"))
    assert not shown, name
    assert refusal in said, said
    assert len(said.splitlines()) == 1, said


def send_odd_file(page: Page, rng: np.random.Generator) -> None:
    """Upload a file with much around its pixels."""
    files = odd_files()
    name, content = files[rng.integers(len(files))]
    shown, said = page.visit(Request(name, content, "small", "25 %"))
    assert shown, said


def pick_wrongly(page: Page, rng: np.random.Generator) -> None:
    """Pick a sample that is not there."""
    wrong = [{"index": 99}, {"index": -1}, {"index": "1"}, {"index": [0, 1]}, {"index": None}, {},
             {"index": True}, {"index": 1e300}]  # fmt: skip
    event = wrong[rng.integers(len(wrong))]
    shown, said = page.ask("pick", [], uuid.uuid4().hex, event)
    assert not shown, event
    assert said == "sample must be a number from 0 to 2; pick another"


def jump_the_queue(page: Page, rng: np.random.Generator) -> None:
    """Have an image worked on without getting in line."""
    answer = page.run("show", [None, None, "small", "25 %", "exact", "none", 3], uuid.uuid4().hex)
    assert answer.status_code == 404, answer.text


def leave_the_queue(page: Page, rng: np.random.Generator) -> None:
    """Get in line and never ask for the answer."""
    answer = page.join("show", [None, None, "small", "25 %", "exact", "none", 3], uuid.uuid4().hex)
    assert answer.status_code in (200, 503)


def come_by_a_wrong_name(page: Page, rng: np.random.Generator) -> None:
    """Be led here by the name of another site."""
    answer = httpx.get(page.address, headers={"Host": "evil.example"}, timeout=60)
    assert answer.status_code == 421


def come_from_another_page(page: Page, rng: np.random.Generator) -> None:
    """Post from a page of another origin."""
    origin = ["http://evil.example", "null", "http://127.0.0.1:1"][rng.integers(3)]
    answer = httpx.post(f"{page.address}gradio_api/upload", headers={"Origin": origin},
                        files={"files": ("a.png", b"1")}, timeout=60)  # fmt: skip
    assert answer.status_code == 403


def ask_for_others(page: Page, rng: np.random.Generator) -> None:
    """Ask for files of the server, for other hosts, and for what the page does not use."""
    for path in ("file=/etc/passwd", "file=http://127.0.0.1:9/", "proxy=http://127.0.0.1:9/",
                 "runs", "deep_link?session_hash=1", "../monitoring"):  # fmt: skip
        assert httpx.get(f"{page.address}gradio_api/{path}", timeout=60).status_code in (403, 404)


def send_too_much(page: Page, rng: np.random.Generator) -> None:
    """Send a body that is too large, or does not say how large it is."""
    parts = (bytes(2**16) for _ in range(4))
    url = f"{page.address}gradio_api/queue/join"
    assert httpx.post(url, content=parts, timeout=60).status_code == 411
    sizes = {"gradio_api/queue/join": 2**21, "gradio_api/upload": 2 * MAX_BYTES}
    for path, size in sizes.items():
        answer = say(page, f"POST /{path} HTTP/1.1", f"Content-Length: {size}")
        assert b" 413 " in answer, answer


def break_off(page: Page, rng: np.random.Generator) -> None:
    """Begin an upload and go away."""
    say(page, "POST /gradio_api/upload HTTP/1.1", "Content-Length: 99999",
        "Content-Type: multipart/form-data; boundary=b", listen=False)  # fmt: skip


def say(page: Page, request: str, *headers: str, listen: bool = True) -> bytes:
    """Send the beginning of a request; return that of the answer."""
    place = urlsplit(page.address)
    lines = "\r\n".join((request, f"Host: {place.netloc}", *headers, "", ""))
    with socket.create_connection((place.hostname, place.port), timeout=60) as line:
        line.sendall(lines.encode())
        return line.recv(100) if listen else b""


ATTACKS: list[Attack] = [
    send_bad_file, send_bad_file, send_bad_file, send_odd_file, pick_wrongly, jump_the_queue,
    leave_the_queue, come_by_a_wrong_name, come_from_another_page, ask_for_others, send_too_much,
    break_off,
]  # fmt: skip
