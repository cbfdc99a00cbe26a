"""The web page (extra `app`): pick or upload an image, sense it, see what comes back."""

import base64
import html
import io
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from tersense.app.state import ROUNDS, describe_comparison, explain
from tersense.app.studio import AT_ONCE, Studio
from tersense.app.uploads import MAX_BYTES
from tersense.errors import TersenseError, install_hint
from tersense.experiments.comparison import Comparison, counts_of
from tersense.io.count_maps import CountScale, draw_count_bar
from tersense.io.figures import color_bar_ticks, draw_color_bar
from tersense.io.images import ImageArray
from tersense.io.webpage import (
    BITS,
    BITS_LABEL,
    COUNTS,
    DOWNLOAD_PNG,
    DOWNLOAD_TSM,
    ERROR,
    INTRODUCTION,
    MEASUREMENTS,
    NOISE_LABEL,
    NOISES,
    NOTHING,
    PATTERNS,
    PICK,
    RATE_LABEL,
    SAMPLES,
    SLIDER,
    UPLOAD,
    caption,
)

# Before the import: nothing is told to anybody.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
try:
    import gradio as gr
except ImportError as error:
    raise TersenseError(f"the web page needs gradio: {install_hint('app')}") from error

_MAX_WAITING = 50  # people in line
_MEGABYTES = MAX_BYTES // 2**20

