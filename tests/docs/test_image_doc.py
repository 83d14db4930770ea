"""docs/image.md states what the image has: names, user, programs and limits."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from tests.image.test_image import MOST_PULLED_BYTES
from tools.image import debian, oci, sbom
from tools.image.programs import NEEDED

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs/image.md").read_text(encoding="utf-8")


def test_user_limit_and_format_are_those_of_the_build() -> None:
    assert f"User and group are {debian.USER};" in DOC
    assert f"must stay below {MOST_PULLED_BYTES // 1_000_000} MB" in DOC
    assert f"CycloneDX's JSON ({sbom.SPEC_VERSION})" in DOC
    assert f"`python{debian.PYTHON}` and `kai`" in DOC
    assert f"Python {debian.PYTHON}, its libraries" in DOC


def test_what_is_to_be_installed_is_what_the_build_needs() -> None:
    (line,) = re.findall(r"^apt-get install ([a-z ]+?) +#", DOC, re.MULTILINE)
    # The others are on every Debian.
    assert set(line.split()) == set(NEEDED.values()) - {"coreutils", "dpkg", "mount", "util-linux"}


def test_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make (image[a-z-]*)", DOC)):
        assert re.search(rf"^{target}: .*## ", makefile, re.MULTILINE), target


def test_labels_and_lock_are_named_as_they_are() -> None:
    labels = oci.Facts(version="1", revision="x", epoch=0, architecture="amd64").labels
    assert set(re.findall(r"`(org\.opencontainers[.a-z]+)`", DOC)) <= labels.keys()
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["tool"]["hatch"]["version"]["path"] == "src/pykai/__init__.py"


def test_the_pod_takes_away_what_can_be_taken_away() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", DOC, re.DOTALL)
    spec = yaml.safe_load(block)["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [each["mountPath"] for each in container["volumeMounts"]] == [oci.ENVIRONMENT["HOME"]]
