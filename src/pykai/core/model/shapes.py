"""What a pod requests, once for all pods with equal requests.

A *shape* is everything about a pod that decides where it may run and what it costs there: requests, GPU sharing, node
selector and affinity, tolerations, host ports, pod (anti-)affinity, spread constraints, config maps.  The engine
filters and scores once per shape, so pods of one job cost hardly more than one pod.  Names, labels and owners are not
part of it; labels matter only to affinity and spread, and are kept beside the shape.

`ShapeRegister` interns shapes in two steps: equal raw specs are found by their bytes (the common case, a few
microseconds), and different raw specs that mean the same are found by their meaning.

How requests are read: cycle:TSK-1, TSK-2 and gpu:G-1 to G-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from math import floor

import msgspec

from pykai.api import names
from pykai.api.core import (
    Affinity,
    Container,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
)
from pykai.api.gpuvendors import is_gpu
from pykai.api.quantity import QuantityError
from pykai.core.caching import Cache
from pykai.core.model.axes import MAX_AMOUNT, amount, is_mig, is_tracked, mig_gpus
from pykai.core.model.claimrequests import PodClaim
from pykai.core.model.numarequests import NumaRequest, read_numa_request
from pykai.core.model.volumerequests import VolumeRequest

#: Sums of absurd requests stop here (design: saturate, never overflow).
MAX_REQUEST = MAX_AMOUNT

#: The most that the API server lets a preference weigh.
MAX_WEIGHT = 100

#: What a topology spread constraint does where it cannot be met: keep the pod waiting, or only prefer other nodes.
HARD_SPREAD, SOFT_SPREAD = "DoNotSchedule", "ScheduleAnyway"

#: Raw specs kept, a kilobyte each; those of pods that share GPUs differ in every pod.
_MAX_RAW_SPECS = 10_000
#: The API server mounts the token of the service account under this name and five random letters in every pod; with
#: them no two pods would be written alike, though they mean the same.
_TOKEN_VOLUME_PREFIX = "kube-api-access-"


class GpuKind(IntEnum):
    """How a pod requests GPUs (gpu:1.3 request_type; NONE is gpu:G-13 IsCPUOnly)."""

    NONE = 0
    WHOLE = 1
    FRACTION = 2
    MEMORY = 3
    MIG = 4


class HostPort(msgspec.Struct, frozen=True, order=True):
    """A port on the node's own address."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPU part of a request."""

    kind: GpuKind = GpuKind.NONE
    #: devices requested; for a shared request each gets the portion or memory below
    devices: int = 0
    #: portion of each device, 0 when requested by memory
    portion: float = 0.0
    #: MiB of each device, 0 when requested by portion
    memory_mib: int = 0
    #: a legacy MIG annotation: never schedulable
    legacy_mig: bool = False


@dataclass(frozen=True, slots=True)
class ResolvedReferences:
    """What the references of a pod resolve to."""

    volumes: tuple[VolumeRequest, ...] = ()
    claims: tuple[PodClaim, ...] = ()
    #: its containers with only those requests that a device class backs, and the names of these
    dra_backed_spec: PodSpec | None = None
    dra_backed: tuple[str, ...] = ()


