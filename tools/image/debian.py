"""The lowest layer: an interpreter and the libraries of our dependencies, from Debian packages.

mmdebstrap resolves, fetches and verifies the packages; they are only unpacked, and no script of a package runs, because
the few effects we need (the certificates, the users) are written here.  What packages need only to install or to
configure themselves is left out, so the image has neither a shell nor a package manager.

Each package leaves its control file in /var/lib/dpkg/status.d, where scanners for known vulnerabilities look for it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shlex
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from tools.image.layers import paths_below
from tools.image.programs import run

SUITE = "bookworm"
RELEASE = "12"
#: The interpreter of that suite, which is the one the tests run on.
PYTHON = "3.11"
USER = 10000

#: Package -> what it is for.  Their dependencies come with them.
WANTED = {
    "base-files": "the folders of a system, and /etc/os-release for scanners",
    "ca-certificates": "https to servers outside the cluster, such as Prometheus",
    f"python{PYTHON}": "the interpreter",
    "libstdc++6": "numpy, re2 and CEL link to it",
    "tzdata": "time zones of schedules",
}

#: What others depend on, but only their maintainer scripts or modules that are left out use.
NOT_NEEDED = {
    "debconf": "asks questions during an installation",
    "dpkg": "the package manager",
    "mawk": "awk, for the script of base-files",
    "openssl": "the program; the library is libssl3",
    "readline-common": "key bindings, and through it dpkg",
    "tar": "dpkg",
    "libacl1": "tar",
    "libmd0": "dpkg",
    "libpcre2-8-0": "libselinux1",
    "libselinux1": "dpkg and tar",
    "libzstd1": "dpkg",
    "libdb5.3": "the module dbm.ndbm",
    "libcom-err2": "Kerberos",
    "libgssapi-krb5-2": "Kerberos",
    "libk5crypto3": "Kerberos",
    "libkeyutils1": "Kerberos",
    "libkrb5-3": "Kerberos",
    "libkrb5support0": "Kerberos",
    "libnsl2": "the module nis",
    "libtirpc-common": "the module nis, and Kerberos through it",
    "libtirpc3": "the module nis, and Kerberos through it",
}

#: Files and folders of packages that no service reads; licences (`copyright`) stay.
_DROPPED = (
    "boot",
    "etc/default",
    "etc/dpkg",
    "etc/issue*",
    "etc/profile.d",
    "etc/python*",
    "etc/skel",
    "etc/update-motd.d",
    "lib/systemd",
    "usr/bin/pdb*",
    "usr/bin/pydoc*",
    "usr/bin/pygettext*",
    f"usr/lib/python{PYTHON}/lib-dynload/_dbm.*",
    f"usr/lib/python{PYTHON}/lib-dynload/nis.*",
    f"usr/lib/python{PYTHON}/pydoc_data/topics.py",
    "usr/lib/python*/sitecustomize.py",
    # Character sets for iconv; Python has its own.
    "usr/lib/*/gconv",
    "usr/sbin/*",
    "usr/share/applications",
    "usr/share/base-files",
    "usr/share/binfmts",
    "usr/share/bug",
    "usr/share/gcc",
    "usr/share/gdb",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/pixmaps",
    "usr/share/python*",
    "usr/games",
    "usr/include",
    "usr/src",
    "var/backups",
    "var/cache",
    "var/lib/dpkg",
    "var/lock",
    "var/log",
)

_PASSWD = f"root:x:0:0:root:/:/nonexistent\nkai:x:{USER}:{USER}:kai:/tmp:/nonexistent\n"
_GROUP = f"root:x:0:\nkai:x:{USER}:\n"
_NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
#: The runtimes of GPU vendors mount libraries into the folders named there and run their own ldconfig.
_LD_SO_CONF = "include /etc/ld.so.conf.d/*.conf\n"
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Package:
    """One Debian package of the image."""

    name: str
    version: str
    architecture: str
    #: the control file, as in the package
    control: str
    #: of the .deb file
    sha256: str
    file: Path

    @property
    def description(self) -> str:
        """The first line of the description."""
        return str(HeaderParser().parsestr(self.control)["Description"]).splitlines()[0]


def fetch(folder: Path, mirror: str | None = None) -> list[Package]:
    """Fetch the packages of the image into `folder`; in order of their names."""
    temporary = folder / "mmdebstrap"
    debs = folder / "debs"
    temporary.mkdir()
    debs.mkdir()
    keep = f'cp "$1"/var/cache/apt/archives/*.deb {shlex.quote(str(debs))}/'
    command = [
        # Whatever mmdebstrap mounts is gone with it, also if it is killed.
        *("unshare", "--mount", "--propagation", "private", "mmdebstrap", "--quiet"),
        *("--mode=root", "--variant=extract", "--format=null"),
        *(f"--include={','.join(WANTED)}", f"--extract-hook={keep}"),
        *(SUITE, "/dev/null", *([mirror] if mirror else [])),
    ]
    run(command, env={**os.environ, "TMPDIR": str(temporary), "LC_ALL": "C.UTF-8"})
    packages = [read(file) for file in debs.glob("*.deb")]
    return sorted((each for each in packages if each.name not in NOT_NEEDED), key=lambda each: each.name)


def read(file: Path) -> Package:
    """What a .deb file says about itself."""
    control = run(["dpkg-deb", "--field", file])
    fields = HeaderParser().parsestr(control)
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        architecture=fields["Architecture"],
        control=control,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        file=file,
    )


def unpack(packages: list[Package], root: Path) -> None:
    """Write the files of the packages, and those their scripts would have written, below `root`."""
    root.mkdir()
    for package in packages:
        run(["dpkg-deb", "--extract", package.file, root])
    _drop(root)
    for package in packages:
        _write(root / "var/lib/dpkg/status.d" / package.name, f"Status: install ok installed\n{package.control}")
    _write(root / "etc/passwd", _PASSWD)
    _write(root / "etc/group", _GROUP)
    _write(root / "etc/nsswitch.conf", _NSSWITCH)
    _write(root / "etc/ld.so.conf", _LD_SO_CONF)
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    _write(root / _CERTIFICATES, "".join(file.read_text(encoding="utf-8") for file in certificates))
    # Where libssl3 looks; the package openssl would have put it there.
    (root / "usr/lib/ssl").mkdir(exist_ok=True)
    (root / "usr/lib/ssl/cert.pem").symlink_to(f"/{_CERTIFICATES}")


def dropped(path: str) -> bool:
    """Whether a file or folder of a package is left out of the image; `path` is relative to its root."""
    if path.startswith("usr/share/doc/"):
        return not path.endswith("/copyright")
    pure = PurePosixPath(path)
    return any(fnmatch.fnmatch(str(each), pattern) for pattern in _DROPPED for each in (pure, *pure.parents))


def _drop(root: Path) -> None:
    # From the end, so that a folder comes after what it holds.
    for path in reversed(paths_below(root)):
        full = root / path
        if not dropped(path):
            continue
        if full.is_dir() and not full.is_symlink():
            if not any(full.iterdir()):
                full.rmdir()
        # The documentation of some packages is a link to the folder of another one, which has the licence of both.
        elif not (path.count("/") == 3 and full.is_symlink() and path.startswith("usr/share/doc/")):
            full.unlink()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def compile_modules(root: Path, folder: str) -> None:
    """Compile the modules below a folder of the image, as the user of the image cannot write into it.

    The interpreter of the image does it, with the paths of the image.  The compiled modules do not depend on times, and
    are not compared with their sources when they are imported: both are read-only.
    """
    run(
        [
            *("chroot", root, f"/usr/bin/python{PYTHON}", "-m", "compileall", "-q", "-j", "1"),
            *("--invalidation-mode", "unchecked-hash", folder),
        ],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )


def architecture() -> str:
    """Debian's name of this machine's architecture; for amd64 and arm64 image configurations use the same."""
    return run(["dpkg", "--print-architecture"]).strip()
