"""The checks: one row each, with what they need to read (doctor:unread)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pykai.doctor import accounts, clocks, components, definitions, facts, leases, nodes, owners, queues, registrations
from pykai.doctor.facts import Facts, Source
from pykai.doctor.findings import Finding, Severity


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    #: what it looks at, in a few words
    about: str
    run: Callable[[Facts], Iterable[Finding]]
    reads: tuple[Source[Any], ...] = ()


_WEBHOOKS: Final = (facts.MUTATING, facts.VALIDATING)

CHECKS: Final = (
    Check("definitions", "kinds, versions and fields", definitions.definitions, (facts.DEFINITIONS,)),
    Check(
        "accounts",
        "the account of each Deployment and DaemonSet",
        accounts.missing_accounts,
        (*facts.WORKLOADS, facts.ACCOUNTS),
    ),
    Check(
        "rights",
        "every right that a service uses",
        accounts.missing_rights,
        (
            facts.ACCOUNTS,
            *facts.WORKLOADS,
            facts.ROLES,
            facts.CLUSTER_ROLES,
            facts.ROLE_BINDINGS,
            facts.CLUSTER_ROLE_BINDINGS,
        ),
    ),
    Check("webhooks", "registrations of the webhooks", registrations.unregistered, _WEBHOOKS),
    Check(
        "webhook services",
        "the Service and pods behind each registration",
        registrations.unanswered,
        (*_WEBHOOKS, facts.SERVICES, facts.ENDPOINTS),
    ),
    Check(
        "webhook authorities",
        "caBundle of each registration",
        registrations.untrusted,
        (*_WEBHOOKS, facts.CERTIFICATE),
    ),
    Check("certificate", "end and names of the certificate", registrations.certificate, (facts.CERTIFICATE,)),
    Check("deployments", "services that do not run", components.deployed, (*facts.WORKLOADS, facts.SHARDS)),
    Check("shards", "the scheduler of each shard", owners.unscheduled, (facts.DEPLOYMENTS, facts.SHARDS)),
    Check("conditions", "what the operator says of Config and shards", owners.conditions, (facts.SHARDS,)),
    Check("pods", "pods of services and reservations that cannot start", components.stuck_pods, (facts.PODS,)),
    Check("versions", "versions of the services", components.versions, facts.WORKLOADS),
    Check("reservation image", "the image of reservations", components.reservation_image, (facts.DEPLOYMENTS,)),
    Check("leftovers", "components of KAI Scheduler", components.leftovers, facts.WORKLOADS),
    Check("schedulers", "two schedulers of one node pool", components.doubled_schedulers, (facts.DEPLOYMENTS,)),
    Check("leases", "leases that nothing renews, and clocks", leases.leases, (facts.LEASES, facts.PODS)),
    Check("GPU labels", "labels of GPU nodes", nodes.gpu_labels, (facts.NODES, facts.DEVICE_SLICES)),
    Check("node pools", "pools and shards", nodes.pools, (facts.NODES, facts.SHARDS, facts.DEPLOYMENTS)),
    Check("runtime class", "the class of shared GPUs", nodes.runtime_class, (facts.RUNTIME_CLASSES,)),
    Check("queue tree", "parents and cycles", queues.tree, (facts.QUEUES,)),
    Check("queue amounts", "quotas and limits", queues.amounts, (facts.QUEUES, facts.NODES)),
    Check("usable GPUs", "GPUs that no queue may use", queues.unusable_gpus, (facts.QUEUES, facts.NODES)),
    Check(
        "queue users",
        "groups and namespaces without a queue",
        queues.homeless,
        (facts.QUEUES, facts.POD_GROUPS, facts.NAMESPACES),
    ),
    Check("clocks", "the clock of the API server", clocks.skew),
)


def sources() -> tuple[Source[Any], ...]:
    """Everything that the checks read, and the Config, which says where."""
    return tuple({each.resource: each for check in CHECKS for each in (facts.CONFIGS, *check.reads)}.values())


def examine(seen: Facts, checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """All findings, worst first; checks whose objects could not be read become findings."""
    found: list[Finding] = []
    skipped: dict[Source[Any], list[str]] = {}
    for check in checks:
        unread = [each for each in (facts.CONFIGS, *check.reads) if each.resource in seen.unread]
        for each in unread:
            skipped.setdefault(each, []).append(check.name)
        if not [each for each in unread if each in check.reads]:
            found += check.run(seen)
    for source, names in skipped.items():
        why = seen.unread[source.resource]
        what = f"Cannot be read, so these checks know less or nothing: {', '.join(names)}. {why.reason}"
        if source == facts.CONFIGS:
            what = f"Cannot be read, so the checks assume its defaults. {why.reason}"
        found.append(Finding(Severity.WARNING, "not-checked", source.label, what, why.fix))
    return sorted(found, key=lambda each: (-each.severity, each.code, each.where))


def worst(found: Iterable[Finding]) -> Severity:
    """The severity that decides the exit code."""
    return max((each.severity for each in found), default=Severity.INFO)


def summary(found: Iterable[Finding]) -> str:
    """`1 error, 2 warnings, 3 notes`."""
    counts = dict.fromkeys(reversed(Severity), 0)
    for each in found:
        counts[each.severity] += 1
    nouns = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    return ", ".join(f"{number} {nouns[each]}{'' if number == 1 else 's'}" for each, number in counts.items())
