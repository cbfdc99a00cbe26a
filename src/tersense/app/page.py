"""The web page (extra `app`): pick or upload an image, sense it, see what comes back."""

import base64
import contextlib
import html
import io
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from tersense.app.state import MAX_BYTES, Shelf, capture, explain, read_upload, stock_shelf
from tersense.errors import TersenseError, install_hint, one_line
from tersense.io.figures import (
    FULL_SCALE,
    color_bar_ticks,
    draw_color_bar,
    draw_error,
    draw_measurements,
    draw_pattern_sheet,
)
from tersense.io.images import PHOTOGRAPH, write_image

# Before the import: nothing is told to anybody.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
try:
    import gradio as gr
except ImportError as error:
    raise TersenseError(f"the web page needs gradio: {install_hint('app')}") from error

SAMPLES = [PHOTOGRAPH, *map(PHOTOGRAPH.with_name, ("coffee.jpg", "camera.png"))]
_SECONDS_KEPT = 3600  # of uploads and results
_VISITS_KEPT = 200  # uploads, results and choices beyond the latest so many go sooner
_SECONDS_BETWEEN_SWEEPS = 5
_AT_ONCE = 2  # people whose images are worked on; others wait in line
_USUAL_RATE = "25 %"  # of the default model
_MEGABYTES = MAX_BYTES // 2**20
_CSS = Path(__file__).with_name("style.css")

_INTRODUCTION = """
<header>
<h1>tersense</h1>
<p>A camera that never records the image. It records a few sums of pixels, each weighted by
<b class="minus">−1</b>, 0 or <b class="plus">+1</b>, and a network turns the sums back into the
image.</p>
</header>
"""

_NOTHING = "<p class='nothing'>No result. Pick or upload an image.</p>"
# In the order of `Studio.show`. It happens in the browser, so that it never comes after the next
# result.
_CLEAR = f"""() => {{
    const none = {{__type__: "update", value: null, interactive: false}};
    return [null, null, {json.dumps(_NOTHING)}, "", null, null, none, none];
}}"""
_OFFER = """() => Array(2).fill({__type__: "update", interactive: true})"""
# Some uploads fail before the server hears of them, because they are too large, say. So what is
# shown is cleared when one begins.
_TELL_OF_UPLOADS = """
for (const kind of ["change", "drop"])
    document.addEventListener(kind, event => {
        if (event.target.closest("#upload")?.querySelector("input")) trigger("clear");
    }, true);
"""


class Studio:
    """What happens when somebody uses the page.

    Args:
        shelf: The cameras on offer.
        folder: Where uploads come and results go; old ones are swept out.
        max_pixels: Larger images are shrunk.

    `furniture` names what in the folder belongs to the page itself and stays.
    """

    def __init__(self, shelf: Shelf, folder: Path, max_pixels: int) -> None:
        self.shelf, self.folder, self.max_pixels = shelf, folder, max_pixels
        self.furniture: set[Path] = set()

    def rates(self, family: str, before: str) -> tuple[list[str], str]:
        """Return a family's rates, and the one to choose: as before, the usual or the highest."""
        rates = list(self.shelf[family])
        return rates, next(rate for rate in (before, _USUAL_RATE, rates[-1]) if rate in rates)

    def show(self, path: str, family: str, rate: str) -> tuple[Any, ...]:
        """Sense and reconstruct an image; return what the page shows, in its order."""
        try:
            self._touch(Path(path))
            image, note = read_upload(path, self.max_pixels)
            done = capture(self.shelf[family][rate], image)
        except (TersenseError, MemoryError) as error:
            message = str(error) or "This image needs more memory than there is."
            raise gr.Error(message, title="That did not work", print_exception=False) from error
        stem = Path(path).stem
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        images = {
            "original": done.original,
            "reconstruction": done.estimate,
            "error": draw_error(done.estimate, done.original),
            "patterns": draw_pattern_sheet(done.imager.phi, transparent=True),
            "measurements": draw_measurements(done.measurements.values, transparent=True),
        }
        files = {name: folder / f"{stem}-{name}.png" for name in images}
        for name, pixels in images.items():
            write_image(files[name], pixels)
        done.measurements.save(folder / f"{stem}.tsm")
        shown = {name: str(file) for name, file in files.items()}
        return (
            (shown["original"], shown["reconstruction"]),
            (shown["original"], shown["error"]),
            _list("figures", done.quality) + _note(note),
            _list("cards", done.costs),
            shown["patterns"],
            shown["measurements"],
            str(folder / f"{stem}.tsm"),
            shown["reconstruction"],
        )

    def _touch(self, upload: Path) -> None:
        """Keep an upload for another while, if it is still there."""
        if not upload.is_file():
            raise TersenseError(f"{upload.name} is kept for a while only; upload it again")
        if upload.is_relative_to(self.folder):
            os.utime(upload.parent)

    def sweep(self) -> None:
        """Remove what was left long ago, and of the rest all but the newest."""
        left = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # an upload that just found its place
                left.append((path.stat().st_mtime, path))
        left = sorted((when, path) for when, path in left if path not in self.furniture)
        long_ago = time.time() - _SECONDS_KEPT
        for place, (when, path) in enumerate(reversed(left)):
            if place >= _VISITS_KEPT or when < long_ago:
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:  # what gradio keeps of an upload that it refused
        path.unlink(missing_ok=True)


