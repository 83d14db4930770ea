"""What can be set about the exporter of NUMA placements (operations:9), under the names of KAI's flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pykai.kube.flags import (
    BURST,
    METRICS_ADDRESS,
    QPS,
    Flag,
    read_duration,
    read_nonnegative_duration,
    read_text,
)

_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
_SECOND_NS: Final = 1_000_000_000


def _read_positive_duration(text: str) -> int:
    span = read_duration(text)
    if span <= 0:
        raise ValueError("expected a duration of more than 0")
    return span


@dataclass(frozen=True, slots=True)
class NumaExporterOptions:
    """The settings of the exporter."""

    node_name: str = ""
    socket: str = _SOCKET
    sysfs_root: str = "/sys"
    poll_ns: int = _SECOND_NS
    #: 0: annotations are compared once, at the start
    resync_ns: int = 60 * _SECOND_NS

    @property
    def poll_s(self) -> float:
        """Seconds between two questions to the kubelet."""
        return self.poll_ns / _SECOND_NS

    @property
    def resync_s(self) -> float:
        """Seconds between two comparisons with the pods."""
        return self.resync_ns / _SECOND_NS


FLAGS: Final[tuple[Flag, ...]] = (
    Flag("node-name", "", read_text, "whose pods are annotated; else the environment's NODE_NAME", field="node_name"),
    Flag("podresources-socket", _SOCKET, read_text, "where the kubelet says what pods were given", field="socket"),
    Flag("sysfs-root", "/sys", read_text, "where the kernel says which NUMA node cores belong to", field="sysfs_root"),
    Flag(
        "poll-interval",
        "1s",
        _read_positive_duration,
        "pause between two questions to the kubelet",
        field="poll_ns",
        spec_id="gpu:X-2",
    ),
    Flag(
        "drift-resync-interval",
        "60s",
        read_nonnegative_duration,
        "how often annotations are compared with those of the pods; 0: only at the start",
        field="resync_ns",
        spec_id="gpu:X-4",
    ),
    replace(QPS, default="50"),
    replace(BURST, default="100"),
    METRICS_ADDRESS,
)
