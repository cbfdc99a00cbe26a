"""The `app` command."""

from typing import Annotated

import typer

# Modules that import torch are imported inside the command, so that --help answers at once.


def serve(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="Offer only this; may be repeated. Default: all."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="Of the page's address.")
    ] = 7860,
    most_pixels: Annotated[
        int,
        typer.Option(
            "--pixels", metavar="N", min=1024, help="Larger pictures are shrunk to so many pixels."
        ),
    ] = 500_000,
) -> None:
    """Show a web page: pick or upload a picture, sense it, see what comes back.

    Only this machine can open the page, and the page asks no other machine for anything.

    Example: tersense app --port 8000
    """
    from tersense.app.page import run_app

    run_app(models, host, port, most_pixels)
