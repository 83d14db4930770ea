"""Leases of leader election: is there a leader, and is the clock of the leader right?

A leader writes the time of its own clock into its lease.  Standbys do not read it (`pykai.kube.lease`), so a clock that
is wrong disturbs no election; it shows in what the leader writes elsewhere, and here.  Whether a leader whose lease
seems old still leads, only its pod can say.

Statements: doctor:running.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pykai.api import names
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.doctor.facts import LEASES, PODS, Facts
from pykai.doctor.findings import Finding, Severity
from pykai.services.table import installed_services

_NANOSECONDS: Final = 1_000_000_000
#: how far a clock may be ahead before it is worth a word
_AHEAD_S: Final = 5.0
_READY: Final = "Ready"
_SET_CLOCK: Final = "Let NTP or chrony set the clock of its node."


def leases(facts: Facts) -> Iterator[Finding]:
    """Leases that nothing renews, and leaders whose clock is ahead or behind."""
    now_s = facts.cluster_time.timestamp()
    ready = _ready_pods(facts)
    ours = {names.BINDER_LEASE, *(each.lease for each in installed_services() if each.lease)}
    prefix = facts.settings.scheduler_name
    for lease in facts.all(LEASES):
        name, spec = lease.metadata.name, lease.spec
        if lease.metadata.namespace != facts.namespace or not (name in ours or name.startswith(prefix)):
            continue
        renewed_s = _seconds(spec.renew_time)
        if not spec.holder_identity or renewed_s is None:
            continue
        where = f"Lease {lease.metadata.namespace}/{name}"
        age_s = now_s - renewed_s
        figure = f"renewed {age_s:.0f} s ago, valid {spec.lease_duration_seconds} s"
        # operations:O-39
        has_ready_pod = spec.holder_identity.partition("_")[0] in ready
        if age_s > spec.lease_duration_seconds and has_ready_pod:
            what = f"The clock of {spec.holder_identity} is behind the API server's: its pod is ready, and a leader "
            what += "that cannot renew its lease ends."
            yield Finding(Severity.WARNING, "lease-behind", where, what, _SET_CLOCK, figure)
        elif age_s > spec.lease_duration_seconds:
            what = f"{spec.holder_identity} has no pod that is ready: it leads no more, and nothing has taken over."
            fix = "Start the service. If it runs without --leader-elect, delete the lease; if outside of the cluster, "
            fix += "look at its clock."
            yield Finding(Severity.WARNING, "lease-expired", where, what, fix, figure)
        elif -age_s > _AHEAD_S:
            what = f"The clock of {spec.holder_identity} is ahead of the API server's."
            yield Finding(Severity.WARNING, "lease-ahead", where, what, _SET_CLOCK, f"{-age_s:.0f} s ahead")


def _ready_pods(facts: Facts) -> set[str]:
    """The names of the pods of the installation that are ready."""
    return {
        pod.metadata.name
        for pod in facts.all(PODS)
        if pod.metadata.namespace == facts.namespace
        and pod.metadata.deletion_timestamp is None
        and any(each.type == _READY and each.status == "True" for each in pod.status.conditions)
    }


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else parse_timestamp(text) / _NANOSECONDS
    except TimestampError:
        return None
