"""Nodes ranked by repairing rows are ranked as by a full scoring, and the first is the right one.

`World` is a second, slow engine for clusters with one queue: plain lists of pods, everything summed up again for every
question, the formulas of cycle:SCO-2, SCO-3 and SCO-4 one node at a time.  It shares no code with the product; node,
devices and whether the pod must wait have to be the same for every pod of every gang.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.core.caching import Memo
from pykai.core.hooks import ALL_NODES
from pykai.core.model.sharedgpus import tenant_mib
from pykai.core.opencycle import Cycle
from pykai.core.placing.fit import devices_with_room, fits_plane, fits_row, has_device_with_room_at
from pykai.core.placing.ranking import Rankings
from pykai.core.placing.sharedroom import SharedRoom
from tests.core.builders import Cluster, Raw, cluster, placement_request_of

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
LIVE, LEAVING, PROMISED = "live", "leaving", "promised"
GI = 1 << 30


@dataclass(frozen=True)
class Machine:
    """A node as drawn."""

    name: str
    cpu: int
    memory_gi: int
    pods: int
    gpus: int
    vendor: str = NVIDIA
    #: the memory label, None when it is missing
    gpu_label: int | None = 1000
    count_label: int | None = None

    @property
    def gpu_mib(self) -> int:
        """Memory of one GPU (gpu:C-1)."""
        return 100 if self.gpu_label is None else self.gpu_label // 100 * 100


@dataclass(frozen=True)
class Wish:
    """What a pod requests."""

    cpu: int = 1
    memory_gi: int = 1
    gpu: int = 0
    vendor: str = NVIDIA
    fraction: float | None = None
    gpu_memory: int | None = None
    devices: int = 1
    nominated: str = ""

    @property
    def shares(self) -> bool:
        """Whether it wants part of a GPU."""
        return self.fraction is not None or self.gpu_memory is not None

    @property
    def cpu_only(self) -> bool:
        """Whether it wants no GPU at all."""
        return not self.gpu and not self.shares

    def mib(self, node: Machine) -> int:
        """Memory of each device (gpu:C-2)."""
        if self.gpu_memory is not None:
            return min(self.gpu_memory, node.gpu_mib) if self.gpu_memory <= (node.gpu_label or 100) else self.gpu_memory
        return int((self.fraction or 0) * node.gpu_mib)

    def as_pod(self) -> Raw:
        """Keywords for the builder."""
        asked: Raw = {"cpu": self.cpu, "memory": f"{self.memory_gi}Gi", "nominated": self.nominated}
        if self.shares:
            asked |= {"fraction": self.fraction, "gpu_memory": self.gpu_memory, "devices": self.devices}
        elif self.gpu:
            asked |= {"extra": {self.vendor: self.gpu}}
        return asked


@dataclass(frozen=True)
class Placed:
    """A pod on a node."""

    wish: Wish
    node: str
    devices: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class Choice:
    """Where a pod goes; None among the devices means a new one."""

    node: str
    devices: tuple[str | None, ...]
    waits: bool


@dataclass
class Strategy:
    """How nodes and GPUs are scored."""

    cpu: str = "binpack"
    gpu: str = "binpack"
    pack_devices: bool = True
    sharing: bool = True
    shared_only: bool = False

    def configuration(self) -> Raw:
        """The same as a configuration file."""
        plugins: list[Raw] = [{"name": name} for name in ("predicates", "proportion", "nodeavailability")]
        if self.sharing:
            plugins.append({"name": "gpusharingorder", "arguments": {"sharedOnly": str(self.shared_only).lower()}})
        plugins.append({"name": "gpupack" if self.pack_devices else "gpuspread"})
        plugins += [{"name": "resourcetype"}, {"name": "nominatednode"}]
        plugins.append({"name": "nodeplacement", "arguments": {"cpu": self.cpu, "gpu": self.gpu}})
        return {"tiers": [{"plugins": plugins}]}


@dataclass
class World:
    """The slow engine."""

    nodes: list[Machine]
    strategy: Strategy
    pods: list[Placed] = field(default_factory=list)
    #: devices that were shared before the cycle
    reserved: set[str] = field(default_factory=set)

    def here(self, node: Machine, *states: str) -> list[Placed]:
        return [pod for pod in self.pods if pod.node == node.name and pod.state in states]

    def left(self, node: Machine, what: str, *, idle: bool) -> int:
        """What is idle, or what is idle or being released, of cpu, memory_gi or pods."""
        held = self.here(node, LIVE, LEAVING) if idle else self.here(node, LIVE, PROMISED)
        if what == "pods":
            # A device shared since the cycle began has a reservation pod, whose slot comes and goes with it (gpu:P-7).
            reserved = {device for pod in held for device in pod.devices} - self.reserved
            return node.pods - len(held) - len(reserved)
        used: int = sum(getattr(pod.wish, what) for pod in held)
        return int(getattr(node, what)) - used

    def tenants(self, node: Machine) -> dict[str, list[Placed]]:
        found: dict[str, list[Placed]] = {}
        for pod in self.here(node, LIVE, LEAVING, PROMISED):
            for device in pod.devices:
                found.setdefault(device, []).append(pod)
        return found

    def whole_gpus(self, node: Machine, *, idle: bool) -> int:
        """Whole GPUs that are idle, or idle or being released (gpu:4)."""

        def count(*states: str) -> int:
            return sum(pod.wish.gpu for pod in self.here(node, *states))

        left, released = node.gpus - count(LIVE, LEAVING), count(LEAVING) - count(PROMISED)
        for pods in self.tenants(node).values():
            states = {pod.state for pod in pods}
            left -= bool(states & {LIVE, LEAVING})
            if LIVE not in states:
                released += (LEAVING in states) - (PROMISED in states)
        return left if idle else left + released

    def memory(self, node: Machine, device: str, *states: str) -> int:
        return sum(pod.wish.mib(node) for pod in self.tenants(node)[device] if pod.state in states)

    def has_room(self, node: Machine, device: str, mib: int) -> bool:
        """gpu:F-3: a device whose tenants all terminate is no longer shared, unless a pod is pipelined onto it."""
        stays = self.memory(node, device, LIVE, PROMISED)
        return stays != 0 and stays + mib <= node.gpu_mib

    def joinable(self, node: Machine, wish: Wish) -> list[str]:
        return [device for device in self.tenants(node) if self.has_room(node, device, wish.mib(node))]

    def fits(self, node: Machine, wish: Wish, *, idle: bool) -> bool:
        """Resources alone (gpu:F-1, F-2)."""
        for what, wanted in (("cpu", wish.cpu), ("memory_gi", wish.memory_gi), ("pods", 1)):
            if self.left(node, what, idle=idle) < wanted:
                return False
        whole = self.whole_gpus(node, idle=idle)
        if wish.shares:
            enough = max(whole, 0) + len(self.joinable(node, wish)) >= wish.devices
            shareable = node.gpus > 0 and node.vendor == NVIDIA
            return shareable and wish.mib(node) <= node.gpu_mib and enough
        return not wish.gpu or (node.vendor == wish.vendor and whole >= wish.gpu)

    def seats(self, node: Machine, wish: Wish) -> tuple[tuple[str | None, ...], bool]:
        """Devices of a share on a node that fits, and whether it must wait (cycle:SCO-4)."""
        mib = wish.mib(node)

        def score(device: str | None) -> float:
            used = 0.0 if device is None else self.memory(node, device, LIVE, LEAVING, PROMISED) / node.gpu_mib
            return used if self.strategy.pack_devices else 1 - used

        whole = max(self.whole_gpus(node, idle=False), 0)
        listed: list[tuple[float, bool, str]] = [(-score(name), False, name) for name in self.joinable(node, wish)]
        listed += [(-score(None), True, "")] * whole
        taken = [None if is_new else name for _, is_new, name in sorted(listed)[: wish.devices]]
        fresh = taken.count(None)
        waits = not self.fits(node, wish, idle=True) or fresh > self.whole_gpus(node, idle=True)
        waits |= self.left(node, "pods", idle=True) < 1 + fresh
        for device in taken:
            if device is not None:
                now = self.memory(node, device, LIVE, LEAVING)
                waits |= not now or now + mib > node.gpu_mib
        return tuple(taken), waits

    def allowed(self, node: Machine, wish: Wish) -> bool:
        """All the filters (gpu:P-5, P-7)."""
        if not self.fits(node, wish, idle=False):
            return False
        if wish.gpu_memory is not None and node.gpu_label is None:
            return False
        if wish.shares:
            devices, _ = self.seats(node, wish)
            return self.left(node, "pods", idle=False) >= 1 + devices.count(None)
        return True

    def amount(self, node: Machine, wish: Wish) -> tuple[int, int]:
        """Free and offered amount of what the task is about."""
        if wish.cpu_only:
            return self.left(node, "cpu", idle=False), node.cpu
        return self.whole_gpus(node, idle=False), node.gpus

    def placement_score(self, node: Machine, wish: Wish) -> float:
        """cycle:SCO-3"""
        free, offered = self.amount(node, wish)
        if (self.strategy.cpu if wish.cpu_only else self.strategy.gpu) == "spread":
            total = offered if wish.cpu_only or node.count_label is None else node.count_label
            return free / total if total else 0.0
        range_ = [free for free, offers in (self.amount(each, wish) for each in self.nodes) if offers]
        if not offered or not range_ or max(range_) == 0:
            return 0.0
        least, most = min(range_), max(range_)
        return 9.0 if least == most else 9 * (1 - (free - least) / (most - least))

    def score(self, node: Machine, wish: Wish) -> float:
        """cycle:SCO-2"""
        total = 0.0
        if wish.nominated == node.name:
            total += 10_000_000
        if wish.cpu_only and not node.gpus:
            total += 10
        if self.fits(node, wish, idle=True):
            total += 1_000
        draws = self.strategy.sharing and (wish.shares or (not self.strategy.shared_only and not wish.gpu))
        if draws and self.joinable(node, wish):
            total += 10_000
        return total + self.placement_score(node, wish)

    def choose(self, wish: Wish) -> Choice | None:
        """cycle:SCO-1: by score, then by name, among those that fit."""
        fitting = [node for node in self.nodes if self.allowed(node, wish)]
        if not fitting:
            return None
        node = min(fitting, key=lambda each: (-self.score(each, wish), each.name))
        if wish.shares:
            devices, waits = self.seats(node, wish)
            return Choice(node.name, devices, waits)
        return Choice(node.name, (), not self.fits(node, wish, idle=True))


@dataclass
class Scene:
    """A cluster as drawn, for both engines."""

    world: World
    gangs: dict[str, tuple[Wish, int]]

    def cluster(self) -> Cluster:
        """The same as objects."""
        made = cluster().queue("q").configured(self.world.strategy.configuration())
        for node in self.world.nodes:
            labels: dict[str, str] = {}
            if node.gpu_label is not None:
                labels["nvidia.com/gpu.memory"] = str(node.gpu_label)
            if node.count_label is not None:
                labels["nvidia.com/gpu.count"] = str(node.count_label)
            made.node(
                node.name,
                cpu=node.cpu,
                memory=f"{node.memory_gi}Gi",
                pods=node.pods,
                labels=labels,
                extra={node.vendor: node.gpus},
            )
        for number, pod in enumerate(self.world.pods):
            fate: Raw = {"deleted": 0} if pod.state == LEAVING else {}
            made.pod(f"old-{number}", on=pod.node, device=pod.devices, **pod.wish.as_pod(), **fate)
        for name, (wish, pods) in self.gangs.items():
            made.gang(name, pods=pods, **wish.as_pod())
        return made


portions = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 0.75, 1.0])
memories = st.sampled_from([100, 250, 400, 500, 1000, 1050, 2000])
names = [f"node-{index}" for index in range(4)]


@st.composite
def machines(draw: st.DrawFn, name: str) -> Machine:
    """A node."""
    gpus = draw(st.sampled_from([0, 1, 2, 2, 4]))
    return Machine(
        name=name,
        cpu=draw(st.sampled_from([2, 4, 8])),
        memory_gi=draw(st.sampled_from([4, 8, 16])),
        pods=draw(st.sampled_from([2, 3, 5, 20])),
        gpus=gpus,
        vendor=draw(st.sampled_from([NVIDIA, NVIDIA, NVIDIA, AMD])),
        gpu_label=draw(st.sampled_from([None, 1000, 1099, 2000])),
        count_label=draw(st.sampled_from([None, None, 1, 4])),
    )


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    """A request of any kind."""
    kind = draw(st.sampled_from(["cpu", "whole", "fraction", "fraction", "memory"]))
    common: dict[str, Any] = {
        "cpu": draw(st.integers(0, 3)),
        "memory_gi": draw(st.integers(0, 3)),
        "nominated": draw(st.sampled_from(["", "", "", *names, "gone"])),
    }
    if kind == "whole":
        return Wish(gpu=draw(st.integers(1, 2)), vendor=draw(st.sampled_from([NVIDIA, NVIDIA, AMD])), **common)
    if kind == "fraction":
        return Wish(fraction=draw(portions), devices=draw(st.sampled_from([1, 1, 2])), **common)
    if kind == "memory":
        return Wish(gpu_memory=draw(memories), devices=draw(st.sampled_from([1, 1, 2])), **common)
    return Wish(**common)


strategies = st.builds(
    Strategy,
    cpu=st.sampled_from(["binpack", "spread"]),
    gpu=st.sampled_from(["binpack", "spread"]),
    pack_devices=st.booleans(),
    sharing=st.booleans(),
    shared_only=st.booleans(),
)


def _settled(world: World, wish: Wish, node: Machine, device: str, state: str) -> Placed | None:
    """A pod that can be on a node before the cycle, None when it does not fit."""
    pod = Placed(wish, node.name, (device,) * wish.shares, state)
    tried = World(world.nodes, world.strategy, [*world.pods, pod], {*world.reserved, *pod.devices})
    if any(tried.left(node, what, idle=True) < 0 for what in ("cpu", "memory_gi", "pods")):
        return None
    if (wish.gpu and node.vendor != wish.vendor) or ((wish.gpu or wish.shares) and not node.gpus):
        return None
    if wish.shares and node.vendor != NVIDIA:
        return None
    full = any(tried.memory(node, each, LIVE, LEAVING) > node.gpu_mib for each in tried.tenants(node))
    return None if full or tried.whole_gpus(node, idle=True) < 0 else pod


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Nodes, pods on them, gangs that wait."""
    nodes = [draw(machines(name)) for name in names[: draw(st.integers(1, 4))]]
    world = World(nodes, draw(strategies))
    for _ in range(draw(st.integers(0, 6))):
        node = draw(st.sampled_from(nodes))
        device = f"{node.name}-{draw(st.sampled_from('xy'))}"
        wish = Wish(
            cpu=draw(st.integers(0, 2)),
            memory_gi=draw(st.integers(0, 2)),
            gpu=draw(st.sampled_from([0, 0, 1])),
            vendor=node.vendor,
        )
        if not wish.gpu and draw(st.booleans()):
            wish = Wish(cpu=wish.cpu, memory_gi=wish.memory_gi, fraction=draw(st.sampled_from([0.2, 0.5, 0.75])))
        pod = _settled(world, wish, node, device, draw(st.sampled_from([LIVE, LIVE, LEAVING])))
        if pod is not None:
            world.pods.append(pod)
            world.reserved.update(pod.devices)
    kinds = [draw(wishes()) for _ in range(draw(st.integers(1, 3)))]
    gangs = {
        f"gang-{number}": (draw(st.sampled_from(kinds)), draw(st.sampled_from([1, 1, 1, 2, 3])))
        for number in range(draw(st.integers(1, 6)))
    }
    return Scene(world, gangs)


