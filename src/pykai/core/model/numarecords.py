"""The recorded NUMA zones of a pod's cores and devices (gpu:N-15).

Records have two sources: the exporter on the node, which observes zones (annotation "observed"), and the scheduler,
which predicts them (the BindRequest while the pod is being bound, then the annotation "predicted").  Observed beats
predicted.  An unreadable record is reported and the next one is used.  A pod without a record is not accounted for: a
guess would be wrong twice, in the zone it fills and in the one it leaves empty.

Subtle: users can write records too, where no admission policy forbids it.  So a record counts up to what the pod
requests and no further: a false one can move the charge of its pod between zones, but not fill zones for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pykai.api import names
from pykai.api.core import Pod
from pykai.api.quantity import QuantityError
from pykai.api.scheduling import BindRequest, NumaZonePlacement
from pykai.core.model.axes import amount, is_tracked
from pykai.core.model.numarequests import ZoneNeed
from pykai.core.model.problems import Problem, ProblemReporter

#: Zone id -> what the pod has of it, in recorded order.
ZoneRecord = tuple[tuple[str, ZoneNeed], ...]

_DECODER = msgspec.json.Decoder(list[NumaZonePlacement])


def read_zone_record(
    pod: Pod, bind_request: BindRequest | None, requested: ZoneNeed, report: ProblemReporter
) -> ZoneRecord:
    """The record that counts, up to what the pod requests; () when there is none."""
    subject = f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
    for source, content in _sources(pod, bind_request):
        try:
            return _bounded(requested, _read(_DECODER.decode(content) if isinstance(content, str) else content))
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            report(Problem(subject, source, f"no NUMA placement: {error}; the next record of the pod is used, if any"))
    return ()


def _sources(pod: Pod, bind_request: BindRequest | None) -> Iterator[tuple[str, str | Sequence[NumaZonePlacement]]]:
    annotations = pod.metadata.annotations
    observed = annotations.get(names.NUMA_OBSERVED_ANNOTATION)
    if observed is not None:
        yield f"metadata.annotations[{names.NUMA_OBSERVED_ANNOTATION}]", observed
    if bind_request is not None and bind_request.spec.predicted_numa_zones:
        yield (
            f"BindRequest {bind_request.metadata.name}: spec.predictedNUMAZones",
            bind_request.spec.predicted_numa_zones,
        )
    predicted = annotations.get(names.NUMA_PREDICTED_ANNOTATION)
    if predicted is not None:
        yield f"metadata.annotations[{names.NUMA_PREDICTED_ANNOTATION}]", predicted


def _read(placements: Sequence[NumaZonePlacement]) -> ZoneRecord:
    amounts_by_zone: dict[str, dict[str, int]] = {}
    for placement in placements:
        if not placement.zone:
            raise ValueError("a zone without a name")
        zone_amounts = amounts_by_zone.setdefault(placement.zone, {})
        for name, raw in placement.amount.items():
            if not is_tracked(name):
                continue
            try:
                value = amount(name, raw)
            except QuantityError as error:
                raise ValueError(f"zone {placement.zone}, {name}: {error}") from None
            if value < 0:
                raise ValueError(f"zone {placement.zone}, {name}: less than nothing ({raw})")
            zone_amounts[name] = zone_amounts.get(name, 0) + value
    record = tuple(
        (zone, tuple(sorted((name, value) for name, value in there.items() if value)))
        for zone, there in amounts_by_zone.items()
        if any(there.values())
    )
    if not record:
        raise ValueError("it names no zone with an amount")
    return record


def _bounded(requested: ZoneNeed, record: ZoneRecord) -> ZoneRecord:
    """The record up to these amounts, in recorded order of zones."""
    left = dict(requested)
    bounded = []
    for zone, need in record:
        taken = tuple((name, min(value, left.get(name, 0))) for name, value in need)
        for name, value in taken:
            left[name] = left.get(name, 0) - value
        bounded.append((zone, tuple(part for part in taken if part[1])))
    return tuple(bounded)
