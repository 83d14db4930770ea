"""Deployments and their pods: what should run and does not, versions, components of KAI Scheduler, leases.

A Deployment is ours if it runs `kai run NAME`; one of KAI Scheduler has an image from its repository, or the label of
its operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.api.timestamp import TimestampError, parse_timestamp
from pykai.doctor.documents import ContainerImage, Deployment
from pykai.doctor.facts import LEASES, PODS, Facts
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.operator.desired.components import COMPONENTS
from pykai.operator.desired.objects import MANAGED_BY_LABEL, OPERATOR
from pykai.services.table import SERVICES, installed_services

#: reasons for which a container waits and will not start by itself
_STUCK: Final = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_KAI_PATH: Final = "/kai-scheduler/"
_NANOSECONDS: Final = 1_000_000_000
#: how far a clock may be ahead before leases suffer
_AHEAD_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Component:
    """A Deployment of ours, or of KAI Scheduler."""

    deployment: Deployment
    container: ContainerImage
    #: `kai run NAME`; empty: KAI Scheduler's
    service: str

    @property
    def where(self) -> str:
        """How findings name it."""
        return f"Deployment {self.deployment.metadata.namespace}/{self.deployment.metadata.name}"

    @property
    def account(self) -> str:
        """Its ServiceAccount."""
        return self.deployment.spec.template.spec.service_account_name

    @property
    def tag(self) -> str:
        """The version of its image."""
        reference = self.container.image.rpartition("/")[2]
        digest = reference.partition("@")[2]
        return digest or reference.partition(":")[2] or "latest"

    def flag(self, name: str, otherwise: str = "") -> str:
        """The value of a flag on its command line."""
        line = [*self.container.command, *self.container.args]
        for position, each in enumerate(line):
            spelt, equals, value = each.lstrip("-").partition("=")
            if each.startswith("-") and spelt == name:
                following = line[position + 1 : position + 2]
                return value if equals else next((one for one in following if not one.startswith("-")), "true")
        return otherwise

    @property
    def is_scheduler(self) -> bool:
        """Whether it decides; a shadow does not."""
        image = self.container.image.rpartition("/")[2].partition(":")[0]
        schedules = self.service in ("scheduler", "all") or (not self.service and image == "scheduler")
        return schedules and self.flag("shadow", "false").lower() not in ("true", "t", "1")


def components(facts: Facts) -> list[Component]:
    """Ours and KAI Scheduler's, in all namespaces."""
    found = []
    for each in facts.deployments:
        for container in each.spec.template.spec.containers:
            line = [*container.command, *container.args]
            ours = next((line[at + 1] for at, word in enumerate(line[:-1]) if word == "run" and _is_kai(line, at)), "")
            is_theirs = _KAI_PATH in f"/{container.image}" or each.metadata.labels.get(MANAGED_BY_LABEL) == OPERATOR
            if ours or is_theirs:
                found.append(Component(each, container, ours))
    return found


def _is_kai(line: list[str], at: int) -> bool:
    return at == 0 or line[at - 1].rpartition("/")[2] == "kai"


def deployed(facts: Facts) -> Iterator[Finding]:
    """Services that are not deployed although others are, and Deployments without a pod that works."""
    ours = [each for each in components(facts) if each.service]
    running = {each.service for each in ours}
    if not ours:
        what = "No Deployment runs PyKAI: its services run elsewhere (`kai run`), or not at all."
        yield Finding(Severity.INFO, "nothing-deployed", f"namespace {facts.namespace}", what, "See docs/services.md.")
    elif "all" not in running:
        missing = sorted(_wanted(facts) - running)
        # A shadow is a scheduler alone.
        if missing and any(each.is_scheduler or each.service != "scheduler" for each in ours):
            what = f"Not deployed: {listed(missing)}."
            fix = "Switch them on in the Config kai-config, or install them."
            yield Finding(
                Severity.ERROR, "service-missing", f"namespace {facts.namespace}", what, fix, f"{len(missing)} missing"
            )
    for each in ours:
        wanted, there = each.deployment.spec.replicas, each.deployment.status.available_replicas
        if there < wanted:
            severity = Severity.WARNING if there else Severity.ERROR
            what = "Not all of its pods are available." if there else "None of its pods is available."
            fix = each.where.replace("Deployment ", "kubectl describe deployment -n ", 1).replace("/", " ", 1)
            yield Finding(severity, "pods-unavailable", each.where, what, fix, f"{there} of {wanted}")


