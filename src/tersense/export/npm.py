"""Packages of the npm registry, taken into an export: pinned, checked, kept between builds.

What a browser runs besides our own files is no part of this package. It is fetched once, as the
registry has it, and refused unless it has the hash that is written here.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import tarfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tersense.errors import TersenseError, one_line
from tersense.io.files import require_file, written_whole

_REGISTRY = "https://registry.npmjs.org/"  # unless NPM_CONFIG_REGISTRY says otherwise, as for npm
_SECONDS = 60
_MAX_BYTES = 2**28


@dataclass(frozen=True)
class Package:
    """A package of one version.

    Args:
        name: As the registry has it.
        version: The one that is tested.
        integrity: `sha512-` and the hash of the archive in base64, as in a lock of npm.
    """

    name: str
    version: str
    integrity: str

    def read(self, names: Sequence[str], source: Path | None = None) -> dict[str, bytes]:
        """Return the content of some files, by their paths in the package.

        Args:
            names: Paths in the package.
            source: The archive (.tgz) or an unpacked folder, where it was downloaded before. None
                for the copy of the last build, or the registry.
        """
        where = "the registry" if source is None else str(source)
        if source is not None and _is_folder(source):
            return self._read_folder(source, names)
        content = self._fetched() if source is None else _read(source)
        if not self._is(content):
            raise TersenseError(
                f"{where} must give {self.name} {self.version} with the hash {self.integrity}, got "
                "something else; download it again"
            )
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = {name: archive.extractfile(f"package/{name}") for name in names}
            return {name: member.read() for name, member in members.items() if member}

    def _read_folder(self, folder: Path, names: Sequence[str]) -> dict[str, bytes]:
        try:
            version = json.loads(_read(folder / "package.json"))["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise TersenseError(f"{folder} is not a package of npm: {one_line(error)}") from error
        if version != self.version:
            raise TersenseError(
                f"{folder} must hold {self.name} {self.version}, got {version}; "
                "leave --runtime out to have it fetched"
            )
        return {name: _read(folder / name) for name in names}

    def _is(self, content: bytes) -> bool:
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        return f"sha512-{digest}" == self.integrity

    def _fetched(self) -> bytes:
        """Return the archive, from the copy of an earlier build if there is a good one."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        kept = Path(home) / "tersense" / f"{self.name}-{self.version}.tgz"
        if kept.is_file() and self._is(content := _read(kept)):
            return content
        registry = os.environ.get("NPM_CONFIG_REGISTRY") or _REGISTRY
        address = f"{registry.rstrip('/')}/{self.name}/-/{self.name}-{self.version}.tgz"
        try:
            with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
                content = bytes(answer.read())
        except (OSError, ValueError) as error:
            raise TersenseError(
                f"{self.name} {self.version} cannot be fetched: {one_line(error)}; download it "
                "elsewhere (npm pack) and give the file with --runtime"
            ) from error
        if self._is(content):
            with contextlib.suppress(OSError, TersenseError):  # the next build fetches it again
                kept.parent.mkdir(parents=True, exist_ok=True)
                with written_whole(kept) as partial:
                    partial.write_bytes(content)
        return content


def _is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        return path.is_dir()
    return False


def _read(path: Path) -> bytes:
    require_file(path, _MAX_BYTES)
    try:
        return path.read_bytes()
    except OSError as error:
        raise TersenseError(f"cannot read {path}: {error.strerror}") from error
