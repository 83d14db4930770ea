"""Unpacks Prometheus and promtool from Debian's package, once, into a cache outside the checkout.

    python tools/prometheus.py        prints the folder of both programs

Needs apt-get and dpkg.  Nothing is installed: the package is downloaded from where apt is set up to find it, and only
the two programs are taken out of it.  They need no library beside libc.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ("prometheus", "promtool")


def cache_folder() -> Path:
    """Where the programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pykai" / "prometheus"


def fetch() -> Path:
    """The folder of the programs, fetched unless they are there; ends the program where they cannot be had."""
    folder = cache_folder()
    if all((folder / program).exists() for program in PROGRAMS):
        return folder
    for needed in ("apt-get", "dpkg"):
        if shutil.which(needed) is None:
            raise SystemExit(f"{needed} is not on PATH; it is needed to fetch Debian's package of Prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        try:
            subprocess.run(["apt-get", "download", "prometheus"], cwd=work, check=True, stdout=sys.stderr)
            (package,) = Path(work).glob("prometheus_*.deb")
            subprocess.run(["dpkg", "-x", package.name, "unpacked"], cwd=work, check=True, stdout=sys.stderr)
        except (subprocess.CalledProcessError, ValueError) as error:
            raise SystemExit(f"Debian's package of Prometheus cannot be had: {error}") from None
        for program in PROGRAMS:
            # Renamed, so that an interrupted run leaves nothing that looks finished.
            (Path(work) / "unpacked" / "usr" / "bin" / program).rename(folder / program)
    return folder


if __name__ == "__main__":
    print(fetch())