def _wanted(facts: Facts) -> set[str]:
    """The services without which an installation does not work, and which the Config does not switch off."""
    settings = facts.settings
    wanted = {each.service for each in COMPONENTS if settings.is_enabled(each.spec(settings))}
    wanted |= {"scheduler"} if settings.is_enabled(settings.scheduler) else set()
    # Only clusters with an autoscaler need it.
    return wanted - {"nodescale"}


def versions(facts: Facts) -> Iterator[Finding]:
    """Services of several versions at a time."""
    by_tag: dict[str, list[str]] = {}
    for each in components(facts):
        if each.service in SERVICES or each.service in ("all", "operator"):
            by_tag.setdefault(each.tag, []).append(each.deployment.metadata.name)
    if len(by_tag) > 1:
        what = "Services of different versions run: "
        what += "; ".join(f"{tag}: {listed(found)}" for tag, found in sorted(by_tag.items())) + "."
        fix = "Finish the upgrade, or set one image tag in the Config kai-config."
        yield Finding(
            Severity.WARNING,
            "versions-differ",
            f"namespace {facts.namespace}",
            what,
            fix,
            counted(len(by_tag), "version"),
        )


def leftovers(facts: Facts) -> Iterator[Finding]:
    """Components of KAI Scheduler that run beside ours."""
    found = components(facts)
    if not any(each.service and (each.is_scheduler or each.service != "scheduler") for each in found):
        # Ours are not installed, or only a shadow.
        return
    for each in found:
        if not each.service:
            what = f"A component of KAI Scheduler runs beside PyKAI: {each.container.image}."
            fix = "Remove it: helm uninstall of the old release, or kubectl delete deployment. See docs/migrate.md."
            yield Finding(Severity.ERROR, "leftover-component", each.where, what, fix)


def doubled_schedulers(facts: Facts) -> Iterator[Finding]:
    """Two schedulers of one node pool: of one name they bind the same pods, of two names the same GPUs."""
    pools: dict[str, list[Component]] = {}
    for each in components(facts):
        if each.is_scheduler:
            pools.setdefault(each.flag("partition-label-value"), []).append(each)
    for pool, found in sorted(pools.items()):
        if len(found) < 2:
            continue
        called = {each.flag("scheduler-name", names.SCHEDULER_NAME) for each in found}
        where = ", ".join(each.where for each in found)
        pool_text = f"node pool {pool}" if pool else "nodes without a node pool"
        share = "pods of the same name" if len(called) < len(found) else "the same nodes"
        what = f"{counted(len(found), 'scheduler')} of {pool_text} serve {share}: both give the same GPUs away."
        fix = "Scale all but one of them to 0, or run the second one with --shadow."
        yield Finding(Severity.ERROR, "two-schedulers", where, what, fix, f"names: {listed(called)}")


def stuck_pods(facts: Facts) -> Iterator[Finding]:
    """Pods of services, and those that reserve GPUs, whose containers cannot start."""
    for pod in facts.all(PODS):
        for each in pod.status.container_statuses:
            waiting = each.state.waiting
            if waiting is None or waiting.reason not in _STUCK:
                continue
            where = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
            reserves = pod.metadata.namespace == facts.settings.reservation_namespace
            effect = " Pods that share this GPU wait for it." if reserves else ""
            what = f"Container {each.name} cannot start: {waiting.reason} {waiting.message}".strip() + f".{effect}"
            fix = "Set binder.resourceReservation.image in the Config kai-config." if reserves else "See its log."
            if not reserves and "Image" in waiting.reason:
                fix = "Set the image and the pull secrets in the Config kai-config."
            yield Finding(Severity.ERROR, "pod-stuck", where, what, fix, each.image)


def leases(facts: Facts) -> Iterator[Finding]:
    """Leases that nothing renews, and leaders whose clock is ahead."""
    now_s = facts.cluster_time.timestamp()
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
        if age_s > spec.lease_duration_seconds:
            what = f"{spec.holder_identity} leads no more, and nothing has taken over."
            fix = "Start the service. If it runs without --leader-elect, delete the lease."
            figure = f"renewed {age_s:.0f} s ago, valid {spec.lease_duration_seconds} s"
            yield Finding(Severity.WARNING, "lease-expired", where, what, fix, figure)
        elif -age_s > _AHEAD_S:
            what = f"The clock of {spec.holder_identity} is ahead of the API server's."
            fix = "Let NTP or chrony set the clock of its node."
            yield Finding(Severity.WARNING, "lease-ahead", where, what, fix, f"{-age_s:.0f} s ahead")


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else parse_timestamp(text) / _NANOSECONDS
    except TimestampError:
        return None
