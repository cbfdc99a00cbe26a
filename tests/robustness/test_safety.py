"""What SECURITY.md promises: no file runs code, reaches other paths or takes memory at will."""

import ast
import io
import json
import re
import stat
import sys
import tomllib
import tracemalloc
import zlib
from importlib import metadata
from itertools import chain
from pathlib import Path

import h5py
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image
from safetensors.torch import load_file, save_file

import tersense
from conftest import build_small_imager
from tersense.app.folder import folder_for_guests
from tersense.cli.program import main
from tersense.io.files import MAX_TEXT, folder_written_whole, read_text, written_whole
from tersense.io.images import read_image, write_image
from tersense.measurements.measurements import Measurements
from tersense.models.files import read_model, write_model
from tersense.sensing.patterns import read_patterns
from tersense.training.packing import open_images, resolve_source

SOURCES = sorted(Path(tersense.__file__).parent.rglob("*.py"))
ROOT = Path(__file__).parents[2]


# No file runs code

UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve",
                  "marshal", "subprocess", "runpy", "code"}  # fmt: skip
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen",
                "yaml.load", "np.fromfile"}  # fmt: skip


# The page starts the process that decodes uploads: ourselves, with a fixed line of Python.
STARTS = {"decoder": "[sys.executable, '-P', '-c', _START]"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_unpickles_or_runs_what_it_reads(path):
    unsafe = UNSAFE_MODULES - ({"subprocess"} if path.stem in STARTS else set())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & unsafe
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNSAFE_MODULES
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in UNSAFE_CALLS, f"line {node.lineno}"
            if name.startswith("subprocess."):
                assert name == "subprocess.Popen"
                assert ast.unparse(node.args[0]) == STARTS[path.stem]
            if name in ("np.load", "numpy.load"):
                allowed = {k.arg: ast.unparse(k.value) for k in node.keywords}["allow_pickle"]
                assert allowed == "False"


def test_a_pickle_is_never_read(tmp_path, refused):
    array = np.array([{"an": "object"}], dtype=object)
    np.save(tmp_path / "objects.npy", array, allow_pickle=True)
    with refused("objects.npy"):
        read_patterns(tmp_path / "objects.npy")


@pytest.mark.parametrize(
    "name", ["os", "evil", "../evil", "tersense.app.page", "mlp.__class__", ""]
)
def test_a_model_file_cannot_name_code(tmp_path, monkeypatch, refused, name):
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    description = with_description(tmp_path / "m.safetensors", reconstructor=name)
    assert description["reconstructor"] == name
    with refused("no reconstructor is called"):
        read_model(tmp_path / "m.safetensors")
    assert "evil" not in sys.modules


def test_a_model_file_cannot_name_paths(tmp_path, monkeypatch, capsys):
    # Its texts lead out of the folder; whatever is done with it stays inside.
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    monkeypatch.chdir(sandbox)
    out = "../../escaped"
    about = {"data": {"train": "/etc/passwd", "out": out}, "recipe": {"train": {"out": out}}}
    with_description(sandbox / "m.safetensors", name=out, about=about)
    for words in (["info"], ["demo", "-o", "demo", "-m"], ["export", "c", "-o", "c", "-m"],
                  ["export", "matrix", "-o", "matrix", "-m"]):  # fmt: skip
        assert main([*words, "m.safetensors"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sandbox"]
    assert {path.name for path in sandbox.iterdir()} == {"m.safetensors", "demo", "c", "matrix"}
    assert "root:" not in capsys.readouterr().out


def with_description(path, **changes):
    """Write a model file with some entries of its description changed."""
    write_model(path, build_small_imager())
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    description = json.loads(header["__metadata__"]["tersense"]) | changes
    save_file(load_file(path), path, {"tersense": json.dumps(description)})
    return description


def test_a_configuration_cannot_import_packages(tmp_path, monkeypatch, refused):
    # Looking for a.b imports a.
    package = tmp_path / "evil"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('run')")
    monkeypatch.syspath_prepend(tmp_path)
    with refused("evil.sub"):
        resolve_source("package:evil.sub/pictures")


# No file takes more memory than it is worth


def huge_npy(path):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000, 1000000), }\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return read_patterns


def huge_measurements(path):
    content = build_small_imager().sense(np.zeros((8, 8), np.uint8)).to_bytes()
    path.write_bytes(content.replace(b"[16,1,1]", b"[9,9,99]"))
    return Measurements.load


def huge_model(path):
    with_description(path, options={"hidden": [10**9]})
    return read_model


def huge_patches(path):
    with h5py.File(path, "w") as file:
        made = file.create_dataset("patches", (10**9, 1024), np.uint8, chunks=(10, 1024))
        made[:10] = 7
    return lambda path: open_images(path, 8)


def huge_text(path):
    with path.open("wb") as file:
        file.truncate(MAX_TEXT + 1)
    return read_text


def huge_header(path):
    write_image(path, np.zeros((4, 4), np.uint8))
    content = bytearray(path.read_bytes())
    content[16:24] = (60_000).to_bytes(4) * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4)
    path.write_bytes(content)
    return read_image


