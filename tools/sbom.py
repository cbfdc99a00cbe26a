"""Write the bill of materials (CycloneDX) that the wheel carries: `locks/tersense.cdx.json`.

    python tools/sbom.py      (make dist)

It names what `pip install tersense` brings, with the versions and hashes of `locks/core.txt`, the
licenses that the packages state, and who needs whom; and what the package holds besides Python,
with the licenses of `REUSE.toml`. The same inputs give the same file, without a date or a number.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tersense

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "locks" / "tersense.cdx.json"
_LONGEST_NAME = 60  # of a license; what is longer is its text


def read_lock(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return version and SHA-256 hashes of every package of a lock."""
    text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.-]+)==(\S+)((?:.*\\\n)+.*\n)", text, re.MULTILINE)
    return {
        canonicalize_name(package): (version, re.findall(r"sha256:([0-9a-f]{64})", rest))
        for package, version, rest in entries
    }


def needs(requirements: list[str]) -> set[str]:
    """Return the packages that requirements name, of those that are needed without extras."""
    found = [Requirement(text) for text in requirements]
    return {
        canonicalize_name(requirement.name)
        for requirement in found
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


def licenses_of(package: str) -> list[License]:
    """Return what a package says of its license."""
    about = metadata.metadata(package)
    if "License-Expression" in about:
        return [LicenseExpression(about["License-Expression"])]
    marks = about.get_all("Classifier") or []
    named = [mark.split(" :: ")[-1] for mark in marks if mark.startswith("License :: ")]
    if not named and 0 < len(about.get("License") or "") < _LONGEST_NAME:
        named = [about["License"]]
    return [DisjunctiveLicense(name=name) for name in named]


def package_component(name: str, version: str, hashes: list[str]) -> Component:
    """Describe a package by its files."""
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, bom_ref=name,
        purl=PackageURL("pypi", None, name, version), licenses=licenses_of(name),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=text) for text in hashes],
    )  # fmt: skip


def assets() -> list[tuple[Path, dict[str, Any]]]:
    """Return every file of the package that REUSE.toml names, with what it says."""
    listed = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    found = []
    for entry in listed:
        paths = entry["path"] if isinstance(entry["path"], list) else [entry["path"]]
        paths = [path for path in paths if path.startswith("src/")]  # the wheel has nothing else
        files = [path for pattern in paths for path in sorted(ROOT.glob(pattern)) if path.is_file()]
        found += [(path, entry) for path in files]
    return found


def asset_component(path: Path, about: dict[str, Any]) -> Component:
    """Describe a file of the package; its hash is in the wheel's own RECORD."""
    name = path.relative_to(ROOT / "src").as_posix()
    return Component(
        name=name, type=ComponentType.FILE, bom_ref=name,
        licenses=[DisjunctiveLicense(id=about["SPDX-License-Identifier"])],
        copyright=about["SPDX-FileCopyrightText"],
    )  # fmt: skip


def build_bom() -> Bom:
    """Return the whole bill: the package, what lies in it, and what comes with it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = read_lock("core")
    graph, todo = {"tersense": needs(project["dependencies"])}, needs(project["dependencies"])
    while todo:
        name = todo.pop()
        if name in locked and name not in graph:  # GPU libraries have a lock of their own
            graph[name] = needs(metadata.requires(name) or [])
            todo |= graph[name]
    root = Component(
        name="tersense", version=tersense.__version__, type=ComponentType.LIBRARY,
        bom_ref="tersense", purl=PackageURL("pypi", None, "tersense", tersense.__version__),
        licenses=[DisjunctiveLicense(id=project["license"])],
        components=[asset_component(*asset) for asset in assets()],
    )  # fmt: skip
    parts = {"tersense": root}
    parts |= {name: package_component(name, *locked[name]) for name in graph if name in locked}
    bom = Bom(components=[part for part in parts.values() if part is not root])
    bom.metadata.component = root
    for name, part in parts.items():
        bom.register_dependency(part, [parts[other] for other in graph[name] if other in parts])
    return bom


def to_text(bom: Bom) -> str:
    """Return the bill as JSON, without its date and number, checked against the schema."""
    full = JsonV1Dot6(bom).output_as_string(indent=1)
    text = re.sub(r'^ *"(?:timestamp|serialNumber)": "[^"]*",?\n', "", full, flags=re.MULTILINE)
    text = re.sub(r",(\n *\})", r"\1", text)  # where it was the last of its table
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        raise SystemExit(f"the bill of materials is not valid: {fault}")
    return text + "\n"


if __name__ == "__main__":
    TARGET.write_text(to_text(build_bom()), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)} is written")
