"""The bill of materials: every package once, with names that scanners know, and nothing that changes by itself."""

from __future__ import annotations

import json
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from tools.image.debian import Package
from tools.image.oci import Facts
from tools.image.sbom import bill_of_materials
from tools.image.wheels import SITE, installed

FACTS = Facts(version="1.2.3", revision="abc", epoch=1_700_000_000, architecture="amd64")
DIGEST = "sha256:" + "ab" * 32
OURS = (
    "Name: pykai\nVersion: 1.2.3\nSummary: The scheduler\nLicense-Expression: Apache-2.0\nProvides-Extra: speed\n"
    "Requires-Dist: PyYAML>=6\nRequires-Dist: uv_loop; extra == 'speed'\nRequires-Dist: old; python_version < '3.10'\n"
)
OTHERS = {
    "PyYAML": "Name: PyYAML\nVersion: 6.0\nClassifier: License :: OSI Approved :: MIT License\n",
    "uv_loop": "Name: uv_loop\nVersion: 0.2\nLicense: MIT\nRequires-Dist: pytest; extra == 'test'\n",
    "old": "Name: old\nVersion: 1\nLicense: a text\n of several lines\n",
}


def wheels(root: Path) -> list[Distribution]:
    for name, metadata in {"pykai": OURS, **OTHERS}.items():
        folder = root / SITE / f"{name}-1.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{metadata}", encoding="utf-8")
    return installed(root)


def zlib(folder: Path) -> Package:
    control = (
        "Package: zlib1g\nVersion: 1:1.2.13.dfsg-1\nArchitecture: amd64\nDescription: compression library\n more\n"
    )
    return Package("zlib1g", "1:1.2.13.dfsg-1", "amd64", control, "cd" * 32, folder / "zlib.deb")


def bill(folder: Path, digest: str = DIGEST) -> dict[str, Any]:
    return bill_of_materials(FACTS, digest, [zlib(folder)], wheels(folder))


def test_it_names_the_image_by_digest_and_time_of_the_commit(tmp_path: Path) -> None:
    found = bill(tmp_path)
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.5", 1)
    metadata = found["metadata"]
    assert metadata["timestamp"] == "2023-11-14T22:13:20Z"
    assert metadata["component"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert metadata["component"]["purl"] == f"pkg:oci/kai@sha256%3A{'ab' * 32}?arch=amd64&tag=1.2.3"


def test_packages_have_urls_that_scanners_know(tmp_path: Path) -> None:
    components = {each["name"]: each for each in bill(tmp_path)["components"]}
    assert {name: each["purl"] for name, each in components.items()} == {
        "zlib1g": "pkg:deb/debian/zlib1g@1%3A1.2.13.dfsg-1?arch=amd64&distro=debian-12",
        "pykai": "pkg:pypi/pykai@1.2.3",
        "pyyaml": "pkg:pypi/pyyaml@6.0",
        "uv-loop": "pkg:pypi/uv-loop@0.2",
        "old": "pkg:pypi/old@1",
    }
    assert components["zlib1g"]["hashes"] == [{"alg": "SHA-256", "content": "cd" * 32}]
    assert components["zlib1g"]["description"] == "compression library"
    assert components["pykai"]["type"] == "application"


def test_licences_are_an_expression_a_classifier_or_a_short_statement(tmp_path: Path) -> None:
    components = {each["name"]: each.get("licenses") for each in bill(tmp_path)["components"]}
    assert components["pykai"] == [{"expression": "Apache-2.0"}]
    assert components["pyyaml"] == [{"license": {"name": "MIT License"}}]
    assert components["uv-loop"] == [{"license": {"name": "MIT"}}]
    assert components["old"] is None


def test_extras_of_ours_count_and_those_of_others_do_not(tmp_path: Path) -> None:
    depends = {each["ref"]: each["dependsOn"] for each in bill(tmp_path)["dependencies"]}
    assert depends["pkg:pypi/pykai@1.2.3"] == ["pkg:pypi/pyyaml@6.0", "pkg:pypi/uv-loop@0.2"]
    assert depends["pkg:pypi/uv-loop@0.2"] == []


def test_it_depends_on_the_image_alone(tmp_path: Path) -> None:
    assert json.dumps(bill(tmp_path)) == json.dumps(bill(tmp_path))
    assert bill(tmp_path)["serialNumber"] != bill(tmp_path, "sha256:" + "ef" * 32)["serialNumber"]