def _list(kind: str, facts: Mapping[str, tuple[str, str]]) -> str:
    items = [
        f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd><small>{html.escape(beside)}</small></div>"
        for name, (value, beside) in facts.items()
    ]
    return f"<dl class='{kind}'>{''.join(items)}</dl>"


def _note(note: str) -> str:
    return f"<p class='note'>The image was {html.escape(note)}.</p>" if note else ""


def build_page(studio: Studio) -> gr.Blocks:
    """Build the page."""
    family = next(iter(studio.shelf))
    rates, rate = studio.rates(family, "")
    with gr.Blocks(title="tersense", analytics_enabled=False) as page:
        chosen = gr.State(str(SAMPLES[0]))
        gr.HTML(_INTRODUCTION, padding=False)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=280):
                _caption("Pick an image")
                gallery = gr.Gallery(
                    [(str(path), None) for path in SAMPLES], show_label=False, columns=3, rows=1,
                    height=120, object_fit="cover", allow_preview=False, selected_index=0,
                    interactive=False, buttons=[], elem_id="samples",
                )  # fmt: skip
                started = _caption(
                    "or upload one", f"gray or color, up to {_MEGABYTES} MB", _TELL_OF_UPLOADS
                )
                upload = gr.File(
                    show_label=False, file_types=["image"], height=130, elem_id="upload"
                )
                model = gr.Dropdown(
                    list(studio.shelf), value=family, label="Model", filterable=False,
                    info=explain(family, studio.shelf[family]), elem_id="model",
                )  # fmt: skip
                share = gr.Radio(
                    rates, value=rate, label="Rate: measurements per pixel", elem_id="rate"
                )
            with gr.Column(scale=5, min_width=280):
                figures = gr.HTML(_NOTHING, elem_id="figures", padding=False)
                with gr.Tabs():
                    with gr.Tab("Reconstruction"):
                        _caption("Move the slider", "left of it is the original")
                        again = _slider("again")
                    with gr.Tab("Error"):
                        gr.HTML(_color_bar(), padding=False)
                        wrong = _slider("wrong")
                with gr.Row():
                    tsm = _download("↓ Measurements (.tsm)", "tsm")
                    png = _download("↓ Image (.png)", "png")
        cards = gr.HTML(elem_id="cards", padding=False)
        with gr.Row():
            with gr.Column(min_width=280):
                _caption("The patterns", "+1 orange, −1 blue, 0 gray")
                patterns = _image("patterns")
            with gr.Column(min_width=280):
                _caption("The measurements", "a small image for each pattern, middle gray is 0")
                measured = _image("measured")
        shown = [again, wrong, figures, cards, patterns, measured, tsm, png]
        # The latest wish counts: whoever changes the rate twice need not wait for the first.
        work: dict[str, Any] = {
            "fn": studio.show, "inputs": [chosen, model, share], "outputs": shown,
            "concurrency_limit": _AT_ONCE, "concurrency_id": "camera", "show_progress_on": [again],
            "trigger_mode": "always_last", "api_visibility": "private",
        }  # fmt: skip

        def pick(event: gr.SelectData) -> tuple[str, None]:
            return str(SAMPLES[int(event.index)]), None

        def take(path: str) -> tuple[str, Any]:
            return path, gr.Gallery(selected_index=None)

        def offer(family: str, before: str) -> tuple[Any, Any]:
            rates, rate = studio.rates(family, before)
            info = explain(family, studio.shelf[family])
            return gr.Radio(rates, value=rate), gr.Dropdown(info=info)

        quick: dict[str, Any] = {"queue": False, "show_progress": "hidden",
                                 "api_visibility": "private"}  # fmt: skip
        clear: dict[str, Any] = {"fn": None, "js": _CLEAR, "outputs": shown, **quick}
        started.clear(**clear)
        works = {
            page.load: page.load(**work),
            gallery.select: gallery.select(pick, None, [chosen, upload], **quick).then(**work),
            upload.upload: upload.upload(take, upload, [chosen, gallery], **quick).success(**work),
            model.input: model.input(offer, [model, share], [share, model], **quick).then(**work),
            share.input: share.input(**work),
        }
        for wish, done in works.items():
            done.failure(**clear)
            done.success(None, js=_OFFER, outputs=[tsm, png], **quick)
            # What an earlier wish gives later must not take the place of what this one gave.
            wish(None, cancels=[other for other in works.values() if other is not done])
    page.queue(default_concurrency_limit=_AT_ONCE, max_size=50)
    built: gr.Blocks = page
    return built


