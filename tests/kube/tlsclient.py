"""A TLS handshake in memory."""

from __future__ import annotations

import ssl


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> bool:
    """Whether a client accepts the certificate of a server under this name."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
            sides.remove(side)
        if not sides:
            return True
    raise AssertionError("the handshake does not end")
