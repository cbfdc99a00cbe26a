"""Run the Dockerfile's steps in a fresh virtual environment, then the demo and the web page.

Example: python -m long.container --python python3.11
"""

import argparse
import re
import socket
import tempfile
import time
import urllib.request
from pathlib import Path

from dockerfile import Stage, read_instructions

TITLE = '"title": ?"tersense"'  # as the page's script is told
PATIENCE = 120  # seconds until the page answers


def fetch(address: str, process) -> str:
    """Return the page at an address, as soon as it is there."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return answer.read().decode()
        except OSError:  # nobody there yet, or busy with its start
            time.sleep(0.5)
    raise SystemExit(f"there is no page at {address}")


def try_container(root: Path, python: str) -> None:
    """Do all steps, then what the head of the Dockerfile says."""
    stage = Stage(root, python)
    for word, rest in read_instructions():
        stage.do(word, rest)
    if stage.start("demo", "-o", "demo").wait() or not (stage.folder / "demo/demo.png").is_file():
        raise SystemExit("the demo fails")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    page = stage.start("app", "--host", "0.0.0.0", "--port", str(port))
    try:
        if not re.search(TITLE, fetch(f"http://127.0.0.1:{port}/", page)):
            raise SystemExit("what answers is not our page")
        print("the page answers")
    finally:
        page.terminate()
        page.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="python3.11", help="of the image's version")
    with tempfile.TemporaryDirectory() as name:
        try_container(Path(name).resolve(), parser.parse_args().python)
