"""The image itself: two builds are equal, nothing of the machine is in it, and it runs with a read-only root.

`make image-check` runs these tests; they need root, Debian's packages and about a minute.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tools.image import oci
from tools.image.container import Container, unpacked
from tools.image.wheels import REPOSITORY, SOURCES, installed

pytestmark = pytest.mark.skipif(
    "KAI_IMAGE" not in os.environ, reason="the image is built and tested by `make image-check`"
)

MOST_PULLED_BYTES = 150_000_000
#: Hosts that metadata and licences of packages name, so they say nothing about the machine.
PUBLIC = {"deb.debian.org", "security.debian.org", "pypi.org", "files.pythonhosted.org"}


@dataclass(frozen=True)
class Result:
    archive: Path
    bill: Path


def build(repository: Path, output: Path, **settings: Any) -> Result:
    environment = {**os.environ, **settings.pop("environment", {})}
    if not (REPOSITORY / ".git").exists():
        environment.setdefault("SOURCE_DATE_EPOCH", "1700000000")
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "tools.image", "--output", str(output)]
    ended = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=False, **settings
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    print(ended.stdout)
    (archive,) = output.glob("*.oci.tar")
    (bill,) = output.glob("*.cdx.json")
    return Result(archive, bill)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return build(REPOSITORY, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def container(image: Result) -> Iterator[Container]:
    with unpacked(image.archive) as container:
        yield container


@pytest.fixture(scope="module")
def bill(image: Result) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(image.bill.read_text(encoding="utf-8"))
    return read


def members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Everything in the layers."""
    _, manifest = oci.manifest_of(archive)
    with tarfile.open(archive) as tar:
        for layer in manifest["layers"]:
            file = tar.extractfile("blobs/" + layer["digest"].replace(":", "/"))
            with tarfile.open(fileobj=file, mode="r:gz") as content:
                for member in content:
                    read = content.extractfile(member) if member.isreg() else None
                    yield member, read.read() if read else b""


def python(container: Container, script: str) -> str:
    """What a script prints in the image."""
    process = container.start(container.command_of(["python3.11", "-c", script]), output=subprocess.PIPE)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def kai(container: Container, *arguments: str) -> str:
    process = container.start(container.command(arguments), output=subprocess.PIPE)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def test_a_build_elsewhere_with_other_settings_is_equal(image: Result, tmp_path: Path) -> None:
    copy = tmp_path / "a copy of the checkout"
    for name in (*SOURCES, ".git"):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    other = build(
        copy,
        tmp_path / "out",
        umask=0o077,
        environment={
            "TMPDIR": str(temporary),
            "UV_CACHE_DIR": str(tmp_path / "cache"),
            "HOME": str(tmp_path),
            "TZ": "Asia/Tokyo",
            "LC_ALL": "C",
            "PYTHONHASHSEED": "7",
        },
    )
    assert oci.manifest_of(other.archive)[0] == oci.manifest_of(image.archive)[0]
    first, second = ({member.name: content for member, content in members(each.archive)} for each in (image, other))
    assert sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name)) == []
    assert other.archive.read_bytes() == image.archive.read_bytes()
    assert other.bill.read_bytes() == image.bill.read_bytes()
    assert list(temporary.iterdir()) == []


def test_it_is_small(image: Result) -> None:
    pulled = oci.pulled_bytes(oci.manifest_of(image.archive)[1])
    print(f"{pulled / 1e6:.1f} MB to pull")
    assert pulled < MOST_PULLED_BYTES


def test_blobs_have_the_digests_that_name_them(image: Result) -> None:
    with tarfile.open(image.archive) as tar:
        names = [each for each in tar.getnames() if re.fullmatch(r"blobs/sha256/[0-9a-f]{64}", each)]
        assert len(names) == 5  # manifest, configuration, three layers
        for name in names:
            file = tar.extractfile(name)
            assert file is not None
            assert hashlib.sha256(file.read()).hexdigest() == Path(name).name


def test_configuration(image: Result) -> None:
    config = oci.config_of(image.archive)
    assert config["config"]["User"] == "10000:10000"
    assert config["config"]["Entrypoint"] == ["kai"]
    assert dict(each.split("=", 1) for each in config["config"]["Env"]) == oci.ENVIRONMENT
    assert config["os"] == "linux"
    times = {config["created"], *(each["created"] for each in config["history"])}
    assert len(times) == 1


def test_root_owns_all_files_and_none_has_special_rights(image: Result) -> None:
    found = [member for member, _ in members(image.archive)]
    assert len(found) > 3000
    assert {(each.uid, each.gid) for each in found} == {(0, 0)}
    writable = [each.name for each in found if not each.issym() and each.mode & 0o6022]
    assert writable == ["tmp", "var/tmp"]
    assert [each.name for each in found if not (each.isreg() or each.isdir() or each.issym() or each.islnk())] == []


def test_it_has_no_package_manager_shell_or_cache(image: Result) -> None:
    unwanted = re.compile(
        r"etc/apt\b|var/cache\b|var/lib/apt\b|var/log\b|.*/\.cache\b|.*\.(deb|whl)$"
        r"|(usr/)?s?bin/(apt|dpkg|sh$|bash|dash|pip|perl|curl)|.*/(pip|uv|setuptools)(-[^/]+)?(/|$)"
    )
    assert [member.name for member, _ in members(image.archive) if unwanted.match(member.name)] == []
    programs = [
        member.name
        for member, _ in members(image.archive)
        if re.match(r"(usr/)?(local/)?s?bin/.", member.name) and not member.isdir()
    ]
    assert programs == ["usr/bin/python3.11", "usr/local/bin/kai"]


