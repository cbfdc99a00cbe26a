"""The wheel and the source distribution: built twice, installed without extras, tried."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import tersense
from core_only import core_distributions

ROOT = Path(__file__).parents[2]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"][
    "build"
]
DATE = 1_700_000_000  # 2023-11-14T22:13:20Z
NAME = f"tersense-{tersense.__version__}"


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def copy_checkout(folder, mode, date):
    """Copy what is distributed; give its files a mode and a date, and leave traces of work."""
    names = [*BUILD["targets"]["sdist"]["include"], "pyproject.toml", "LICENSE", ".gitignore"]
    for name in names:
        source, target = ROOT / name, folder / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(source, target)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
            os.utime(path, (date, date))
    (folder / "src/tersense/__pycache__").mkdir(exist_ok=True)
    (folder / f"src/tersense/__pycache__/{date}.pyc").write_bytes(b"")


def build(folder, target, out):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    surroundings = os.environ | {"SOURCE_DATE_EPOCH": str(DATE)}
    done = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob({"sdist": "*.tar.gz", "wheel": "*.whl"}[target])
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the source distribution and the wheel."""
    folder = tmp_path_factory.mktemp("built")
    copy_checkout(folder / "a", 0o644, 1_600_000_000)
    return [build(folder / "a", target, folder / "dist") for target in ("sdist", "wheel")]


def test_two_builds_give_the_same_bytes(built, tmp_path):
    """The second of another folder, with other dates and permissions, its wheel of its sdist."""
    copy_checkout(tmp_path / "elsewhere/b", 0o664, 1_650_000_000)
    sdist = build(tmp_path / "elsewhere/b", "sdist", tmp_path / "dist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    wheel = build(tmp_path / NAME, "wheel", tmp_path / "dist")
    for first, second in zip(built, (sdist, wheel), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes()


def test_dates_are_that_of_the_source(built):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive} == {DATE}
    with zipfile.ZipFile(wheel) as archive:
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    _, wheel = built
    package = ROOT / "src"
    ours = {path.relative_to(package).as_posix() for path in (package / "tersense").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        about = Parser().parsestr(archive.read(f"{NAME}.dist-info/METADATA").decode())
    others = {name for name in held - ours if not name.startswith(f"{NAME}.dist-info/")}
    assert (ours - held, others) == (set(), set())
    assert f"{NAME}.dist-info/sboms/tersense.cdx.json" in held
    assert f"{NAME}.dist-info/licenses/LICENSE" in held
    assert about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"] == "text/markdown"


def link_core(environment):
    """Let an environment have what pip would bring along, and nothing else."""
    (site,) = environment.rglob("site-packages")
    for name in core_distributions():
        with contextlib.suppress(PackageNotFoundError):  # what only a torch for GPUs needs
            found = distribution(name)
            for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(found.locate_file(top))


def test_the_wheel_works_in_an_environment_without_extras(built, tmp_path):
    _, wheel = built
    environment, folder = tmp_path / "environment", tmp_path / "folder"
    folder.mkdir()
    venv.create(environment)
    link_core(environment)
    tool = load_tool("try_install")
    python = tool.find_program(environment, "python")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    subprocess.run([*pip, "check"], check=True)
    where = [python, "-I", "-c", "import tersense; print(tersense.__file__)"]
    seen = subprocess.check_output(where, text=True)
    assert Path(seen.strip()).is_relative_to(environment)
    tool.try_commands(environment, folder)
    assert (folder / "again.png").stat().st_size > 100_000