NO_REFERENCES = ResolvedReferences()


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One interned scheduling request.  Compared by identity: equal meaning is the same object."""

    #: resource name -> amount, in axis units, `pods` included, shared GPUs excluded; sorted by name
    requests: tuple[tuple[str, int], ...]
    #: the part of `requests` that is pod overhead, for explanations
    overhead: tuple[tuple[str, int], ...] = ()
    gpu: GpuRequest = GpuRequest()
    #: hundredths of a GPU this shape costs its queue, gpu-memory requests excluded (cycle:R-6)
    gpu_hundredths: int = 0
    node_selector: tuple[tuple[str, str], ...] = ()
    #: required node affinity: any of these terms; None = no requirement
    node_terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: Affinity | None = None
    #: preferred node affinity, without terms that have no effect
    preferred_nodes: tuple[PreferredSchedulingTerm, ...] = ()
    #: topology spread constraints, in the order in which reasons are found
    spread: tuple[TopologySpreadConstraint, ...] = ()
    #: config maps that must exist in the namespace, sorted
    config_maps: tuple[str, ...] = ()
    #: the pod's namespace where the request depends on it (config maps, pod affinity, spread, claims), else ""
    namespace: str = ""
    #: what its persistent volume claims request
    volumes: tuple[VolumeRequest, ...] = ()
    #: what it claims of devices (gpu:11)
    claims: tuple[PodClaim, ...] = ()
    #: extended resources that a device class backs: left out of `requests`, served by the ledger of claims
    dra_backed: tuple[tuple[str, int], ...] = ()
    #: the containers that request them
    dra_backed_spec: PodSpec | None = None
    #: what the engine cannot honour yet; a pod of such a shape is refused rather than misplaced
    unsupported: tuple[str, ...] = ()
    #: what it needs of NUMA zones, None when no node would align it (gpu:12.2)
    numa: NumaRequest | None = None
    #: no GPU of any form (gpu:G-13)
    cpu_only: bool = True
    #: shares its devices with others: a fraction or an amount of GPU memory (gpu:G-13)
    shared: bool = False
    #: a number of its own while the register lives; -1 before the register gave one
    id: int = -1

    def has_spread(self, kind: str) -> bool:
        """Whether it has topology spread constraints of a kind."""
        return any(constraint.when_unsatisfiable == kind for constraint in self.spread)


class RequestError(ValueError):
    """A request that cannot be read; the text begins with the path to the field."""


def _add(into: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        into[name] = min(into.get(name, 0) + value, MAX_REQUEST)


def _raise_to_max(into: dict[str, int], other: Mapping[str, int]) -> None:
    for name, value in other.items():
        if value > into.get(name, 0):
            into[name] = value


def _read_list(resources: Mapping[str, str | int | float], path: str) -> dict[str, int]:
    read: dict[str, int] = {}
    for name, raw in resources.items():
        if not is_tracked(name):
            continue
        try:
            read[name] = max(0, amount(name, raw))
        except QuantityError as error:
            raise RequestError(f"{path}.{name}: {error}") from error
    return read


def _container_requests(container: Container, path: str) -> dict[str, int]:
    return _read_list(container.resources.requests, f"{path}.resources.requests")


def _pod_requests(pod: Pod) -> tuple[dict[str, int], dict[str, int]]:
    """Requests of the whole pod and the overhead in them (cycle:TSK-1)."""
    spec = pod.spec
    total: dict[str, int] = {}
    for index, container in enumerate(spec.containers):
        _add(total, _container_requests(container, f"spec.containers[{index}]"))
    sidecars: dict[str, int] = {}
    peaks: dict[str, int] = {}
    for index, container in enumerate(spec.init_containers):
        own = _container_requests(container, f"spec.initContainers[{index}]")
        if container.restart_policy == "Always":
            _add(sidecars, own)
        else:
            # An ordinary init container runs beside the sidecars declared before it, alone otherwise.
            _add(own, sidecars)
            _raise_to_max(peaks, own)
    _add(total, sidecars)
    _raise_to_max(total, peaks)
    if spec.resources is not None and spec.resources.requests:
        # Pod-level requests replace the sum of the containers, resource by resource (cycle:TSK-1, Do better).
        total.update(_read_list(spec.resources.requests, "spec.resources.requests"))
    overhead = {
        name: value
        for name, value in _read_list(spec.overhead, "spec.overhead").items()
        if value > 0 and not is_gpu(name) and not is_mig(name)
    }
    _add(total, overhead)
    total["pods"] = 1
    return total, overhead


def read_integer(text: str | None) -> int | None:
    """A plain base-10 integer, or None: what Go's strconv.Atoi accepts, within reason."""
    if text is None or len(text) > 18:
        return None
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() else None


def read_fraction(text: str | None) -> float | None:
    """A portion of a GPU, or None: above 0 and at most 1."""
    # Go takes neither blanks around a number nor the digits of other scripts.
    if text is None or not text.isascii() or text != text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value <= 1.0 else None