def configured_addresses() -> set[str]:
    """The hosts from which this machine takes packages."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=False
    )
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    variables = [value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))]
    addresses = re.findall(r"https?://[^\s'\"]+", "\n".join([listed.stdout, pip.stdout, *variables]))
    return {host for each in addresses if (host := urlsplit(each).hostname)} - PUBLIC


def test_nothing_of_this_machine_is_in_it(image: Result) -> None:
    traces = {str(REPOSITORY), sys.prefix, "kai-image-", str(image.archive.parent), *configured_addresses()}
    searched = {each.encode() for each in traces}
    found = [
        (member.name, trace)
        for member, content in members(image.archive)
        for trace in searched
        if trace in content or trace in member.name.encode() or trace in member.linkname.encode()
    ]
    assert found == []
    documents = [json.dumps(oci.config_of(image.archive)), image.bill.read_text(encoding="utf-8")]
    assert [trace for trace in traces for document in documents if trace in document] == []


def test_only_tmp_can_be_written_and_the_user_has_no_rights(container: Container) -> None:
    script = """
import errno, json, os
codes = {}
for folder, _, _ in os.walk("/"):
    if folder.startswith(("/proc", "/sys")):
        continue
    try:
        os.close(os.open(folder + "/probe", os.O_CREAT | os.O_WRONLY))
        codes.setdefault("written", []).append(folder)
    except OSError as error:
        codes.setdefault(errno.errorcode[error.errno], []).append(folder)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "written": codes.pop("written"), "refused": {name: len(folders) for name, folders in codes.items()},
    "var": os.statvfs("/var").f_flag & os.ST_RDONLY, "ids": os.getresuid() + os.getresgid(), "groups": os.getgroups(),
    "capabilities": status["CapEff"].strip(),
}))
"""
    found = json.loads(python(container, script))
    assert found["written"] == ["/tmp"]
    # The kernel says EROFS, not EACCES, where the user could write if the root were writable.
    assert found["refused"].keys() <= {"EROFS", "EACCES"}
    assert found["refused"]["EROFS"] >= 1
    assert found["var"] == os.ST_RDONLY
    assert found["ids"] == [10000] * 6
    assert found["groups"] == []
    assert int(found["capabilities"], 16) == 0


def test_every_library_finds_those_it_needs(container: Container) -> None:
    """Packages that were left out as unneeded are unneeded."""
    script = """
import ctypes, pathlib
files = sorted(path for path in pathlib.Path("/usr").rglob("*.so*") if path.is_file())
for path in files:
    ctypes.CDLL(str(path))
print(len(files))
"""
    assert int(python(container, script)) > 100


def test_every_module_of_ours_can_be_imported(container: Container) -> None:
    script = """
import importlib, pkgutil, pykai, ssl
names = [each.name for each in pkgutil.walk_packages(pykai.__path__, "pykai.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
for name in ("cel_expr_python", "grpc", "pynvml", "uvloop"):
    importlib.import_module(name)
assert ssl.create_default_context().cert_store_stats()["x509_ca"] > 100
print(len(names), pykai.__file__)
"""
    count, path = python(container, script).split()
    assert int(count) > 300
    assert path == "/usr/local/lib/python3.11/dist-packages/pykai/__init__.py"


def test_modules_are_compiled_for_a_root_that_cannot_be_written(container: Container) -> None:
    sources = [path for path in container.root.rglob("*.py") if "python3.11" in path.parts]
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in sources]
    missing = [path for path in compiled if not path.exists()]
    assert len(sources) > 1000
    # Some files of the standard library and of packages are examples of wrong syntax.
    assert [path for path in missing if "pykai" in path.parts] == []
    assert len(missing) < 20


def test_it_says_its_version(container: Container) -> None:
    (version,) = (each.version for each in installed(container.root) if each.name == "pykai")
    assert kai(container, "--version").strip() == f"kai, version {version}"


def test_scheduling_rounds_run_in_it(container: Container) -> None:
    """API server, webhooks and all services over loopback, until the last job is done."""
    output = kai(container, "up", "--plain", "--until-done", "--speed", "100")
    assert re.search(r"[1-9]\d* pods placed, \d+ waiting|consolidation: \d+ pods", output), output


def test_the_bill_lists_what_is_inside_and_nothing_else(
    image: Result, container: Container, bill: dict[str, Any]
) -> None:
    debian = {f"deb/debian/{each.name}" for each in (container.root / "var/lib/dpkg/status.d").iterdir()}
    wheels = {f"pypi/{re.sub(r'[-_.]+', '-', each.name).lower()}" for each in installed(container.root)}
    listed = [unquote(each["purl"]).removeprefix("pkg:").partition("@")[0] for each in bill["components"]]
    assert sorted(listed) == sorted(debian | wheels)
    assert {"pypi/pykai", "pypi/grpcio", "pypi/nvidia-ml-py", "deb/debian/python3.11-minimal"} <= set(listed)
    assert {each["ref"] for each in bill["dependencies"]} <= {
        bill["metadata"]["component"]["bom-ref"],
        *(each["bom-ref"] for each in bill["components"]),
    }
    digest, _ = oci.manifest_of(image.archive)
    (stated,) = bill["metadata"]["component"]["hashes"]
    assert f"sha256:{stated['content']}" == digest
