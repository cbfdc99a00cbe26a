"""Programs from outside that tests run: simulators, synthesizers, compilers, emulators."""

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = {
    "iverilog": "iverilog",
    "vvp": "iverilog",
    "yosys": "yosys",
    "gcc": "gcc",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "arm-none-eabi-size": "binutils-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
}


def run_tool(folder: Path, *command: str, stdin: bytes | None = None) -> str:
    """Run a command in a folder and return what it prints; fail if it fails or is not there."""
    if not shutil.which(command[0]):
        package = PACKAGES.get(command[0], command[0])
        pytest.fail(f"{command[0]} is missing: make tools, or apt-get install {package}", False)
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, timeout=600)
    printed = done.stdout.decode()
    assert done.returncode == 0, printed[-3000:] + done.stderr.decode()[-3000:]
    return printed