def hundredths(portion: float) -> int:
    """A portion in hundredths of a GPU, half away from zero (gpu:1.3 GPUs())."""
    return floor(portion * 100 + 0.5)


def _gpu_request(pod: Pod, requests: dict[str, int]) -> tuple[GpuRequest, int]:
    """The GPU request and its cost; drops GPU names from `requests` when sharing replaces them (gpu:G-2 to G-11)."""
    annotations = pod.metadata.annotations
    memory = read_integer(annotations.get(names.GPU_MEMORY_ANNOTATION))
    portion = read_fraction(annotations.get(names.GPU_FRACTION_ANNOTATION))
    legacy = {
        # A negative count must not reduce what the queue of the pod holds.
        key: max(0, count)
        for key, value in annotations.items()
        if key.startswith(names.MIG_PREFIX) and (count := read_integer(value)) is not None
    }
    devices = min(sum(count for name, count in requests.items() if is_gpu(name)), MAX_REQUEST)
    kind = GpuKind.WHOLE if devices > 0 else GpuKind.NONE
    gpu_request = GpuRequest(kind, devices, 1.0 if devices else 0.0)
    cost = min(devices * 100, MAX_REQUEST)

    shared = portion is not None or (memory is not None and memory > 0)
    if shared:
        for name in [name for name in requests if is_gpu(name)]:
            del requests[name]
        count = read_integer(annotations.get(names.GPU_NUM_DEVICES_ANNOTATION))
        has_device_count = count is not None
        devices = max(1, count) if count is not None else 1
        if portion is not None:
            # Fraction wins over memory; the memory survives only in the several-devices form (gpu:G-6, G-7).
            memory_mib = memory if has_device_count and memory is not None and memory > 0 else 0
            gpu_request = GpuRequest(GpuKind.FRACTION, devices, portion, memory_mib)
        else:
            assert memory is not None
            gpu_request = GpuRequest(GpuKind.MEMORY, devices, 0.0, memory)
        cost = min(hundredths(gpu_request.portion) * devices, MAX_REQUEST)

    slices = {name: count for name, count in requests.items() if is_mig(name) and count > 0}
    if legacy:
        for name in [name for name in requests if is_gpu(name) or is_mig(name)]:
            del requests[name]
        requests.update({name: count for name, count in legacy.items() if count > 0})
        slices = legacy
    if slices and (legacy or not shared):
        kind_cost = sum(mig_gpus(name) * count for name, count in slices.items()) * 100
        gpu_request = GpuRequest(GpuKind.MIG, 0, 0.0, 0, legacy_mig=bool(legacy))
        cost = min(kind_cost + sum(100 * count for name, count in requests.items() if is_gpu(name)), MAX_REQUEST)
    return gpu_request, cost


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Ports held while the pod runs; an ordinary init container is gone by then (cycle:FLT-2 NodePorts)."""
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    host_ports = {
        HostPort(port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(host_ports))


def count_ports(held: dict[HostPort, int], ports: Iterable[HostPort], sign: int) -> None:
    """Count a pod's host ports in (sign 1) or out (-1) of those held on a node."""
    for port in ports:
        held[port] = held.get(port, 0) + sign
        if not held[port]:
            del held[port]


def _config_maps(pod: Pod) -> tuple[str, ...]:
    """Config maps that some container really needs (cycle:FLT-8)."""
    spec = pod.spec
    containers = [*spec.containers, *spec.init_containers]
    mounted = {mount.name for container in containers for mount in container.volume_mounts}
    needed: set[str] = set()
    for volume in spec.volumes:
        if volume.name not in mounted:
            continue
        sources = [volume.config_map]
        if volume.projected is not None:
            sources += [source.config_map for source in volume.projected.sources]
        needed.update(source.name for source in sources if source is not None and not source.optional)
    for container in containers:
        for variable in container.env:
            reference = variable.value_from.config_map_key_ref if variable.value_from is not None else None
            if reference is not None and not reference.optional:
                needed.add(reference.name)
        for source_env in container.env_from:
            reference_env = source_env.config_map_ref
            if reference_env is not None and not reference_env.optional:
                needed.add(reference_env.name)
    prefix = pod.metadata.annotations.get(names.SHARED_GPU_CONFIGMAP_ANNOTATION)
    return tuple(sorted(name for name in needed if name and not (prefix and name.startswith(prefix))))


