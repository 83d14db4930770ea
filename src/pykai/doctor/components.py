"""Deployments, DaemonSets and their pods: what should run and does not, images, components of KAI Scheduler.

A workload is ours if it runs `kai run NAME`; one of KAI Scheduler has an image from its repository, or the label of
its operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pykai.api import names
from pykai.doctor.documents import ContainerImage
from pykai.doctor.facts import PODS, SHARDS, Facts, Workload
from pykai.doctor.findings import Finding, Severity, counted, listed
from pykai.operator.desired import numaexporter
from pykai.operator.desired.components import COMPONENTS
from pykai.operator.desired.objects import MANAGED_BY_LABEL, OPERATOR
from pykai.services.table import SERVICES

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
_RESERVATION_IMAGE: Final = "resource-reservation-pod-image"


@dataclass(frozen=True, slots=True)
class InstalledComponent:
    """A Deployment or DaemonSet of ours, or of KAI Scheduler."""

    workload: Workload
    container: ContainerImage
    #: `kai run NAME`; empty: KAI Scheduler's
    service: str

    @property
    def where(self) -> str:
        """How findings name it."""
        return self.workload.where

    @property
    def account(self) -> str:
        """Its ServiceAccount."""
        return self.workload.pod.service_account_name

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


def components(facts: Facts) -> list[InstalledComponent]:
    """Ours and KAI Scheduler's, in all namespaces."""
    found = []
    for each in facts.workloads:
        for container in each.pod.containers:
            line = [*container.command, *container.args]
            ours = next((line[at + 1] for at, word in enumerate(line[:-1]) if word == "run" and _is_kai(line, at)), "")
            is_theirs = _KAI_PATH in f"/{container.image}" or each.metadata.labels.get(MANAGED_BY_LABEL) == OPERATOR
            if ours or is_theirs:
                found.append(InstalledComponent(each, container, ours))
    return found


def _is_kai(line: list[str], at: int) -> bool:
    return at == 0 or line[at - 1].rpartition("/")[2] == "kai"


def deployed(facts: Facts) -> Iterator[Finding]:
    """Services that are not deployed although others are, and those of which pods are missing."""
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
        wanted, there = each.workload.wanted, each.workload.available
        if there < wanted:
            severity = Severity.WARNING if there else Severity.ERROR
            what = "Not all of its pods are available." if there else "None of its pods is available."
            place = each.workload.metadata
            fix = f"kubectl describe {each.workload.kind.lower()} -n {place.namespace} {place.name}"
            yield Finding(severity, "pods-unavailable", each.where, what, fix, f"{there} of {wanted}")


def _wanted(facts: Facts) -> set[str]:
    """The services without which an installation does not work, and which the Config does not switch off."""
    settings, shards = facts.settings, facts.all(SHARDS)
    wanted = {each.service for each in COMPONENTS if settings.is_enabled(each.spec(settings))}
    # Only an operator carries out a Config, and makes the scheduler of each shard (`owners.unscheduled`).
    wanted |= {"operator"} if facts.config is not None else set()
    wanted |= {"scheduler"} if settings.is_enabled(settings.scheduler) and not shards else set()
    wanted |= {"numa-exporter"} if numaexporter.is_wanted(settings, shards) else set()
    # Only clusters with an autoscaler need it.
    return wanted - {"nodescale"}


def versions(facts: Facts) -> Iterator[Finding]:
    """Services of several versions at a time."""
    by_tag: dict[str, list[str]] = {}
    for each in components(facts):
        if each.service in SERVICES or each.service in ("all", "operator"):
            by_tag.setdefault(each.tag, []).append(each.workload.metadata.name)
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


def reservation_image(facts: Facts) -> Iterator[Finding]:
    """The image of pods that reserve GPUs, which is pulled only once a pod shares one, next to those that run."""
    found = [each for each in components(facts) if each.service]
    images = {each.container.image for each in found}
    for each in found:
        reserving = each.flag(_RESERVATION_IMAGE)
        if not reserving or reserving in images:
            continue
        is_same_program = _program(reserving) in map(_program, images)
        what = f"Pods that reserve shared GPUs get the image {reserving}, which no component runs; these do: "
        what += f"{listed(images)}. If nodes cannot pull it, or it is of another version, pods that share GPUs wait."
        fix = "Is it meant? Else set binder.resourceReservation.image in the Config kai-config."
        # An image of another name was made for this, with the library of a vendor, say.
        severity = Severity.WARNING if is_same_program else Severity.INFO
        yield Finding(severity, "reservation-image", each.where, what, fix, reserving)


def _program(image: str) -> str:
    """The name of an image, without registry and version."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


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
    pools: dict[str, list[InstalledComponent]] = {}
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
        for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
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
