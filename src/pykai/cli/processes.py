"""Running coroutines as a process: signals, the event loop, how it ends, and where its kubeconfig is."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykai.cli.malloc import fix_mmap_threshold
from pykai.kube.errors import KubeError
from pykai.observe.endpoint import CannotListen

if TYPE_CHECKING:
    from pykai.lab.apiserver.server import ApiServer

_LOG = logging.getLogger(__name__)


class _FiniteRange(click.FloatRange):
    """A finite number in a range; click's own range lets `nan` through, which compares with nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


#: types of options that several commands have
POSITIVE_NUMBER = _FiniteRange(min=0, min_open=True)
FRACTION = _FiniteRange(min=0, max=1)
#: seconds before or after now, some thirty years
OFFSET_S = _FiniteRange(min=-1e9, max=1e9)
PORT = click.IntRange(0, 65535)
_SWITCH_S = 0.0005


def run_until_signal(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `main(stop)`; SIGTERM and Ctrl-C set `stop`, a second one ends the process at once."""

    async def guarded() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def told() -> None:
            if stop.is_set():
                raise SystemExit(130)
            stop.set()

        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, told)
        loop.set_exception_handler(_ignore_abandoned_connections)
        await main(stop)

    # The engine computes in a thread of its own. At the interpreter's default of 5 ms the event loop would wait that
    # long for its turn after every system call; switching more often costs the engine next to nothing.
    sys.setswitchinterval(_SWITCH_S)
    fix_mmap_threshold()
    try:
        _run(guarded())
    except (KubeError, CannotListen) as error:
        raise click.ClickException(str(error)) from error


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed: half the cost of a request."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(coroutine)


def _ignore_abandoned_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Asyncio's handler of unawaited errors, without those of connections that we gave up ourselves.

    A task that is cancelled while it connects closes the TCP side; if the server's half of the TLS handshake arrived in
    the same iteration of the loop, uvloop still finishes the handshake, fails to write to the closed side, and logs a
    traceback.  Nothing is lost, and a user with a simple error should not see eight of them.
    """
    error = context.get("exception")
    if isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"):
        _LOG.debug("a connection was dropped while it was being opened: %s", error)
    else:
        loop.default_exception_handler(context)


@contextmanager
def kubeconfig_location(chosen: Path | None, data: Path | None) -> Iterator[Callable[[], Path]]:
    """Where a kubeconfig goes: as chosen, beside the state, or in a folder of its own that is removed at the end.

    The folder is created when the location is first needed, and only this user can read it.  Leave the block after
    `run_until_signal` has returned or raised: the folder is then removed whatever ended the process but SIGKILL.
    """
    with ExitStack() as at_the_end:

        def place() -> Path:
            if chosen is not None:
                return chosen
            folder = data or Path(at_the_end.enter_context(tempfile.TemporaryDirectory(prefix="kai-")))
            return folder / "kubeconfig"

        yield place


def write_kubeconfig(server: ApiServer, path: Path, host: str = "127.0.0.1") -> None:
    """Write the administrator's kubeconfig; raises an error that says why it cannot be written."""
    try:
        server.kubeconfig(path, host=host)
    except OSError as error:
        raise click.ClickException(f"the kubeconfig {path} cannot be written: {error.strerror or error}") from error
