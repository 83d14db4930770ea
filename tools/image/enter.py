"""Starts a program in the folder of an unpacked image as a container runtime would: `container.py` calls it.

    unshare --mount --net --pid ... python enter.py ROOT UID GID -- PROGRAM ARGUMENTS

It runs in namespaces of its own, which it fills: the root is read-only, /tmp is the only place to write, /dev has the
five harmless devices, the network has a loopback interface and nothing else.  Everything is gone with the last process.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import subprocess
import sys

#: Device -> its major and minor number in Linux.
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
# From linux/sockios.h and linux/if.h.
_SET_FLAGS, _UP = 0x8914, 0x1


def enter(root: str, uid: int, gid: int, command: list[str]) -> None:
    """Become the program."""
    _mount("--bind", root, root)
    _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", f"{root}/proc")
    _mount("-t", "tmpfs", "-o", "nosuid,mode=755", "tmpfs", f"{root}/dev")
    for name, (major, minor) in _DEVICES.items():
        os.mknod(f"{root}/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(f"{root}/dev/{name}", 0o666)
    _mount("-o", "remount,ro", f"{root}/dev")
    _mount("-t", "tmpfs", "-o", "nosuid,nodev,mode=1777", "tmpfs", f"{root}/tmp")
    _mount("-o", "remount,bind,ro", root)
    _start_loopback()
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    os.execvpe(command[0], command, os.environ)


def _mount(*arguments: str) -> None:
    subprocess.run(["/usr/bin/mount", *arguments], check=True)


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


if __name__ == "__main__":
    enter(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[sys.argv.index("--") + 1 :])
