"""Serve the page (extra `app`): take its address, and end in good order."""

import asyncio
import contextlib
import io
import logging
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tersense.app.folder import folder_for_guests
from tersense.app.guard import Guard, require_names
from tersense.app.page import build_page, make_theme
from tersense.app.state import stock_shelf
from tersense.app.studio import VISITS_KEPT, Studio
from tersense.app.uploads import MAX_BYTES, read_upload
from tersense.errors import TersenseError, one_line
from tersense.io.figures import draw_pattern_sheet
from tersense.io.images import PHOTOGRAPH, write_image
from tersense.io.webpage import STYLE

# After `page`, which says how to install gradio, and what comes with it, where it is missing.
import fastapi  # isort: skip
import gradio as gr  # isort: skip
import uvicorn  # isort: skip

_SECONDS_BETWEEN_SWEEPS = 5
_SECONDS_TO_LEAVE = 2  # for those who are connected when the page ends
_MAX_CONNECTIONS = 500  # below what a process may usually open
_CSS = Path(__file__).with_name("style.css")


def run_app(
    models: Sequence[str] | None,
    host: str,
    port: int,
    max_pixels: int,
    seconds: float,
    names: Sequence[str] = (),
) -> None:
    """Serve the page until somebody interrupts.

    Args:
        models: Built-in names or model files to offer; None for all that are built in.
        host: Address to listen at.
        port: And its port.
        max_pixels: Larger images are shrunk to so many pixels.
        seconds: The most that one image may take.
        names: Under which the page is reached besides its address.
    """
    require_names(names)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(found) for found in _bind(host, port)]
        shelf = stock_shelf(models)
        for rates in shelf.values():  # the kernel is compiled before the first guest comes
            for imager in rates.values():
                imager.sense(read_upload(PHOTOGRAPH, 64 * 64)[0])
        folder = stack.enter_context(folder_for_guests())
        icon = folder / "icon.png"
        write_image(icon, draw_pattern_sheet(next(iter(shelf[next(iter(shelf))].values())).phi[:1]))
        studio = Studio(shelf, folder, max_pixels, seconds)
        stack.callback(studio.close)
        page = build_page(studio)
        studio.furniture = set(folder.iterdir())
        stack.enter_context(_sweeper(studio, page))
        name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        guarded = Guard(_mount(page, icon), host, names)
        _Server(guarded, f"http://{name}:{port}/", page, studio).serve_until_stopped(sockets)


def _bind(host: str, port: int) -> list[socket.socket]:
    """Take the address, or refuse in our words, before models are loaded."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(address)
            taken.listen()
        except OSError:
            taken.close()
            raise
    except (OSError, UnicodeError) as error:  # UnicodeError: a name longer than names may be
        raise TersenseError(
            f"cannot listen at {host}:{port}: {one_line(error)}; "
            "choose another with --host or --port"
        ) from error
    return [taken]


def _mount(page: gr.Blocks, icon: Path) -> fastapi.FastAPI:
    page.state_session_capacity = VISITS_KEPT
    mounted: fastapi.FastAPI = gr.mount_gradio_app(
        fastapi.FastAPI(openapi_url=None), page, "/", footer_links=[], run_history=False,
        favicon_path=str(icon), show_error=False, max_file_size=MAX_BYTES, ssr_mode=False,
        enable_monitoring=False, pwa=False, mcp_server=False, theme=make_theme(),
        css_paths=[STYLE, _CSS],
    )  # fmt: skip
    return mounted


class _Server(uvicorn.Server):
    """A server in the main thread, which signals end in good order.

    Args:
        application: What answers.
        address: What to tell the user.
        page: Whose streams end with it.
        studio: Whose jobs end with it.
    """

    def __init__(self, application: Guard, address: str, page: gr.Blocks, studio: Studio) -> None:
        config = uvicorn.Config(
            application, log_level="warning", limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_LEAVE, server_header=False,
        )  # fmt: skip
        super().__init__(config)
        self._address, self._page, self._studio = address, page, studio
        self._signals: list[int] = []

    def serve_until_stopped(self, sockets: list[socket.socket]) -> None:
        """Serve; a signal then has the effect that it would have had at once."""
        before = {}
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                before[number] = signal.signal(number, self.handle_exit)
        try:
            self.run(sockets)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        for number in self._signals[:1]:
            signal.raise_signal(number)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `serve_until_stopped`; uvicorn would not hear of SIGHUP."""
        yield

    def handle_exit(self, sig: int, frame: object) -> None:
        """Note a signal; the server looks every tenth of a second."""
        self._signals.append(sig)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say where."""
        await super().startup(sockets)
        print(f"tersense is at {self._address} (Ctrl-C ends it)", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: jobs first, because threads that compute would crash a process that ends."""
        # Who is still connected is cut off, which is no error, though uvicorn logs one and gradio
        # prints where it was.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await asyncio.to_thread(self._studio.close)
        self._page._queue.close()  # type: ignore[no-untyped-call]
        self._page.is_running = False
        self._page.app.stop_event.set()
        with contextlib.redirect_stderr(io.StringIO()):
            await super().shutdown(sockets)


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