_NOTHING = f"<p class='nothing'>{NOTHING}</p>"
_UNABLE = (
    "<p class='nothing'>This model measures every window alike: it was not trained to decide where "
    "more would pay.</p>"
)
# In the order of `_show`. It happens in the browser, so that it never comes after the next
# result.
_CLEAR = f"""() => {{
    const none = {{__type__: "update", value: null, interactive: false}};
    return [null, null, {json.dumps(_NOTHING)}, "", null, null, null, null, null, "", none, none];
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


def _show(studio: Studio, path: str, *choices: Any) -> tuple[Any, ...]:
    """Sense and reconstruct an image; return what the page shows, in its order."""
    try:
        done, note, files, compared = studio.work(Path(path), *choices)
    except (TersenseError, MemoryError) as error:
        raise _message(str(error) or "This image needs more memory than there is.") from error
    return (
        (files["original"], files["reconstruction"]),
        (files["original"], files["error"]),
        _list("figures", done.quality) + _note(note),
        _list("cards", done.costs),
        files["patterns"],
        files["measurements"],
        files["reconstruction"] if compared else None,
        files.get("adaptive"),
        files.get("counts"),
        _compared(compared) if compared else "",
        files["tsm"],
        files["reconstruction"],
    )


def _pick(index: object) -> str:
    """Return the sample that somebody picked; a request may hold anything."""
    if type(index) is not int or not 0 <= index < len(SAMPLES):
        raise _message(f"sample must be a number from 0 to {len(SAMPLES) - 1}; pick another")
    return str(SAMPLES[index])


def _message(text: str) -> gr.Error:
    """Return an error that the page shows; nobody else needs to hear of it."""
    return gr.Error(text, title="That did not work", print_exception=False)


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
        picked = gr.State(str(SAMPLES[0]))
        wish = gr.State("")  # what the page prepares for first has another value then
        gr.HTML(INTRODUCTION, padding=False)
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=280):
                _caption(PICK)
                gallery = gr.Gallery(
                    [(str(path), None) for path in SAMPLES], show_label=False, columns=3, rows=1,
                    height=120, object_fit="cover", allow_preview=False, selected_index=0,
                    interactive=False, buttons=[], elem_id="samples",
                )  # fmt: skip
                offer_upload = UPLOAD[0], UPLOAD[1].format(_MEGABYTES)
                started = _caption(offer_upload, _TELL_OF_UPLOADS)
                upload = gr.File(
                    show_label=False, file_types=["image"], height=130, elem_id="upload"
                )
                model = gr.Dropdown(
                    list(studio.shelf), value=family, label="Model", filterable=False,
                    info=explain(family, studio.shelf[family]), elem_id="model",
                )  # fmt: skip
                share = gr.Radio(rates, value=rate, label=RATE_LABEL, elem_id="rate")
                bits = gr.Radio(list(BITS), value="exact", label=BITS_LABEL, elem_id="bits")
                noise = gr.Radio(list(NOISES), value="none", label=NOISE_LABEL, elem_id="noise")
            with gr.Column(scale=5, min_width=280):
                figures = gr.HTML(_NOTHING, elem_id="figures", padding=False)
                with gr.Tabs():
                    with gr.Tab("Reconstruction"):
                        _caption(SLIDER)
                        again = _slider("again")
                    with gr.Tab("Error"):
                        gr.HTML(_color_bar(), padding=False)
                        wrong = _slider("wrong")
                    # Shown as long as some model decides; gradio does not take tabs away later.
                    with gr.Tab("Adaptive", visible=any(map(studio.decides, studio.shelf))):
                        unable = gr.HTML(
                            _UNABLE, padding=False, visible=not studio.decides(family),
                            elem_id="unable",
                        )  # fmt: skip
                        with gr.Column(visible=studio.decides(family)) as able:
                            rounds, *comparison = _build_comparison()
                with gr.Row():
                    tsm = _download(DOWNLOAD_TSM, "tsm")
                    png = _download(DOWNLOAD_PNG, "png")
        cards = gr.HTML(elem_id="cards", padding=False)
        with gr.Row():
            with gr.Column(min_width=280):
                _caption(PATTERNS)
                patterns = _image("patterns")
            with gr.Column(min_width=280):
                _caption(MEASUREMENTS)
                measured = _image("measured")
        shown = [again, wrong, figures, cards, patterns, measured, *comparison, tsm, png]

        # The upload comes with each request: a crowd may make the server forget a guest's choices,
        # but the guest must not be shown another image then.
        def show(upload: str | None, picked: str, *choices: Any) -> tuple[Any, ...]:
            return _show(studio, upload or picked, *choices)

        def pick(event: gr.EventData) -> tuple[str, None, str]:
            told = event._data if isinstance(event._data, dict) else {}
            return _pick(told.get("index")), None, uuid.uuid4().hex

        def take(upload: str) -> tuple[Any, str]:
            return gr.Gallery(selected_index=None), uuid.uuid4().hex

        # Not preprocessed: whoever changes the model twice in a moment sends a rate of the first
        # when the second is there already, which gradio would refuse.
        def offer(family: object, before: object) -> tuple[Any, ...]:
            if not isinstance(family, str) or family not in studio.shelf:
                raise _message(f"model must be one of {', '.join(studio.shelf)}; choose another")
            rates, rate = studio.rates(family, before)
            info = explain(family, studio.shelf[family])
            decides = studio.decides(family)
            return (
                gr.Radio(rates, value=rate), gr.Dropdown(info=info),
                gr.Column(visible=decides), gr.HTML(visible=not decides), family,
            )  # fmt: skip

        clear: dict[str, Any] = {"fn": None, "js": _CLEAR, "outputs": shown, "queue": False}
        started.clear(**clear)
        # In line, as gradio does not tell the page of a new wish otherwise; but nobody waits there.
        quick: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden",
                                 "api_visibility": "private"}  # fmt: skip
        for prepared in (
            gallery.select(pick, None, [picked, upload, wish], trigger_mode="multiple", **quick),
            upload.upload(take, upload, [gallery, wish], **quick),
            model.input(
                offer, [model, share], [share, model, able, unable, wish], preprocess=False,
                trigger_mode="always_last", **quick,
            ),
        ):  # fmt: skip
            prepared.failure(**clear)
        # One event for all wishes, which gradio sends again when the answer is there and something
        # was changed meanwhile: the latest wish is answered last. Canceling the earlier one instead
        # would lose both, as gradio 6 hangs up on all that a page waits for.
        done = gr.on(
            [page.load, wish.change, share.input, bits.input, noise.input, rounds.input], show,
            [upload, picked, model, share, bits, noise, rounds], shown,
            concurrency_limit=AT_ONCE, show_progress_on=[again], trigger_mode="always_last",
            api_visibility="private",
        )  # fmt: skip
        done.failure(**clear)
        done.success(None, js=_OFFER, outputs=[tsm, png], queue=False)
    # Closed: otherwise a plain request would have its image worked on outside of the line.
    page.queue(default_concurrency_limit=AT_ONCE, max_size=_MAX_WAITING, api_open=False)
    built: gr.Blocks = page
    return built


def _caption(words: tuple[str, str], script: str | None = None) -> gr.HTML:
    return gr.HTML(caption(words), padding=False, js_on_load=script)


def _build_comparison() -> tuple[gr.Slider, gr.Image, gr.Image, gr.Image, gr.HTML]:
    """Build what compares uniform with adaptive sensing, in the order of `_show`."""
    rounds = gr.Slider(
        ROUNDS[0], ROUNDS[-1], value=3, step=1, elem_id="rounds",
        label="Rounds: measure, look, and measure more where it pays",
    )  # fmt: skip
    worth = gr.HTML(elem_id="worth", padding=False)
    images = []
    with gr.Row():
        for words, name in (("Uniform", "uniform"), ("Adaptive", "adaptive"), ("Counts", "counts")):
            with gr.Column(min_width=180):
                _caption((words, ""))
                images.append(_image(name))
    uniform, adaptive, counts = images
    return rounds, uniform, adaptive, counts, worth


def _compared(compared: Comparison) -> str:
    """Return what rounds are worth, and the scale of the counts per window."""
    scale = CountScale.of(counts_of(compared.adaptive))
    bar = _scale(caption(COUNTS), draw_count_bar(256, scale), list(map(str, scale.ticks)))
    return _list("figures", describe_comparison(compared)) + bar


def _color_bar() -> str:
    """Return the scale of the error map."""
    return _scale(caption(ERROR), draw_color_bar(256, numbers=False), color_bar_ticks())


def _scale(words: str, bar: ImageArray, ticks: list[str]) -> str:
    """Return a color bar; the numbers are text, to be read on any background."""
    file = io.BytesIO()
    Image.fromarray(bar).save(file, "PNG")
    content = base64.b64encode(file.getvalue()).decode()
    items = "".join(f"<li>{tick}</li>" for tick in ticks)
    return (
        f"<div class='scale'>{words}<div><img src='data:image/png;base64,{content}' "
        f"alt='color bar'><ol>{items}</ol></div></div>"
    )


def _slider(name: str) -> gr.ImageSlider:
    return gr.ImageSlider(show_label=False, interactive=False, max_height=520, elem_id=name,
                          buttons=["fullscreen"])  # fmt: skip


def _download(label: str, name: str) -> gr.DownloadButton:
    return gr.DownloadButton(label, size="md", interactive=False, elem_id=name)


def _image(name: str) -> gr.Image:
    return gr.Image(show_label=False, interactive=False, elem_id=name, buttons=["fullscreen"])


def make_theme() -> gr.themes.Base:
    """Return colors and fonts; the fonts are those of the reader's system."""
    fonts = ["system-ui", "sans-serif"]
    return gr.themes.Base(
        primary_hue="orange", secondary_hue="blue", neutral_hue="slate", radius_size="md",
        font=fonts, font_mono=["ui-monospace", "monospace"],
    )  # fmt: skip
