"""Drivers of GPUs that are none: C libraries under the names that the real ones have.

They are loaded by `dlopen` in a process of its own, so the real bindings are tested down to the calling convention.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.patience import PROGRAM_S

_SOURCE = Path(__file__).with_name("fakedrivers.c")
NO_COMPILER = "NO C COMPILER: the reservation program is not tested against the libraries of drivers; install gcc"
LIBRARIES = {"NVML": "libnvidia-ml.so.1", "AMD": "libamd_smi.so"}


@cache
def _built() -> tuple[TemporaryDirectory[str], dict[str, str]]:
    """Vendor -> the folder of its library; the folders go with the process."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip(NO_COMPILER)
    folder = TemporaryDirectory(prefix="kai-drivers-")
    folders = {}
    for vendor, library in LIBRARIES.items():
        place = Path(folder.name) / vendor
        place.mkdir()
        command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", f"-D{vendor}"]
        subprocess.run([*command, "-o", place / library, _SOURCE], check=True, timeout=PROGRAM_S)
        folders[vendor] = str(place)
    return folder, folders


def with_driver(vendor: str, gpus: str = "", status: str = "0", **more: str) -> dict[str, str]:
    """The environment of a container with a driver."""
    _, folders = _built()
    return {"LD_LIBRARY_PATH": folders[vendor], "FAKE_GPUS": gpus, "FAKE_STATUS": status, **more}


def printed(environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and output of `kai reserve --print-only` in a container."""
    command = [sys.executable, "-m", "pykai", "reserve", "--print-only"]
    done = subprocess.run(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_S
    )
    return done.returncode, done.stdout.strip()