def _required_node_terms(affinity: Affinity | None) -> tuple[NodeSelectorTerm, ...] | None:
    node_affinity = affinity.node_affinity if affinity is not None else None
    if node_affinity is None or node_affinity.required is None:
        return None
    return tuple(node_affinity.required.node_selector_terms)


def _preferred_node_terms(affinity: Affinity | None) -> tuple[PreferredSchedulingTerm, ...]:
    """Terms that can prefer a node; empty terms and terms without weight have no effect."""
    node_affinity = affinity.node_affinity if affinity is not None else None
    if node_affinity is None:
        return ()
    return tuple(
        term
        for term in node_affinity.preferred
        if term.weight > 0 and (term.preference.match_expressions or term.preference.match_fields)
    )


def pod_affinity_terms(affinity: Affinity | None) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """Required affinity terms and required anti-affinity terms."""
    if affinity is None:
        return (), ()
    pod_affinity = affinity.pod_affinity
    anti_affinity = affinity.pod_anti_affinity
    return (
        tuple(pod_affinity.required) if pod_affinity is not None else (),
        tuple(anti_affinity.required) if anti_affinity is not None else (),
    )


def _tolerations(listed: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """Tolerations without order, repetition and duration, which do not matter here."""
    distinct = {(t.key, t.operator or "Equal", t.value, t.effect) for t in listed}
    return tuple(
        Toleration(key=key, operator=op, value=value, effect=effect) for key, op, value, effect in sorted(distinct)
    )


def _read_shape(pod: Pod, resolved: ResolvedReferences) -> Shape:
    """The shape of a pod, without a number yet."""
    spec = pod.spec
    requests, overhead = _pod_requests(pod)
    gpu, cost = _gpu_request(pod, requests)
    claimed_gpus = sum(claim.gpus for claim in resolved.claims)
    wants_admin_access = any(
        claim.request is not None and claim.request.wants_admin_access for claim in resolved.claims
    )
    backed = tuple((name, requests.pop(name)) for name in resolved.dra_backed if requests.get(name, 0) > 0)
    affinity = spec.affinity
    has_pod_affinity = affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )
    config_maps = _config_maps(pod)
    spread = tuple(
        constraint
        for constraint in spec.topology_spread_constraints
        if constraint.when_unsatisfiable in (HARD_SPREAD, SOFT_SPREAD)
    )
    return Shape(
        requests=tuple(sorted((name, value) for name, value in requests.items() if value > 0)),
        overhead=tuple(sorted(overhead.items())),
        gpu=gpu,
        gpu_hundredths=min(cost + 100 * claimed_gpus, MAX_REQUEST),
        node_selector=tuple(sorted(spec.node_selector.items())),
        node_terms=_required_node_terms(affinity),
        tolerations=_tolerations(spec.tolerations),
        host_ports=_host_ports(pod),
        affinity=affinity if has_pod_affinity else None,
        preferred_nodes=_preferred_node_terms(affinity),
        spread=spread,
        config_maps=config_maps,
        namespace=pod.metadata.namespace if config_maps or has_pod_affinity or spread or wants_admin_access else "",
        volumes=resolved.volumes,
        claims=resolved.claims,
        dra_backed=backed,
        dra_backed_spec=resolved.dra_backed_spec if backed else None,
        numa=read_numa_request(pod, shared=gpu.kind in (GpuKind.FRACTION, GpuKind.MEMORY)),
        cpu_only=gpu.kind is GpuKind.NONE and not claimed_gpus,
        shared=gpu.kind in (GpuKind.FRACTION, GpuKind.MEMORY),
    )


