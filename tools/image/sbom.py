"""The bill of materials of an image in CycloneDX's JSON: each Debian and Python package, its version and its licence.

It depends on the content of the image alone: the serial number is derived from the digest, the time is the one of the
commit, components are sorted.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from importlib.metadata import Distribution
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement

from tools.image.debian import PYTHON, RELEASE, Package
from tools.image.oci import Facts

#: 1.5 is the newest version that the scanners of the last years read.
SPEC_VERSION = "1.5"
_OURS = "pykai"


def bill_of_materials(
    facts: Facts, digest: str, packages: Sequence[Package], wheels: Sequence[Distribution]
) -> dict[str, Any]:
    """The document for an image with this manifest digest."""
    image = f"pkg:oci/kai@{quote(digest, safe='')}?arch={facts.architecture}&tag={facts.version}"
    components = [*map(_debian, packages), *map(_python, wheels)]
    components.sort(key=lambda each: str(each["bom-ref"]))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, image)}",
        "version": 1,
        "metadata": {
            "timestamp": facts.created,
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": "kai",
                "version": facts.version,
                "purl": image,
                "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "dependencies": _dependencies(image, packages, wheels),
    }


def debian_purl(package: Package) -> str:
    """The package URL of a Debian package."""
    name, version = quote(package.name), quote(package.version, safe="")
    return f"pkg:deb/debian/{name}@{version}?arch={package.architecture}&distro=debian-{RELEASE}"


def python_purl(name: str, version: str) -> str:
    """The package URL of a Python package."""
    return f"pkg:pypi/{normal(name)}@{quote(version)}"


def normal(name: str) -> str:
    """The one spelling of a Python package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _debian(package: Package) -> dict[str, Any]:
    purl = debian_purl(package)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "description": package.description,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
    }


def _python(wheel: Distribution) -> dict[str, Any]:
    purl = python_purl(wheel.name, wheel.version)
    component: dict[str, Any] = {
        "type": "application" if wheel.name == _OURS else "library",
        "bom-ref": purl,
        "name": normal(wheel.name),
        "version": wheel.version,
        "purl": purl,
    }
    if summary := wheel.metadata["Summary"]:
        component["description"] = summary
    if licenses := _licenses(wheel):
        component["licenses"] = licenses
    return component


def _licenses(wheel: Distribution) -> list[dict[str, Any]]:
    if expression := wheel.metadata["License-Expression"]:
        return [{"expression": expression}]
    prefix = "License :: "
    classifiers = [each for each in wheel.metadata.get_all("Classifier") or [] if each.startswith(prefix)]
    names = [each.rpartition(" :: ")[2] for each in classifiers]
    # Some packages put the whole text of their licence into this field.
    stated = wheel.metadata["License"] or ""
    if not names and stated and "\n" not in stated:
        names = [stated]
    return [{"license": {"name": name}} for name in names]


def _dependencies(image: str, packages: Sequence[Package], wheels: Sequence[Distribution]) -> list[dict[str, Any]]:
    refs = {normal(each.name): python_purl(each.name, each.version) for each in wheels}
    extras = _extras_of_ours(wheels)
    listed = [{"ref": image, "dependsOn": sorted([*map(debian_purl, packages), refs[_OURS]])}]
    for wheel in sorted(wheels, key=lambda each: normal(each.name)):
        needs = _needed_by(wheel, extras if wheel.name == _OURS else {""})
        found = sorted({refs[each] for each in needs & refs.keys()})
        listed.append({"ref": refs[normal(wheel.name)], "dependsOn": found})
    return listed


def _extras_of_ours(wheels: Sequence[Distribution]) -> set[str]:
    ours = next(each for each in wheels if each.name == _OURS)
    return {"", *(ours.metadata.get_all("Provides-Extra") or [])}


def _needed_by(wheel: Distribution, extras: set[str]) -> set[str]:
    # Of the interpreter of the image, which may differ from the one that runs this.
    interpreter = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    needed = set()
    for text in wheel.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**interpreter, "extra": extra}) for extra in extras):
            needed.add(normal(requirement.name))
    return needed - {_OURS}
