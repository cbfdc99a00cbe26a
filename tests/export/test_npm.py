"""Packages of npm: fetched once, checked by their hash, or taken from the user's disk."""

import base64
import hashlib
import io
import json
import tarfile

import pytest

import tersense.export.npm
from tersense.export.npm import Package


def archive(**files):
    """Return an archive as the registry of npm has it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            made.addfile(member, io.BytesIO(text))
    return content.getvalue()


def package_of(content):
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return Package("some", "1.2.3", f"sha512-{digest}")


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry that counts what it is asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked, answer = [], []

    def urlopen(address, timeout):
        asked.append(address)
        if not answer:
            raise OSError("no route to host")
        return io.BytesIO(answer[0])

    monkeypatch.setattr(tersense.export.npm.urllib.request, "urlopen", urlopen)
    return asked, answer


def test_a_package_is_fetched_once_and_again_when_the_copy_is_damaged(registry, tmp_path):
    asked, answer = registry
    answer.append(archive(a=b"hello"))
    package = package_of(answer[0])
    for _ in range(2):
        assert package.read(["a"]) == {"a": b"hello"}
    assert len(asked) == 1
    (tmp_path / "cache/tersense/some-1.2.3.tgz").write_bytes(b"half")
    assert package.read(["a"]) == {"a": b"hello"}
    assert len(asked) == 2


def test_another_package_than_the_pinned_one_is_refused(registry, tmp_path, refused):
    asked, answer = registry
    package = package_of(archive(a=b"hello"))
    with refused("cannot be fetched", "no route to host", "--runtime"):
        package.read(["a"])
    answer.append(archive(a=b"hello and more"))
    with refused("the registry must give some 1.2.3"):
        package.read(["a"])
    assert not list((tmp_path / "cache").rglob("*.tgz"))  # it is not kept
    (tmp_path / "mine.tgz").write_bytes(answer[0])
    with refused(tmp_path / "mine.tgz", "some 1.2.3"):
        package.read(["a"], tmp_path / "mine.tgz")
    with refused("cannot read", "none.tgz"):
        package.read(["a"], tmp_path / "none.tgz")
    assert len(asked) == 2


def test_a_package_of_ones_own_is_read_without_the_network(registry, tmp_path, refused):
    content = archive(a=b"hello")
    (tmp_path / "some.tgz").write_bytes(content)
    assert package_of(content).read(["a"], tmp_path / "some.tgz") == {"a": b"hello"}
    unpacked = tmp_path / "some"
    unpacked.mkdir()
    (unpacked / "a").write_bytes(b"hello")
    (unpacked / "package.json").write_text(json.dumps({"version": "1.2.3"}))
    assert package_of(content).read(["a"], unpacked) == {"a": b"hello"}
    (unpacked / "package.json").write_text(json.dumps({"version": "1.2.4"}))
    with refused("must hold some 1.2.3, got 1.2.4"):
        package_of(content).read(["a"], unpacked)
    (unpacked / "package.json").write_text("[]")
    with refused("not a package of npm"):
        package_of(content).read(["a"], unpacked)
    assert not registry[0]