def text_bomb(path):
    write_image(path, np.zeros((4, 4), np.uint8))
    content = path.read_bytes()
    data = b"zTXt" + b"a\0\0" + zlib.compress(bytes(2**28))
    chunk = (len(data) - 4).to_bytes(4) + data + zlib.crc32(data).to_bytes(4)
    path.write_bytes(content[:33] + chunk + content[33:])
    return read_image


CLAIMS = {"a.npy": huge_npy, "a.tsm": huge_measurements, "a.safetensors": huge_model,
          "a.h5": huge_patches, "a.toml": huge_text, "a.png": huge_header,
          "text.png": text_bomb}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_what_claims_more_than_it_holds_is_refused_without_memory_for_it(tmp_path, refused, name):
    read = CLAIMS[name](tmp_path / name)
    tracemalloc.start()
    with refused(name):
        read(tmp_path / name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


def test_patches_of_another_file_are_refused(tmp_path, refused):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["patches"] = np.zeros((3, 64), np.uint8)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["patches"] = h5py.ExternalLink("secret.h5", "patches")
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((3, 64), np.uint8)
        layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "patches", (3, 64))
        file.create_virtual_dataset("patches", layout)
    for name in ("link.h5", "virtual.h5"):
        with refused(name, "not stored in this file"):
            open_images(tmp_path / name, 8)


def test_a_large_honest_file_of_equal_patches_is_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("patches", data=np.zeros((20_000, 64), np.uint8), compression="gzip")
    assert len(open_images(tmp_path / "a.h5", 8)) == 20_000


# Temporary files


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_in_the_making_are_private_and_beside_their_target(tmp_path):
    with written_whole(tmp_path / "result.json") as partial:
        assert (permissions(partial), permissions(partial.parent)) == (0o600, 0o700)
        assert partial.parent.parent == tmp_path
    with folder_written_whole(tmp_path / "folder") as partial:
        assert (permissions(partial), permissions(partial.parent)) == (0o700, 0o700)
        assert partial.parent.parent == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "result.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_files_in_the_making_are_removed_whatever_happens(tmp_path, error):
    with pytest.raises(error), written_whole(tmp_path / "result.json"):
        raise error
    with pytest.raises(error), folder_written_whole(tmp_path / "folder"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_images_of_guests_are_private_and_do_not_stay():
    with folder_for_guests() as folder:
        assert permissions(folder) == 0o700
        (folder / "upload.png").write_bytes(b"private")
    assert not folder.exists()


# Dependencies


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in entries)
    return {canonicalize_name(line.split("==")[0]) for line in entries}


def test_everything_that_is_installed_with_us_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    todo, seen = [Requirement(text) for text in texts], set()
    while todo:
        wanted = todo.pop()
        key = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            inside = metadata.requires(wanted.name) or []
        except metadata.PackageNotFoundError:
            continue  # an extra that these tests do not need
        for requirement in map(Requirement, inside):
            extras = [{"extra": extra} for extra in (*wanted.extras, "")]
            if not requirement.marker or any(map(requirement.marker.evaluate, extras)):
                todo.append(requirement)
    base = {"setuptools", "pip"}  # come with Python's own environments
    installed = {name for name, _ in seen if is_installed(name)}
    assert installed - pins() - base == set()


def is_installed(name):
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


# Images


def test_animated_and_many_page_images_give_one_image(tmp_path):
    frames = [Image.fromarray(np.full((8, 8), shade, np.uint8)) for shade in range(50)]
    memory = io.BytesIO()
    frames[0].save(memory, "GIF", save_all=True, append_images=frames[1:])
    (tmp_path / "many.gif").write_bytes(memory.getvalue())
    assert read_image(tmp_path / "many.gif").shape[:2] == (8, 8)
