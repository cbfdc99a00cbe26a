"""Guests of the web page: they send what people send, good and bad, as a browser does.

upload ──▶ take (no sample is picked) ──▶ show, by the queue ──▶ files to download
"""

import io
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from PIL import Image
from skimage import data

from tersense.app.state import Shelf
from tersense.app.uploads import MAX_BYTES, read_upload
from tersense.io.images import read_image
from tersense.measurements.measurements import Measurements

SIZES = [(1, 1), (7, 50), (33, 20), (48, 64), (90, 61), (150, 200)]  # the last is shrunk


class Request(NamedTuple):
    """One visit: a file, a choice, and for a bad one a part of the refusal to come."""

    name: str
    content: bytes
    family: str
    rate: str
    refusal: str = ""


class Page:
    """The page, as the program in a browser uses it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._http = httpx.Client(base_url=f"{address}gradio_api", timeout=60)
        page = httpx.get(f"{address}config").json()
        self.functions = {row["api_name"]: row["id"] for row in page["dependencies"]}

    def visit(self, request: Request) -> tuple[list[Any], str]:
        """Return what the page shows, or why it refused."""
        session = uuid.uuid4().hex  # a guest who has never been here
        files = {"files": (request.name, request.content)}
        answer = self._http.post("/upload", files=files)
        if answer.status_code != 200:
            return [], answer.text
        upload = {"path": answer.json()[0], "orig_name": request.name,
                  "meta": {"_type": "gradio.FileData"}}  # fmt: skip
        for function, given in (
            ("take", [upload]),
            ("offer", [request.family, request.rate]),
            ("show", [upload, None, request.family, request.rate, "exact", "none", 3]),
        ):
            shown, refusal = self.ask(function, given, session)
            if refusal:
                break
        return shown, refusal

    def ask(
        self, function: str, given: list[Any], session: str, event: Any = None
    ) -> tuple[list[Any], str]:
        """Get in line and wait for what comes back, or why nothing does."""
        self.join(function, given, session, event).raise_for_status()
        output = self._wait(session)
        return output.get("data", []), output.get("error") or ""

    def join(
        self, function: str, given: list[Any], session: str, event: Any = None
    ) -> httpx.Response:
        """Get in line."""
        return self._http.post("/queue/join", json=self._request(function, given, session, event))

    def run(self, function: str, given: list[Any], session: str) -> httpx.Response:
        """Ask for an answer at once."""
        return self._http.post("/run/predict", json=self._request(function, given, session))

    def _request(
        self, function: str, given: list[Any], session: str, event: Any = None
    ) -> dict[str, Any]:
        return {"fn_index": self.functions[function], "data": given, "session_hash": session,
                "event_data": event}  # fmt: skip

    def _wait(self, session: str) -> dict[str, Any]:
        output: dict[str, Any] = {}
        with self._http.stream("GET", "/queue/data", params={"session_hash": session}) as stream:
            for line in stream.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line else {"msg": ""}
                if message["msg"] == "process_completed":
                    output = message["output"]
                if message["msg"] == "close_stream":
                    return output
        raise ConnectionError("the page hung up without an answer")

    def download(self, shown: dict[str, Any]) -> bytes:
        """Fetch a file that the page offers."""
        return self._http.get(f"/file={shown['path']}").raise_for_status().content


def requests(shelf: Shelf, seed: int) -> Iterator[Request]:
    """Yield requests without end: seven of ten good, of all sizes, the others bad in every way."""
    rng = np.random.default_rng(seed)
    choices = [(family, rate) for family, rates in shelf.items() for rate in rates]
    bad = [_broken, _no_image, _measurements, _bomb, _wrong_rate, _too_large]
    often = np.array([30, 20, 20, 10, 19, 1]) / 100  # 20 MiB take their time
    while True:
        # A large camera is slow to draw: one visit in twenty goes to the last on the shelf.
        family, rate = choices[-1 if rng.random() < 0.05 else rng.integers(len(choices) - 1)]
        make: Callable[..., Request] = good if rng.random() < 0.7 else rng.choice(bad, p=often)
        yield make(rng, family, rate)


def _photograph(rng: np.random.Generator) -> np.ndarray:
    height, width = SIZES[rng.integers(len(SIZES))]
    whole = data.astronaut() if rng.random() < 0.5 else data.camera()
    top, left = rng.integers(300), rng.integers(300)
    return whole[top : top + height, left : left + width]


def encode(image: np.ndarray, format: str, **options: Any) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, format, **options)
    return file.getvalue()


def good(rng: np.random.Generator, family: str, rate: str) -> Request:
    """Return what most people send."""
    suffix = ("png", "jpeg", "webp", "bmp")[rng.integers(4)]
    return Request(f"my photo.{suffix}", encode(_photograph(rng), suffix), family, rate)


def _broken(rng: np.random.Generator, family: str, rate: str) -> Request:
    content = encode(_photograph(rng), "png")
    cut = int(rng.integers(1, len(content) // 2))  # the last bytes hold no pixels
    return Request("cut.png", content[:cut], family, rate, "cut.png is not a readable image")


def _no_image(rng: np.random.Generator, family: str, rate: str) -> Request:
    noise = rng.bytes(rng.integers(1, 3000))
    return Request("noise.jpg", noise, family, rate, "noise.jpg is not a readable image")


def _measurements(rng: np.random.Generator, family: str, rate: str) -> Request:
    content = (Path(__file__).parents[1] / "golden/measurements-v1.tsm").read_bytes()
    return Request("y.tsm", content, family, rate, "Invalid file type")


def _bomb(rng: np.random.Generator, family: str, rate: str) -> Request:
    promised = bytearray(encode(np.zeros((2, 2), np.uint8), "png"))
    promised[16:24] = (9000).to_bytes(4, "big") * 2
    return Request("bomb.png", bytes(promised), family, rate, "bomb.png")


def _wrong_rate(rng: np.random.Generator, family: str, rate: str) -> Request:
    return Request("a.png", encode(_photograph(rng), "png"), family, "60 %", "60 %")


def _too_large(rng: np.random.Generator, family: str, rate: str) -> Request:
    return Request("large.png", bytes(MAX_BYTES + 1), family, rate, "maximum allowed size")


def check(page: Page, request: Request, shelf: Shelf, max_pixels: int, folder: Path) -> None:
    """Visit the page, and hold what it says against what the library says."""
    compare(page, request, *page.visit(request), shelf, max_pixels, folder)


def compare(
    page: Page, request: Request, shown: list[Any], refusal: str,
    shelf: Shelf, max_pixels: int, folder: Path,
) -> None:  # fmt: skip
    """Hold what the page says of a request against what the library says."""
    if request.refusal:
        assert not shown, f"{request.name} was not refused"
        assert request.refusal in refusal, refusal
        assert len(refusal.splitlines()) == 1, refusal
        assert "/" not in refusal, refusal  # no path of the server
        return
    assert not refusal, f"{request.name} was refused: {refusal}"
    upload = folder / request.name
    upload.write_bytes(request.content)
    imager = shelf[request.family][request.rate]
    image, _ = read_upload(upload, max_pixels)
    y = imager.sense(image)
    *_, measured, given = shown
    assert page.download(measured) == y.to_bytes(imager.patterns)
    (folder / "given.png").write_bytes(page.download(given))
    np.testing.assert_array_equal(read_image(folder / "given.png"), imager.reconstruct(y))
    (folder / "y.tsm").write_bytes(page.download(measured))
    again = Measurements.load(folder / "y.tsm", patterns=imager.patterns)
    assert again.header == y.header
