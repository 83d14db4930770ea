"""The locks of the image and the Dockerfile: hashes for all, no address of an index, and the same image both ways."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.image import debian, oci
from tools.image.wheels import LOCK, REPOSITORY

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
LOCKS = (LOCK.name, "requirements-build.lock")


def project() -> dict[str, dict[str, list[str]]]:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        found: dict[str, dict[str, list[str]]] = tomllib.load(file)["project"]
    return found


def locked(name: str) -> dict[str, str]:
    """Name -> version and hashes."""
    entries = re.split(r"\n(?=\S)", (REPOSITORY / name).read_text(encoding="utf-8").strip())
    return {canonicalize_name(each.partition("==")[0]): each for each in entries}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_one_version_and_hashes_and_no_address(name: str) -> None:
    for package, entry in locked(name).items():
        assert re.match(r"[A-Za-z0-9._-]+==\S+( ; [^\\]+)? \\\n    --hash=sha256:[0-9a-f]{64}", entry), package
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=)", text, re.MULTILINE)


def test_the_image_has_every_dependency_and_every_extra_in_a_version_that_is_asked_for() -> None:
    lock = locked(LOCK.name)
    extras: dict[str, list[str]] = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(each for extra in extras.values() for each in extra)]
    assert extras
    for text in wanted:
        requirement = Requirement(text)
        entry = lock.get(canonicalize_name(requirement.name))
        assert entry, f"{text} is not in {LOCK.name}: run `make lock`"
        version = entry.split("==")[1].split()[0]
        assert requirement.specifier.contains(version), f"{LOCK.name} has {version}, but {text} is asked for"


def test_the_image_runs_the_versions_that_are_tested() -> None:
    image, dev = locked(LOCK.name), locked("requirements-dev.lock")
    versions = {name: (entry.split()[0], dev[name].split()[0]) for name, entry in image.items() if name in dev}
    assert len(versions) > 10
    assert {name: pair for name, pair in versions.items() if pair[0] != pair[1]} == {}


def test_the_dockerfile_installs_from_the_locks_only() -> None:
    installs = [line for line in DOCKERFILE.splitlines() if "pip install" in line or "/opt/kai install" in line]
    assert len(installs) == 3
    for line in installs:
        assert ("--require-hashes" in line and "--only-binary :all:" in line) or "--no-index" in line, line
    assert {name for name in LOCKS if f"--requirement {name}" in DOCKERFILE} == set(LOCKS)


def test_the_dockerfile_sets_what_the_archive_has() -> None:
    assert f"USER {debian.USER}:{debian.USER}\n" in DOCKERFILE
    assert 'ENTRYPOINT ["kai"]' in DOCKERFILE
    (line,) = re.findall(r"^ENV (PATH=.*)$", DOCKERFILE, re.MULTILINE)
    environment = dict(each.split("=", 1) for each in line.split())
    # The virtual environment of the Dockerfile comes first.
    assert environment == {**oci.ENVIRONMENT, "PATH": f"/opt/kai/bin:{oci.ENVIRONMENT['PATH']}"}


def test_the_dockerfile_may_copy_what_it_copies() -> None:
    sent = {
        line[1:] for line in (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"
    }
    copied = {
        name for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in names.split()
    }
    assert copied == sent
    assert [name for name in copied if not (REPOSITORY / name).exists()] == []


def test_no_registry_is_named() -> None:
    (base,) = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert not re.search(r"[.:/].*/", base)
    assert "://" not in DOCKERFILE
