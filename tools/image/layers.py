"""A layer of an image: a tar archive of files below a folder, equal for equal files.

Order, owners, times and modes do not depend on the machine or on the time of the build: paths are sorted, root owns
everything, all times are the same, and of the modes only "may be run" and the sticky bit of /tmp count.  In particular
no program of the image runs with the rights of its owner.
"""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path

#: The time of files that are not ours: with one that never changes, a layer is the same for every commit with the same
#: packages, and is stored and pulled once.  1980 is the first year that zip files know.
UNCHANGING = 315532800


def paths_below(root: Path) -> list[str]:
    """All files, links and folders below a folder, sorted, relative to it; links are not followed."""
    found: list[str] = []
    waiting = [root]
    while waiting:
        for path in waiting.pop().iterdir():
            found.append(path.relative_to(root).as_posix())
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
    return sorted(found)


def write_layer(root: Path, paths: Iterable[str], mtime: int, archive: Path) -> None:
    """Write those paths of a folder into a tar archive, with one time for all."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths):
            add(tar, root, path, mtime)


def add(tar: tarfile.TarFile, root: Path, path: str, mtime: int) -> None:
    """Add one path to an archive without anything that depends on the machine."""
    full = root / path
    member = tar.gettarinfo(full, arcname=path)
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise ValueError(f"{full}: neither a file, a folder nor a link; an image of ours holds nothing else")
    member.mtime = mtime
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = _mode(member)
    member.pax_headers = {}
    if member.isreg():
        with full.open("rb") as file:
            tar.addfile(member, file)
    else:
        tar.addfile(member)


def _mode(member: tarfile.TarInfo) -> int:
    if member.issym():
        return 0o777
    if member.isdir():
        return 0o1777 if member.mode & stat.S_ISVTX else 0o755
    return 0o755 if member.mode & 0o111 else 0o644
