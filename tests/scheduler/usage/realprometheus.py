"""A real Prometheus on loopback, filled with samples of a past that a test writes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pykai.api.duration import MINUTE, SECOND

#: name of a series with its labels, and its value so many nanoseconds before the end; None = no sample
Series = tuple[str, Callable[[int], float | None]]


def write_samples(path: Path, end_ns: int, length_ns: int, series: list[Series], *, step_ns: int = MINUTE) -> None:
    """An OpenMetrics file with a sample of each series every step."""
    lines = []
    for name, value in series:
        family = name.partition("{")[0]
        lines.append(f"# TYPE {family} gauge\n") if f"# TYPE {family} gauge\n" not in lines else None
        for ago in range(length_ns, -1, -step_ns):
            if (sample := value(ago)) is not None:
                lines.append(f"{name} {sample} {(end_ns - ago) // SECOND}\n")
    path.write_text("".join([*lines, "# EOF\n"]), encoding="utf-8")


@contextmanager
def real_prometheus(folder: Path, samples: Path | None, settings: str = "global: {}\n") -> Iterator[str]:
    """A running one with these samples and settings; gives its address."""
    programs = Path(os.environ["KAI_PROMETHEUS"])
    data = folder / "data"
    if samples is not None:
        create = ["tsdb", "create-blocks-from", "openmetrics", str(samples), str(data)]
        subprocess.run([programs / "promtool", *create], check=True, capture_output=True)
    configuration = folder / "prometheus.yml"
    configuration.write_text(settings, encoding="utf-8")
    process = subprocess.Popen(
        [
            programs / "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            "--web.listen-address=127.0.0.1:0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address, said = "", []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r'msg="Listening on" address=(\S+)', line):
                address = f"http://{found.group(1)}"
            if "Server is ready" in line:
                break
        assert address, "".join(said)
        yield address
    finally:
        process.terminate()
        process.communicate()