@settings(max_examples=100, deadline=None)
@given(scenes())
def test_every_pod_goes_where_the_reference_engine_places_it(scene: Scene) -> None:
    """cycle:SCO-1 to SCO-5, gpu:F-1 to F-9, gpu:P-7"""
    result = scene.cluster().schedule()
    world = scene.world
    for gang, (wish, pods) in scene.gangs.items():
        before, choices = list(world.pods), list[Choice]()
        for index in range(pods):
            choice = world.choose(wish)
            if choice is None:
                choices, world.pods = [], before
                break
            choices.append(choice)
            actual = result.devices_of(f"{gang}-{index}")
            known = {device for pod in world.pods for device in pod.devices}
            # New devices have the names the plan gave them; a plan without this pod is found out below.
            names_ = tuple(
                (actual[at] if at < len(actual) else f"?{gang}-{index}-{at}") if device is None else device
                for at, device in enumerate(choice.devices)
            )
            assert not known & {name for name, was in zip(names_, choice.devices, strict=True) if was is None}
            world.pods.append(Placed(wish, choice.node, names_, PROMISED if choice.waits else LIVE))
        if any(choice.waits for choice in choices):
            # A gang never starts in parts (cycle:ALC-5).
            placed = world.pods[len(before) :]
            world.pods = before + [Placed(pod.wish, pod.node, pod.devices, PROMISED) for pod in placed]
        expected = [(pod.node, pod.devices, pod.state == PROMISED) for pod in world.pods[len(before) :]]
        assert list(_decided(result.cycle, gang, pods)) == expected, f"{gang} of {wish}"


