"""Applies what a Config and its SchedulingShards ask for, and reports how far it is (operations:5).

In: Config, SchedulingShards, facts of the cluster (nodes with fake GPUs, optional kinds, leases and pods of schedulers)
and the objects of the operator itself.  Out: server-side applies of what differs, deletions of what is not wanted any
more, conditions, events.

Subtle:
- One key stands for the installation: objects of the Config depend on shards, and those of shards on the Config.
- Every write can be the last one of a process: the next operator finds what is missing by comparing again.
- What cannot work is refused as a whole: what runs stays as it is, and is not pruned.
- An object of our name that another operator made, such as KAI Scheduler's, is deleted first where its lists would mix
  with ours.  A workload is then made once its pods have ended (`applying/handover.py`); nothing else waits for that.

Statements: operations:O-1, O-32, O-32b, O-35, O-38, OD-6, OD-7, OD-16.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from prometheus_client import CollectorRegistry

from pykai.api.conditions import ConditionDocument
from pykai.api.decode import DecodeError, decode_as
from pykai.api.installation import Config, SchedulingShard
from pykai.api.keys import object_key
from pykai.api.timestamp import format_timestamp
from pykai.api.unstructured import JsonObject
from pykai.kube import resources
from pykai.kube.client import PatchKind
from pykai.kube.errors import ApiError, Conflict, NotFound, Unauthorized
from pykai.kube.events import InvolvedObject
from pykai.kube.flags import read_options
from pykai.kube.reconcilingservice import ReconcilingService
from pykai.kube.resources import Resource
from pykai.kube.runtime import Runtime
from pykai.kube.store import Store
from pykai.operator.applying.comparison import is_applied, is_made_by_us, prepared
from pykai.operator.applying.conditions import (
    Progress,
    conditions,
    is_known,
    merged,
    reconciling,
    unavailable_text,
)
from pykai.operator.applying.handover import WORKLOADS, pods_in_the_way, waiting_text
from pykai.operator.applying.kinds import BY_KIND, OWNED_KINDS, OwnedKind, rank_of
from pykai.operator.applying.livefacts import FAKE_GPU_LABEL, leader, pull_secrets, uses_cdi
from pykai.operator.applying.prometheusprobe import PrometheusProbe, probe_target
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.settings import ImageDefaults, Settings
from pykai.operator.desired.shards import lease_name
from pykai.operator.desired.state import CONFIG_NAME, DesiredState, desired_state, misplaced
from pykai.operator.options import FLAGS, OperatorOptions
from pykai.webhooks.table import TLS_SECRET

log = logging.getLogger(__name__)


FIELD_MANAGER: Final = "kai-operator"
#: the one key that is reconciled
_INSTALLATION: Final = "installation"
#: cluster seconds until a Prometheus that is not wanted any more is looked at again
_PROMETHEUS_CHECK_S: Final = 3600.0
#: cluster seconds until a workload that waits for pods is looked at again, if none of them changes
_HANDOVER_CHECK_S: Final = 30.0
_QUEUE_DEFINITION: Final = "queues.scheduling.run.ai"


def from_flags(runtime: Runtime, given: Mapping[str, str], _: CollectorRegistry) -> list[Operator]:
    """The service that flags ask for; raises `OptionError`."""
    options = read_options(OperatorOptions(), FLAGS, given)
    repository, tag = os.environ.get("MS_REPOSITORY", ""), os.environ.get("MS_TAG", "")
    if repository and "image-repository" not in given:
        options = replace(options, image_repository=repository)
    if tag and "image-tag" not in given:
        options = replace(options, image_tag=tag)
    return [Operator(runtime, options)]


class Operator(ReconcilingService):
    """See the module."""

    name = "operator"

    def __init__(self, runtime: Runtime, options: OperatorOptions) -> None:
        super().__init__(runtime, component=FIELD_MANAGER, workers=1)
        self._options = options
        self._images = ImageDefaults(options.image_repository, options.image_tag)
        self._configs = self._watch(runtime, resources.CONFIGS, field_selector=f"metadata.name={CONFIG_NAME}")
        self._shards = self._watch(runtime, resources.SCHEDULING_SHARDS)
        self._definitions = self._watch(runtime, resources.CUSTOM_RESOURCE_DEFINITIONS, metadata_only=True)
        self._fake_nodes = self._watch(
            runtime, resources.NODES, label_selector=f"{FAKE_GPU_LABEL}=true", metadata_only=True
        )
        self._policies = self._watch(
            runtime, resources.CLUSTER_POLICIES, optional=True, absent_pause_s=options.absent_pause_s
        )
        self._leases = self._watch(runtime, resources.LEASES, namespace=options.namespace)
        self._pods = self._watch(runtime, resources.PODS, namespace=options.namespace)
        #: (kind, namespace) -> what is there
        self._live: dict[tuple[str, str], Store[JsonObject]] = {}
        for kind in OWNED_KINDS:
            for namespace in self._namespaces(kind):
                self._live[kind.resource.kind, namespace] = self._watch_owned(runtime, kind, namespace)
        self._is_dirty = False
        #: whether a workload waits for what ran before
        self._is_waiting = False
        self._conversion_is_checked = False
        self._noted: dict[str, str] = {}
        self._probe = PrometheusProbe(runtime.clock, self._look_again)

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until told to stop, and check an external Prometheus meanwhile."""
        probing = asyncio.create_task(self._probe.run(), name="prometheus probe")
        try:
            await super().run(stop)
        finally:
            probing.cancel()

    def _namespaces(self, kind: OwnedKind) -> tuple[str, ...]:
        if not kind.resource.namespaced:
            return ("",)
        if kind.is_elsewhere:
            return tuple(dict.fromkeys(self._options.places))
        return (self._options.namespace,)

    def _watch(self, runtime: Runtime, resource: Resource, **selection: Any) -> Store[JsonObject]:
        return self._need(runtime.caches.store(resource, dict, **selection))

    def _watch_owned(self, runtime: Runtime, kind: OwnedKind, namespace: str) -> Store[JsonObject]:
        selection: dict[str, Any] = {"namespace": namespace}
        if kind.resource is resources.SECRETS:
            # The right to read Secrets is limited to this name, and its content is not needed.
            selection |= {"field_selector": f"metadata.name={TLS_SECRET}", "metadata_only": True}
        if kind.is_optional:
            selection |= {"optional": True, "absent_pause_s": self._options.absent_pause_s}
        return self._watch(runtime, kind.resource, **selection)

    def idle(self) -> bool:
        """Whether every change that was seen has been dealt with."""
        return not self._is_dirty and super().idle()

    async def _subscribe(self) -> None:
        for store in self._needed:
            store.subscribe(lambda _: self._look_again())
        self._look_again()

    def _look_again(self) -> None:
        self._is_dirty = True
        self._reconciler.enqueue(_INSTALLATION, after_s=self._options.settle_s * self._clock.speed)

    async def _reconcile(self, key: str) -> float | None:
        self._is_dirty = False
        found = self._configs.get(CONFIG_NAME)
        if found is None or _is_deleted(found):
            self._note("config", "there is no Config kai-config: nothing is deployed")
            return None
        try:
            config = decode_as(Config, found)
        except DecodeError as error:
            self._note("config", f"Config kai-config is not carried out: {error}")
            return None
        settings = Settings(config.spec, self._images)
        if text := misplaced(settings, self._options.places):
            await self._report(resources.CONFIGS, found, Progress(errors=[text]))
            self._warn(resources.CONFIGS, found, text)
            return None
        self._note("config", "")
        await self._check_conversion()
        shards = list(self._read_shards())
        self._probe.watch(probe_target(settings.prometheus))
        facts = self._facts(settings, shards, config.metadata.uid)
        states = desired_state(config, shards, facts, self._images)
        self._is_waiting = False
        failures = [each for state in states for each in [await self._carry_out(state)] if each]
        if failures:
            raise InstallationError("; ".join(failures))
        if self._is_waiting:
            return _HANDOVER_CHECK_S
        # One that is kept for its data only has an end.
        return _PROMETHEUS_CHECK_S if facts.prometheus is not None and not settings.prometheus.enabled else None

    def _read_shards(self) -> Iterator[SchedulingShard]:
        for found in self._shards.values():
            if _is_deleted(found):
                continue
            try:
                yield decode_as(SchedulingShard, found)
            except DecodeError as error:
                self._warn(resources.SCHEDULING_SHARDS, found, str(error))

    def _facts(self, settings: Settings, shards: list[SchedulingShard], config_uid: str) -> ClusterFacts:
        account = self._live["ServiceAccount", self._options.reservation_namespace].get(
            object_key(self._options.reservation_namespace, settings.reservation_account)
        )
        pods = {str(pod["metadata"]["name"]): pod for pod in self._pods.values()}
        leaders = {}
        for shard in shards:
            lease = self._leases.get(object_key(self._options.namespace, lease_name(settings, shard)))
            if (found := leader(lease, pods)) is not None:
                leaders[shard.metadata.name] = found
        return ClusterFacts(
            has_fake_gpus=len(self._fake_nodes) > 0,
            uses_cdi=uses_cdi(self._policies.values()),
            has_autoscalers=self._knows(resources.VERTICAL_AUTOSCALERS),
            has_prometheus=self._knows(resources.PROMETHEUSES),
            has_service_monitors=self._knows(resources.SERVICE_MONITORS),
            reservation_pull_secrets=pull_secrets(account),
            leaders=leaders,
            prometheus=self._own_prometheus(settings, config_uid),
            now_s=self._clock.now().timestamp(),
        )

    def _own_prometheus(self, settings: Settings, config_uid: str) -> JsonObject | None:
        """The instance that belongs to the Config; one of others is theirs."""
        name = settings.prometheus.instance_name or "prometheus"
        found = self._live["Prometheus", self._options.namespace].get(object_key(self._options.namespace, name))
        return found if found is not None and _owner_of(found["metadata"]) == config_uid else None

    def _knows(self, resource: Resource) -> bool:
        return f"{resource.plural}.{resource.group}" in self._definitions

    async def _carry_out(self, state: DesiredState) -> str:
        """Apply, prune and report for one owner; what failed, or nothing."""
        owners = self._configs if state.kind is resources.CONFIGS else self._shards
        owner = owners.get(state.name)
        if owner is None or owner["metadata"].get("uid") != state.uid:
            return ""
        left_out = None if state.is_waiting else [str(each) for each in state.left_out]
        for each in state.left_out:
            self._warn(state.kind, owner, str(each), reason=each.reason)
        if state.refusal:
            self._warn(state.kind, owner, state.refusal)
            await self._report(state.kind, owner, Progress(errors=[state.refusal], left_out=left_out))
            return ""
        generation = owner["metadata"].get("generation", 0)
        if not is_known(_conditions_of(owner), generation):
            owner = await self._write_conditions(state.kind, owner, [reconciling(generation)], is_end=False)
        errors, waiting = await self._apply_all(state)
        await self._prune(state)
        unavailable = self._unavailable(state)
        progress = Progress(
            [*errors, *waiting, *(f"{each.split(':')[0]}: not deployed" for each in (*errors, *waiting))],
            unavailable,
            state.missing,
            left_out,
            self._probe.failure if state.kind is resources.CONFIGS else None,
        )
        await self._report(state.kind, owner, progress)
        return "; ".join(errors)

    async def _apply_all(self, state: DesiredState) -> tuple[list[str], list[str]]:
        """What failed, and what waits."""
        errors, waiting = [], []
        listed = [(operand, each) for operand, objects in state.operands.items() for each in objects]
        for operand, wanted in sorted(listed, key=lambda each: rank_of(each[1]["kind"])):
            try:
                if text := await self._apply(wanted):
                    waiting.append(f"{operand}: {text}")
            except Unauthorized:
                raise
            except ApiError as error:
                errors.append(f"{operand}: {wanted['kind']} {wanted['metadata']['name']}: {error}")
        self._is_waiting = self._is_waiting or bool(waiting)
        return errors, waiting

    async def _apply(self, wanted: JsonObject) -> str:
        """Apply one object; what it must wait for, or nothing."""
        kind = BY_KIND[wanted["kind"]]
        metadata = wanted["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        live = self._find(kind, namespace, name)
        made = prepared(wanted, live)
        if live is not None:
            if wanted["kind"] in WORKLOADS and _is_deleted(live):
                return waiting_text(wanted)
            if is_applied(made, live):
                return ""
            if kind.is_replaced and not is_made_by_us(live):
                await self._delete_foreign(kind, live)
                if wanted["kind"] in WORKLOADS:
                    return waiting_text(wanted)
        elif pods := pods_in_the_way(wanted, self._pods.values(), self._clock.now().timestamp()):
            return waiting_text(wanted, pods)
        applied = await self._client.patch(
            kind.resource,
            name,
            made,
            namespace,
            kind=PatchKind.APPLY,
            field_manager=FIELD_MANAGER,
            force=True,
        )
        # The watch may lag: the next look must not apply it again, and judges availability by this generation.
        # Contents of Secrets are not kept.
        if kind.resource is not resources.SECRETS:
            self._live[kind.resource.kind, namespace].assume(applied)
        log.info("applied %s %s", wanted["kind"], name)
        return ""

    # install:handover
    async def _delete_foreign(self, kind: OwnedKind, live: JsonObject) -> None:
        """Delete what another operator made under our name; a workload is there until its pods are gone."""
        metadata = live["metadata"]
        log.info("replacing %s %s, which another operator made", kind.resource.kind, metadata["name"])
        propagation = "Foreground" if kind.resource.kind in WORKLOADS else "Background"
        with suppress(NotFound):
            await self._client.delete(
                kind.resource,
                metadata["name"],
                metadata.get("namespace", ""),
                uid=metadata["uid"],
                propagation=propagation,
            )

    def _find(self, kind: OwnedKind, namespace: str, name: str) -> JsonObject | None:
        store = self._live.get((kind.resource.kind, namespace))
        return store.get(kind.resource.key(namespace, name)) if store is not None else None

    # operations:O-32, OC-6
    async def _prune(self, state: DesiredState) -> None:
        wanted = {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
            for objects in state.operands.values()
            for each in objects
        }
        for (kind, namespace), store in self._live.items():
            for live in store.values():
                metadata = live["metadata"]
                if _owner_of(metadata) != state.uid or (kind, namespace, metadata["name"]) in wanted:
                    continue
                if metadata.get("deletionTimestamp"):
                    continue
                log.info("deleting %s %s: it is not wanted any more", kind, metadata["name"])
                with suppress(NotFound, Conflict):
                    await self._client.delete(
                        store.resource, metadata["name"], namespace, uid=metadata["uid"], propagation="Background"
                    )

    def _unavailable(self, state: DesiredState) -> list[str]:
        problems = []
        for operand, objects in state.operands.items():
            texts = [
                unavailable_text(
                    operand,
                    each["kind"],
                    each["metadata"]["name"],
                    self._find(BY_KIND[each["kind"]], each["metadata"]["namespace"], each["metadata"]["name"]),
                )
                for each in objects
                if each["kind"] in WORKLOADS
            ]
            if any(texts):
                problems += [*filter(None, texts), f"{operand}: not available"]
        return problems

    async def _report(self, kind: Resource, owner: JsonObject, progress: Progress) -> None:
        generation = owner["metadata"].get("generation", 0)
        await self._write_conditions(kind, owner, conditions(progress, generation))

    async def _write_conditions(
        self, kind: Resource, owner: JsonObject, made: list[ConditionDocument], *, is_end: bool = True
    ) -> JsonObject:
        """One patch for all conditions, and none where nothing changes (operations:O-35, OD-6)."""
        now = format_timestamp(int(self._clock.now().timestamp()) * 10**9)
        listed = merged(_conditions_of(owner), made, now, is_end=is_end)
        if listed is None:
            return owner
        patch = {"status": {"conditions": listed}}
        try:
            written = await self._client.patch(kind, owner["metadata"]["name"], patch, subresource="status")
        except NotFound:
            return owner
        (self._configs if kind is resources.CONFIGS else self._shards).assume(written)
        return written

    # operations:O-25
    async def _check_conversion(self) -> None:
        """A definition that KAI Scheduler left with a webhook for conversion would make queues unreadable."""
        if self._conversion_is_checked:
            return
        definition = await self._client.get_raw(resources.CUSTOM_RESOURCE_DEFINITIONS, _QUEUE_DEFINITION)
        if (definition["spec"].get("conversion") or {}).get("strategy", "None") != "None":
            patch = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
            await self._client.patch(resources.CUSTOM_RESOURCE_DEFINITIONS, _QUEUE_DEFINITION, patch)
            log.info("removed the conversion webhook of %s", _QUEUE_DEFINITION)
        self._conversion_is_checked = True

    def _note(self, about: str, text: str) -> None:
        """Log something once."""
        if text and self._noted.get(about) != text:
            log.warning("%s", text)
        self._noted[about] = text

    def _warn(self, kind: Resource, owner: JsonObject, text: str, reason: str = "InvalidConfiguration") -> None:
        metadata = owner["metadata"]
        about = f"{kind.kind} {metadata['name']} {reason} {text}"
        if self._noted.get(about) == str(metadata.get("generation")):
            return
        self._noted[about] = str(metadata.get("generation"))
        log.warning("%s %s: %s", kind.kind, metadata["name"], text)
        involved = InvolvedObject(kind.api_version, kind.kind, "", metadata["name"], metadata.get("uid", ""))
        self._recorder.event(involved, "Warning", reason, text)


class InstallationError(Exception):
    """Something could not be written; the reconciler tries again with back-off (operations:O-38)."""


def _conditions_of(owner: Mapping[str, Any]) -> list[ConditionDocument]:
    found = (owner.get("status") or {}).get("conditions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _owner_of(metadata: Mapping[str, Any]) -> str:
    """The uid of the controller of an object."""
    owners = metadata.get("ownerReferences") or ()
    return next((str(each.get("uid", "")) for each in owners if each.get("controller")), "")


def _is_deleted(found: Mapping[str, Any]) -> bool:
    return bool(found["metadata"].get("deletionTimestamp"))