def _caption(text: str, more: str = "", script: str | None = None) -> gr.HTML:
    words = f"<h2>{text} <small>{more}</small></h2>"
    return gr.HTML(words, padding=False, js_on_load=script)


def _color_bar() -> str:
    """Return the scale of the error map; the numbers are text, to be read on any background."""
    file = io.BytesIO()
    Image.fromarray(draw_color_bar(256, numbers=False)).save(file, "PNG")
    bar = base64.b64encode(file.getvalue()).decode()
    ticks = "".join(f"<li>{tick}</li>" for tick in color_bar_ticks())
    return (
        f"<div class='scale'><h2>Error <small>in gray levels, {FULL_SCALE} or more in the lightest "
        f"color</small></h2><div><img src='data:image/png;base64,{bar}' alt='color bar'>"
        f"<ol>{ticks}</ol></div></div>"
    )


def _slider(name: str) -> gr.ImageSlider:
    return gr.ImageSlider(show_label=False, interactive=False, max_height=520, elem_id=name,
                          buttons=["fullscreen"])  # fmt: skip


def _download(label: str, name: str) -> gr.DownloadButton:
    return gr.DownloadButton(label, size="md", interactive=False, elem_id=name)


def _image(name: str) -> gr.Image:
    return gr.Image(show_label=False, interactive=False, elem_id=name, buttons=["fullscreen"])


def run_app(models: Sequence[str] | None, host: str, port: int, max_pixels: int) -> None:
    """Serve the page until somebody interrupts.

    Args:
        models: Built-in names or model files to offer; None for all that are built in.
        host: Address to listen at.
        port: And its port.
        max_pixels: Larger images are shrunk to so many pixels.
    """
    _require_free(host, port)
    shelf = stock_shelf(models)
    for rates in shelf.values():  # the kernel is compiled before the first guest comes
        for imager in rates.values():
            imager.sense(read_upload(PHOTOGRAPH, 64 * 64)[0])
    with _folder_for_guests() as folder:
        icon = folder / "icon.png"
        write_image(icon, draw_pattern_sheet(next(iter(shelf[next(iter(shelf))].values())).phi[:1]))
        studio = Studio(shelf, folder, max_pixels)
        page = build_page(studio)
        studio.furniture = set(folder.iterdir())
        with _sweeper(studio, page):
            _serve(page, host, port, icon)


def _serve(page: gr.Blocks, host: str, port: int, icon: Path) -> None:
    page.launch(
        server_name=host, server_port=port, share=False, quiet=True, ssr_mode=False,
        max_file_size=MAX_BYTES, footer_links=[], favicon_path=icon, css_paths=_CSS,
        theme=_theme(), prevent_thread_lock=True, enable_monitoring=False,
        state_session_capacity=_VISITS_KEPT,
    )  # fmt: skip
    print(f"tersense is at {page.local_url} (Ctrl-C ends it)", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the folder is removed
    page.block_thread()


@contextlib.contextmanager
def _sweeper(studio: Studio, page: gr.Blocks) -> Iterator[None]:
    """Sweep every few seconds; gradio itself would leave uploads that it refused."""
    closed = threading.Event()

    def keep_clean() -> None:
        while not closed.wait(_SECONDS_BETWEEN_SWEEPS):
            studio.sweep()
            for names in page.temp_file_sets:  # where gradio notes every file there ever was
                names.clear()

    threading.Thread(target=keep_clean, daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _require_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at, in our words, before models are loaded."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name longer than names may be
        raise TersenseError(
            f"cannot listen at {host}:{port}: {one_line(error)}; "
            "choose another with --host or --port"
        ) from error


@contextlib.contextmanager
def _folder_for_guests() -> Iterator[Path]:
    """Yield a folder for uploads and results that nobody else sees and that does not stay."""
    with tempfile.TemporaryDirectory(prefix="tersense-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield Path(folder).resolve()
        finally:
            del os.environ["GRADIO_TEMP_DIR"]


def _theme() -> gr.themes.Base:
    fonts = ["system-ui", "sans-serif"]
    return gr.themes.Base(
        primary_hue="orange", secondary_hue="blue", neutral_hue="slate", radius_size="md",
        font=fonts, font_mono=["ui-monospace", "monospace"],
    )  # fmt: skip
