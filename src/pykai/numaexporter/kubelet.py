"""Asks the kubelet over its socket: one unary call of gRPC, `List`.

grpcio comes with the extra `numa`.  The answer stays bytes; `podresources` reads them.

Subtle: after a kubelet restarts, gRPC would wait up to two minutes before it connects again; here a second at most.

Statements: gpu:X-2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

#: seconds and bytes of an answer
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 16 << 20
_LIST: Final = "/v1.PodResourcesLister/List"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Go's servers refuse the path of a socket as authority.
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
)


class KubeletUnavailable(Exception):
    """The kubelet did not answer; the text says why."""


class MissingGrpc(Exception):
    """grpcio is not installed; the text says how to install it."""


class PodResourcesSocket:
    """The pod-resources socket of a kubelet."""

    def __init__(self, path: Path) -> None:
        """Nothing is sent yet; raises `MissingGrpc`."""
        try:
            import grpc.aio
        except ImportError:
            raise MissingGrpc("the exporter needs grpcio, which the image has: pip install 'pykai[numa]'") from None
        self._path = path
        self._error: Any = grpc.aio.AioRpcError
        self._open: Any = grpc.aio.insecure_channel
        self._channel: Any = None

    async def list_pods(self) -> bytes:
        """The bytes of a `ListPodResourcesResponse`; raises `KubeletUnavailable`."""
        if self._channel is None:
            self._channel = self._open(f"unix:{self._path.absolute()}", options=_OPTIONS)
        try:
            answer: bytes = await self._channel.unary_unary(_LIST)(b"", timeout=_TIMEOUT_S)
        except self._error as error:
            raise KubeletUnavailable(f"{self._path}: {error.code().name}: {error.details()}") from None
        return answer

    async def close(self) -> None:
        """Give up the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