def _decided(cycle: Cycle, gang: str, pods: int) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Node, devices and whether it waits, of every placed pod of a gang."""
    for index in range(pods):
        for items, waits in ((cycle.decisions.binds, False), (cycle.decisions.nominations, True)):
            item = items.get(f"default/{gang}-{index}")
            if item is not None:
                yield item.node, item.gpu_groups, waits


def ranked(cycle: Cycle, pod: str, *, fresh: bool) -> list[float]:
    """Scores of all nodes for a pod: as cached by the cycle, or recomputed for all nodes at once."""
    ask = placement_request_of(cycle, pod)
    if not fresh:
        return list(cycle.rankings.ranking_for(cycle.state, ask, ALL_NODES).scores.tolist())
    kept, cycle.context.snapshot.memo = cycle.context.snapshot.memo, Memo()
    try:
        return list(Rankings(cycle.context.rules, few_rows=0).ranking_for(cycle.state, ask, ALL_NODES).scores.tolist())
    finally:
        cycle.context.snapshot.memo = kept


def walk(scene: Scene, data: st.DataObject) -> Iterator[Cycle]:
    """A cycle after each of some random placements and rollbacks."""
    cycle = scene.cluster().cycle()
    state = cycle.state
    gangs = {gang: placement_request_of(cycle, f"{gang}-0").gang for gang in scene.gangs}
    marks = [state.mark()]
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["place", "place", "promise", "convert", "mark", "rollback"]))
        if step == "mark":
            marks.append(state.mark())
        elif step == "rollback":
            state.rollback(marks.pop() if len(marks) > 1 else marks[0])
        else:
            gang = gangs[data.draw(st.sampled_from(sorted(gangs)))]
            if step == "convert":
                state.convert_to_pipelined(gang, marks[-1])
            elif step == "place":
                cycle.placer.place_gang(gang)
            elif batches := cycle.gangs.next_tasks(gang):
                cycle.placer.try_place_tasks(gang, batches)
        yield cycle


@settings(max_examples=80, deadline=None)
@given(scenes(), st.data())
def test_a_repaired_ranking_equals_a_new_one(scene: Scene, data: st.DataObject) -> None:
    """cycle:SCO-1: after any sequence of placements and rollbacks, however long the ranking was unused."""
    for cycle in walk(scene, data):
        looked_at = data.draw(st.sampled_from(["", "", *sorted(scene.gangs)]))
        if looked_at:
            assert ranked(cycle, f"{looked_at}-0", fresh=False) == ranked(cycle, f"{looked_at}-0", fresh=True)
    for gang in scene.gangs:
        assert ranked(cycle, f"{gang}-0", fresh=False) == ranked(cycle, f"{gang}-0", fresh=True)


@settings(max_examples=80, deadline=None)
@given(scenes(), st.data())
def test_room_on_shared_gpus_equals_a_plain_count(scene: Scene, data: st.DataObject) -> None:
    """gpu:F-1 to F-3: columns of devices, and checks of one row, after any placements and rollbacks."""
    for cycle in walk(scene, data):
        if data.draw(st.booleans()):
            continue
        state = cycle.state
        facts = state.snapshot.nodes.facts
        room = SharedRoom.of(state)
        for row, node in enumerate(facts):
            devices = state.devices.get(row, {}).values()
            assert room.only_reserved[row] == sum(device.is_only_reserved for device in devices)
            for gang in scene.gangs:
                request = placement_request_of(cycle, f"{gang}-0")
                mib = tenant_mib(request.shape.gpu, node.gpu_mib, node.gpu_label_mib)
                fitting = sum(device.fits_tenant(mib, node.gpu_mib) for device in devices)
                assert devices_with_room(state, request.shape, slice(None))[row] == fitting
                assert has_device_with_room_at(state, request.shape, row) == (fitting > 0)
                for plane in (state.idle, state.free):
                    idle = plane is state.idle
                    alone = fits_row(state, plane[:, row].tolist(), request, row, idle=idle)
                    assert alone == fits_plane(state, plane, request, slice(None))[row]
