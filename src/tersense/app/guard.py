"""Who and what is let in to the page: the addresses, the origins, the paths and the sizes.

The guard stands before gradio. It refuses

- names that the page was not started for: a foreign site whose name is made to lead here (DNS
  rebinding) would otherwise be taken for the page itself;
- requests from pages of other origins;
- paths that the page does not use, of which gradio has many: some fetch from other hosts;
- bodies that are too large, or do not say how large they are.

And it tells the browser what the page may do.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tersense.app.uploads import MAX_BYTES
from tersense.errors import TersenseError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_API = "/gradio_api/"
_UPLOAD, _RUN = f"{_API}upload", f"{_API}run/predict"
_PATHS = {"/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt", _UPLOAD,
          _RUN, *(_API + name for name in ("queue/join", "queue/data", "cancel", "reset", "info",
          "upload_progress", "startup-events", "app_id", "theme.css"))}  # fmt: skip
_FOLDERS = ("/assets/", "/static/", "/svelte/", f"{_API}heartbeat/", f"{_API}file=")
_MAX_JSON = 2**20  # bytes of a request that brings no file
_MAX_FORM = MAX_BYTES + 2**20  # a file and what is around it
_OWN_NAMES = {"localhost", "127.0.0.1", "::1"}
_ANY = {"0.0.0.0", "::", ""}
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")

# gradio writes its settings into a script and styles into the page, and makes functions of the
# texts that events run in the browser: hence 'unsafe-inline' and 'unsafe-eval'. Wherever scripts
# come from, they reach no other host.
_POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:",
    "connect-src 'self' data: blob:", "worker-src 'self' blob:", "object-src 'none'",
    "base-uri 'self'", "form-action 'self'", "frame-ancestors 'none'",
))  # fmt: skip
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Let in what belongs to the page.

    Args:
        application: What answers those who are let in.
        host: The address that the page listens at.
        names: Others that lead to it, such as that of a server in front of it.
    """

    def __init__(self, application: Application, host: str, names: Sequence[str] = ()) -> None:
        self._application, self._any = application, host in _ANY
        self._names = {name.lower().strip("[]") for name in names}
        self._hosts = self._names | _OWN_NAMES | {host.lower().strip("[]")}
        if self._any:
            machine = socket.gethostname().lower()
            self._hosts |= {machine, f"{machine}.local"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered (ASGI)."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":  # the page uses no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _adding_headers(send)
        refusal = self._refusal(scope)
        if refusal is None:
            if scope["path"] == _RUN:
                send = _blaming_the_right_one(send)
            await self._application(scope, receive, send)
            return
        status, reason = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": f"{reason}\n".encode()})

    def _refusal(self, scope: Message) -> tuple[int, str] | None:
        """Return why a request is not let in, if it is not: status and reason."""
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._is_own(host):
            return 421, (
                "this page answers to the name that it was started for only; its owner can add "
                "others: tersense app --allow-host NAME"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_same(origin, host):
            return 403, "this page takes nothing from pages of other origins"
        path = scope["path"]
        if not (path in _PATHS or path.startswith(_FOLDERS)) or "://" in path:
            return 404, "there is nothing here"
        if scope["method"] not in ("GET", "HEAD"):
            size, most = headers.get(b"content-length", ""), _MAX_JSON
            if path == _UPLOAD:
                most = _MAX_FORM
            if not size.isdecimal():
                return 411, "a request must say how large it is"
            if int(size) > most:
                return 413, f"this is larger than the maximum allowed size of {most:,} bytes"
        return None

    def _is_own(self, host: str) -> bool:
        name = _hostname(f"//{host}")
        if name in self._hosts:
            return True
        # Only names can be made to lead elsewhere; an address is what it is.
        return self._any and _is_address(name)

    def _is_same(self, origin: str, host: str) -> bool:
        scheme, _, rest = origin.lower().partition("://")
        if scheme in ("http", "https") and rest == host.lower():
            return True
        # A server in front of the page may put another Host into the request.
        return _hostname(origin) in self._names


def require_names(names: Sequence[str]) -> None:
    """Refuse names that nobody could come by, before anything is done."""
    for name in names:
        found = _hostname(f"//{name}")
        if not found or found != name.lower().strip("[]"):
            raise TersenseError(
                f"--allow-host must be a name such as camera.example.org, got {name!r}; leave "
                "out what is around it"
            )


def _hostname(address: str) -> str:
    try:
        name = (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:  # brackets without an address between
        return ""
    return name if _is_address(name) or _NAME.fullmatch(name) else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _adding_headers(send: Send) -> Send:
    added = [(key.encode(), value.encode()) for key, value in HEADERS.items()]

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *added]
        await send(message)

    return add


def _blaming_the_right_one(send: Send) -> Send:
    """Answer 422 where gradio answers 500 with a message for the guest: it is the guest's fault."""
    held: list[Message] = []

    async def look(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 500:
            held.append(message)
            return
        if held and message["type"] == "http.response.body":
            start = held.pop()
            start["status"] = 422 if _is_for_guest(message.get("body", b"")) else 500
            await send(start)
        await send(message)

    return look


def _is_for_guest(body: bytes) -> bool:
    try:
        said = json.loads(body)
    except ValueError:
        return False
    return isinstance(said, dict) and isinstance(said.get("error"), str)
