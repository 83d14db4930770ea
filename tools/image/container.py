"""Unpacks an image and runs it as Kubernetes would, without a container runtime.

    python -m tools.image.container dist/kai-0.1.0-amd64.oci.tar -- up --plain --until-done --speed 10

User, environment and entry point are those of the image.  The root is read-only, /tmp is empty and the only place to
write, and the network is a loopback interface.  Mounts are in a namespace that ends with the program; nothing has to be
unmounted, however it ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.image.oci import config_of
from tools.image.programs import CannotRun, banner, end, interrupt_on_sigterm, problems, run

_ENTER = Path(__file__).with_name("enter.py")


@dataclass(frozen=True)
class Container:
    """An unpacked image."""

    root: Path
    entrypoint: tuple[str, ...]
    environment: dict[str, str]
    uid: int
    gid: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """What runs the entry point with arguments."""
        return self.command_of([*self.entrypoint, *arguments])

    def command_of(self, program: Sequence[str]) -> list[str]:
        """What runs another program of the image."""
        namespaces = ["--mount", "--propagation=private", "--net", "--pid", "--ipc", "--uts"]
        # The kernel ends the whole namespace with its first process, and that one with `unshare`.
        return [
            *("unshare", *namespaces, "--fork", "--kill-child=KILL"),
            *(sys.executable, "-I", str(_ENTER), str(self.root), str(self.uid), str(self.gid), "--", *program),
        ]

    def start(self, command: Sequence[str], *, output: int | None = None) -> subprocess.Popen[str]:
        """Start one of these commands; standard error goes where standard output goes."""
        return subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True
        )


@contextmanager
def unpacked(archive: Path) -> Iterator[Container]:
    """Unpack the image of an archive for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="kai-container-") as temporary:
        folder = Path(temporary)
        # Below a folder that only root can enter, the other user could not reach its files.
        folder.chmod(0o755)
        layout = folder / "layout"
        with tarfile.open(archive) as tar:
            tar.extractall(layout, filter="data")
        (image,) = json.loads((layout / "index.json").read_text(encoding="utf-8"))["manifests"]
        tag = image["annotations"]["org.opencontainers.image.ref.name"]
        run(["umoci", "unpack", "--image", f"{layout}:{tag}", folder / "bundle"])
        config = config_of(archive)["config"]
        uid, _, gid = str(config["User"]).partition(":")
        yield Container(
            root=folder / "bundle" / "rootfs",
            entrypoint=tuple(config["Entrypoint"]),
            environment=dict(each.split("=", 1) for each in config["Env"]),
            uid=int(uid),
            gid=int(gid),
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.image.container", description="Run an image without a container runtime."
    )
    parser.add_argument("archive", type=Path, help="an OCI archive, as `make image` writes it")
    parser.add_argument("arguments", nargs="*", help="arguments of kai, after --")
    arguments = parser.parse_args()
    interrupt_on_sigterm()
    if left := problems():
        sys.exit(banner(["NO CONTAINER: an image cannot be run here.", *left]))
    try:
        with unpacked(arguments.archive) as container:
            process = container.start(container.command(arguments.arguments))
            try:
                return process.wait()
            except BaseException:
                end(process)
                raise
    except CannotRun as error:
        sys.exit(f"The image was not unpacked. {error}")
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
