"""A process that ends while it connects says why it ends, and nothing of the connections it gave up."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.kube.certificates import authority
from tests.patience import PROGRAM_S

pytest.importorskip("uvloop")

#: connects to PORT, and cancels that between the TCP connection and the end of the TLS handshake, when the server's
#: answer is there, but unread; then fails in a callback, which must be reported whatever happens
GIVING_UP = """
import asyncio, select, socket, ssl, sys
from pykai.cli import processes

async def main(stop):
    loop = asyncio.get_running_loop()
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    sock.setblocking(False)
    context = ssl.create_default_context(cafile=sys.argv[2])
    connecting = asyncio.create_task(
        loop.create_connection(asyncio.Protocol, sock=sock, ssl=context, server_hostname="127.0.0.1")
    )

    def give_up():
        select.select([sock], [], [])
        connecting.cancel()

    loop.call_soon(lambda: loop.call_soon(give_up))
    await asyncio.wait([connecting])
    assert connecting.cancelled()
    await asyncio.sleep(0)
    loop.call_soon(int, "no number")
    await asyncio.sleep(0)

if sys.argv[3] == "as usual":
    processes._run(main(None))
else:
    processes.run_until_signal(main)
"""


@pytest.mark.parametrize(("how", "told"), [("as usual", 1), ("as a service", 0)])
def test_a_connection_given_up_while_it_is_made_is_no_error(tmp_path: Path, how: str, told: int) -> None:
    context = authority().server_context(tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority().pem)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PROGRAM_S)

        def answer() -> None:
            connection, _ = server.accept()
            with pytest.raises((ssl.SSLError, OSError)):
                context.wrap_socket(connection, server_side=True)

        serving = threading.Thread(target=answer)
        serving.start()
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", GIVING_UP, port, str(tmp_path / "ca.pem"), how]
        found = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=True)
        serving.join()
    assert found.stderr.count("the handler is closed") == told
    assert found.stderr.count("invalid literal for int") == 1