@dataclass(slots=True)
class ShapeRegister:
    """Interns shapes.

    Subtle: names are part of many shapes (the ConfigMap of a job, the namespace of a pod that mounts one), so the
    number of shapes grows without bound as names come and go.  The owner of a register drops unused shapes from time
    to time (`retain_only`).
    """

    shapes: list[Shape] = field(default_factory=list)
    #: whether any of them has a topology spread constraint that refuses nodes
    has_hard_spread: bool = False
    _next_id: int = 0
    _by_bytes: Cache[bytes, Shape] = field(default_factory=partial(Cache, _MAX_RAW_SPECS))
    _by_meaning: dict[bytes, Shape] = field(default_factory=dict)
    _encoder: msgspec.msgpack.Encoder = field(default_factory=lambda: msgspec.msgpack.Encoder(order="deterministic"))

    def shape_of(self, pod: Pod, resolved: ResolvedReferences = NO_REFERENCES) -> Shape:
        """The shape of a pod; raises RequestError when a request cannot be read."""
        try:
            raw = self._encoder.encode((self._raw_parts(pod), resolved))
        except OverflowError:
            # A request written as a number beyond 64 bits, which the bytes cannot hold; its amount saturates.
            return self._intern(_read_shape(pod, resolved))
        for volume in pod.spec.volumes:
            if volume.name.startswith(_TOKEN_VOLUME_PREFIX):
                raw = raw.replace(volume.name.encode(), _TOKEN_VOLUME_PREFIX.encode())
        shape = self._by_bytes.get(raw)
        if shape is None:
            shape = self._by_bytes.store(raw, self._intern(_read_shape(pod, resolved)))
        return shape

    @property
    def cached_specs(self) -> int:
        """How many raw specs are known by their bytes."""
        return len(self._by_bytes)

    def retain_only(self, used: Set[Shape]) -> None:
        """Drop all shapes but these; they keep their numbers, and no number is given twice."""
        self.shapes = [shape for shape in self.shapes if shape in used]
        self.has_hard_spread = any(shape.has_spread(HARD_SPREAD) for shape in self.shapes)
        for raw in [raw for raw, shape in self._by_bytes.items() if shape not in used]:
            del self._by_bytes[raw]
        self._by_meaning = {meaning: shape for meaning, shape in self._by_meaning.items() if shape in used}

    def unreadable_shape(self) -> Shape:
        """The shape of pods whose requests cannot be read: it costs nothing and is never placed."""
        return self._intern(Shape((("pods", 1),), unsupported=("a request that cannot be read",)))

    @staticmethod
    def _raw_parts(pod: Pod) -> tuple[object, ...]:
        spec = pod.spec
        annotations = pod.metadata.annotations
        gpu_annotations = [item for item in annotations.items() if _affects_gpu_request(item[0])]
        return (
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.volumes,
            spec.resource_claims,
            spec.topology_spread_constraints,
            gpu_annotations,
            pod.status.qos_class,
            pod.metadata.namespace,
        )

    def _intern(self, shape: Shape) -> Shape:
        """The one shape of this meaning: its values without the number."""
        meaning = self._encoder.encode(shape)
        interned = self._by_meaning.get(meaning)
        if interned is None:
            interned = replace(shape, id=self._next_id)
            self._next_id += 1
            self.shapes.append(interned)
            self.has_hard_spread = self.has_hard_spread or interned.has_spread(HARD_SPREAD)
            self._by_meaning[meaning] = interned
        return interned


_GPU_REQUEST_ANNOTATIONS = frozenset(
    (
        names.GPU_FRACTION_ANNOTATION,
        names.GPU_MEMORY_ANNOTATION,
        names.GPU_NUM_DEVICES_ANNOTATION,
        names.SHARED_GPU_CONFIGMAP_ANNOTATION,
    )
)


def _affects_gpu_request(key: str) -> bool:
    return key in _GPU_REQUEST_ANNOTATIONS or key.startswith(names.MIG_PREFIX)
