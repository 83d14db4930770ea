"""The walk over queues and the choice of tasks, against slow oracles that share no code with the product.

`Oracle` serves a cluster of one node: before every turn it recomputes everything from plain records (allocations,
whose turn it is, which tasks are next), walks siblings from the oldest and settles ties pairwise (queues:10.1, 10.2).
Only the fair shares are taken from the product; they have an oracle of their own in test_fairshare.py.

`chosen` is the pseudo-code of cycle:6.2 on a tree of plain counts.
"""

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.core.builders import Cluster, Result, SubgroupSpec, branch, cluster, leaf

MB = 1_000_000
Numbers = tuple[float, float, float]

NODE_CPU, NODE_MB, NODE_GPUS = 16, 16_000, 16
TOTAL: Numbers = (NODE_CPU * 1000.0, NODE_MB * MB * 1.0, NODE_GPUS * 100.0)


@dataclass(frozen=True)
class Plot:
    """A queue; amounts are (CPU milli, memory MB, GPUs), -1 is unlimited, ages are seconds."""

    name: str
    parent: str
    age: int
    priority: int
    quota: Numbers
    limit: Numbers
    weight: Numbers


@dataclass(frozen=True)
class Job:
    """A group; a pod requests (CPU milli, memory MB, GPUs)."""

    name: str
    queue: str
    age: int
    priority: int
    preemptible: bool
    minimum: int
    running: int
    pending: int
    pod: Numbers


@dataclass(frozen=True)
class Scene:
    plots: list[Plot]
    jobs: list[Job]

    def built(self, seed: int | None = None) -> Cluster:
        """The cluster; a seed shuffles its objects."""
        made = cluster(nodes=1, cpu=NODE_CPU, memory=NODE_MB * MB, gpus=NODE_GPUS, pods=1000)
        made.priority_class("high", 60)
        for plot in self.plots:
            blocks = list(zip(plot.quota, plot.limit, plot.weight, strict=True))
            made.queue(
                plot.name,
                parent=plot.parent,
                age=plot.age,
                priority=plot.priority,
                cpu=blocks[0],
                memory=blocks[1],
                quota=blocks[2][0],
                limit=blocks[2][1],
                weight=blocks[2][2],
            )
        for job in self.jobs:
            made.group(
                job.name,
                queue=job.queue,
                age=job.age,
                minMember=job.minimum,
                priorityClassName="high" if job.priority == 60 else "",
                preemptibility="preemptible" if job.preemptible else "non-preemptible",
            )
            cpu, memory, gpu = job.pod
            for index in range(job.running + job.pending):
                made.pod(
                    f"{job.name}-{index}",
                    group=job.name,
                    age=100 - index,
                    cpu=f"{cpu:.0f}m",
                    memory=f"{memory * MB:.0f}",
                    gpu=int(gpu),
                    on="node-0" if index < job.running else "",
                )
        if seed is not None:
            Random(seed).shuffle(made.objects)
        return made


def ledger_units(amounts: Numbers) -> Numbers:
    """CPU milli, memory bytes, GPU hundredths; -1 becomes infinity."""
    cpu, memory, gpu = (inf if amount == -1 else amount for amount in amounts)
    return (cpu, memory * MB, gpu * 100)


@dataclass
class Oracle:
    """The order of service, turn by turn."""

    scene: Scene
    #: queue -> fair share in ledger units
    shares: dict[str, Numbers]
    #: job -> how many of its pods run by now
    running: dict[str, int] = field(default_factory=dict)
    #: jobs that failed or have nothing left
    done: set[str] = field(default_factory=set)
    #: pods in the order they were bound
    bound: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plots = {plot.name: plot for plot in self.scene.plots}
        self.jobs = {job.name: job for job in self.scene.jobs}
        self.running = {job.name: job.running for job in self.scene.jobs}
        for job in self.scene.jobs:
            inner = any(plot.parent == job.queue for plot in self.scene.plots)
            if inner or not job.pending or job.running + job.pending < job.minimum:
                self.done.add(job.name)

    def run(self) -> list[str]:
        while (job := self.best_below("")) is not None:
            batch = self.next_of(job)
            if self.allowed(job, batch) and self.fits(job, batch):
                first = self.running[job.name]
                self.bound.extend(f"{job.name}-{first + index}" for index in range(batch))
                self.running[job.name] += batch
                if self.running[job.name] == job.running + job.pending:
                    self.done.add(job.name)
            else:
                self.done.add(job.name)
        return self.bound

    def next_of(self, job: Job) -> int:
        """How many pods are next."""
        return max(job.minimum - self.running[job.name], 1)

    def asked(self, job: Job) -> Numbers:
        cpu, memory, gpu = ledger_units(job.pod)
        count = self.next_of(job)
        return (cpu * count, memory * count, gpu * count)

    def above(self, queue: str) -> list[str]:
        chain = [queue]
        while self.plots[chain[-1]].parent:
            chain.append(self.plots[chain[-1]].parent)
        return chain

    def allocated(self, queue: str, *, committed: bool = False) -> Numbers:
        total = [0.0, 0.0, 0.0]
        for job in self.scene.jobs:
            if queue in self.above(job.queue) and not (committed and job.preemptible):
                for resource, amount in enumerate(ledger_units(job.pod)):
                    total[resource] += amount * self.running[job.name]
        return (total[0], total[1], total[2])

    def allowed(self, job: Job, batch: int) -> bool:
        """queues:Q-200"""
        asked = self.asked(job)
        for queue in self.above(job.queue):
            has, limit = self.allocated(queue), ledger_units(self.plots[queue].limit)
            if any(a and h + a > bound for a, h, bound in zip(asked, has, limit, strict=True)):
                return False
            has, quota = self.allocated(queue, committed=True), ledger_units(self.plots[queue].quota)
            if not job.preemptible and any(a and h + a > q for a, h, q in zip(asked, has, quota, strict=True)):
                return False
        return True

    def fits(self, job: Job, batch: int) -> bool:
        used = [0.0, 0.0, 0.0]
        for other in self.scene.jobs:
            for resource, amount in enumerate(ledger_units(other.pod)):
                used[resource] += amount * self.running[other.name]
        return all(not a or u + a <= t for a, u, t in zip(self.asked(job), used, TOTAL, strict=True))

    def best_below(self, parent: str) -> Job | None:
        """The job whose turn it is in a subtree: that of the leader of the siblings below `parent`."""
        leader: Plot | None = None
        best: Job | None = None
        siblings = [plot for plot in self.scene.plots if plot.parent == parent]
        for plot in sorted(siblings, key=lambda plot: (-plot.age, plot.name)):
            job = self.candidate(plot.name)
            if job is None:
                continue
            if leader is None or best is None or self.goes_before(plot, job, leader, best):
                leader, best = plot, job
        return best

    def candidate(self, queue: str) -> Job | None:
        if any(plot.parent == queue for plot in self.scene.plots):
            return self.best_below(queue)
        waiting = [job for job in self.scene.jobs if job.queue == queue and job.name not in self.done]
        return min(waiting, key=self.job_key, default=None)

    def job_key(self, job: Job) -> tuple[int, int, int, str]:
        """cycle:8.3"""
        has = self.running[job.name]
        need = 0 if has < job.minimum else 1 if has == job.minimum else 2
        return (-job.priority, need, -job.age, job.name)

    def goes_before(self, left: Plot, left_job: Job, right: Plot, right_job: Job) -> bool:
        """Whether the younger `left` goes before the older `right`: the rules of queues:10.1, one by one."""
        for rule in (self.over, self.not_starved, self.rank, self.violates, self.dominant_with, self.dominant):
            one, other = rule(left, left_job), rule(right, right_job)
            if one != other:
                return one < other
        mine, theirs = self.allocatable(left), self.allocatable(right)
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and any(
            a < b for a, b in zip(mine, theirs, strict=True)
        )

    def over(self, plot: Plot, job: Job) -> float:
        return all(s < h for s, h in zip(self.shares[plot.name], self.allocated(plot.name), strict=True))

    def not_starved(self, plot: Plot, job: Job) -> float:
        has, asked = self.allocated(plot.name), self.asked(job)
        return not all(h + a <= q for h, a, q in zip(has, asked, ledger_units(plot.quota), strict=True))

    def rank(self, plot: Plot, job: Job) -> float:
        return -plot.priority

    def violates(self, plot: Plot, job: Job) -> float:
        has, asked = self.allocated(plot.name), self.asked(job)
        return any(may == 0 and h + a > 0 for may, h, a in zip(self.allocatable(plot), has, asked, strict=True))

    def dominant_with(self, plot: Plot, job: Job) -> float:
        has, asked = self.allocated(plot.name), self.asked(job)
        return self.share(plot, (has[0] + asked[0], has[1] + asked[1], has[2] + asked[2]))

    def dominant(self, plot: Plot, job: Job) -> float:
        return self.share(plot, self.allocated(plot.name))

    def share(self, plot: Plot, amounts: Numbers) -> float:
        found = 0.0
        for resource, may in enumerate(self.allocatable(plot)):
            bound = TOTAL[resource] if may == inf else may
            units = amounts[resource] / 100 if resource == 2 else amounts[resource]
            found = max(found, amounts[resource] / bound if bound else units * 1000)
        return found

    def allocatable(self, plot: Plot) -> Numbers:
        rows = zip(ledger_units(plot.quota), ledger_units(plot.limit), self.shares[plot.name], strict=True)
        found = [limit if quota == inf else min(max(quota, share), limit) for quota, limit, share in rows]
        return (found[0], found[1], found[2])


ages = st.integers(1, 3)


def numbers(*choices: tuple[float, ...]) -> st.SearchStrategy[Numbers]:
    return st.tuples(*map(st.sampled_from, choices))


quotas = numbers((-1, 0, 2000, 4000), (-1, 0, 2000, 4000), (-1, 0, 2, 4))
weights = numbers((0, 1), (0, 1), (0, 1, 2))
limits = numbers((-1, 4000), (-1, 4000), (-1, 4))
pods = st.one_of(st.just((0.0, 0.0, 1.0)), numbers((0, 500, 1000), (0, 500, 1000), (0, 1, 2)))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A forest of up to eight queues with up to ten jobs.

    Every scene has a few quotas, weights and sizes of pods of its own, so that ties are common.
    """
    names = draw(st.permutations([f"q{number}" for number in range(draw(st.integers(2, 8)))]))
    some_quotas = st.sampled_from(draw(st.lists(quotas, min_size=1, max_size=3)))
    some_weights = st.sampled_from(draw(st.lists(weights, min_size=1, max_size=2)))
    some_limits = st.sampled_from([(-1.0, -1.0, -1.0), (-1.0, -1.0, -1.0), draw(limits)])
    some_priorities = st.sampled_from(draw(st.sampled_from([[100], [100, 100, 200]])))
    some_pods = st.sampled_from(draw(st.lists(pods, min_size=1, max_size=2)))
    plots = [
        Plot(
            name=name,
            parent=draw(st.sampled_from(["", *names[:3][:number]])),
            age=draw(ages),
            priority=draw(some_priorities),
            quota=draw(some_quotas),
            limit=draw(some_limits),
            weight=draw(some_weights),
        )
        for number, name in enumerate(names)
    ]
    inner = {plot.parent for plot in plots}
    # Some jobs name an inner queue, where they take no part.
    homes = st.sampled_from([name for name in names if name not in inner] * 5 + list(names))
    room = [NODE_CPU * 1000.0, NODE_MB * 1.0, NODE_GPUS * 1.0]
    jobs: list[Job] = []
    for number in range(draw(st.integers(2, 10))):
        pod = draw(some_pods)
        running = draw(st.integers(0, 2))
        if any(amount * running > left for amount, left in zip(pod, room, strict=True)):
            running = 0
        room = [left - amount * running for amount, left in zip(pod, room, strict=True)]
        minimum = draw(st.integers(0, 3))
        jobs.append(
            Job(
                name=f"j{number}",
                queue=draw(homes),
                age=draw(ages),
                priority=draw(st.sampled_from([50, 50, 60])),
                preemptible=draw(st.sampled_from([True, True, True, False])),
                minimum=minimum,
                running=running,
                pending=max(0, minimum - running + draw(st.integers(-1, 2))),
                pod=pod,
            )
        )
    return Scene(plots, jobs)


def shares_of(result: Result) -> dict[str, Numbers]:
    ledger = result.cycle.state.ledger
    found = {}
    for name, row in ledger.tree.rows.items():
        cpu, memory, gpu = ledger.fair_share[row]
        found[name] = (cpu, memory, gpu)
    return found


@settings(max_examples=80, deadline=None)
@given(scenes())
def test_queues_and_jobs_are_served_as_by_an_oracle_that_recomputes_everything(scene: Scene) -> None:
    """cycle:8.1 to 8.3; queues:10.1, 10.2."""
    result = scene.built().schedule()
    assert [bind.pod for bind in result.plan.binds] == Oracle(scene, shares_of(result)).run()


@settings(max_examples=35, deadline=None)
@given(scenes(), st.integers(0, 1 << 32))
def test_the_order_of_input_objects_does_not_matter(scene: Scene, seed: int) -> None:
    """cycle:ORD-2, ORD-5: every order ends in a name, so nothing is left to chance."""
    assert scene.built(seed).schedule().plan.encoded() == scene.built().schedule().plan.encoded()


# Trees of subgroups


def all_leaves(parts: tuple[SubgroupSpec, ...]) -> list[SubgroupSpec]:
    return [found for part in parts for found in (all_leaves(part.parts) if part.parts else [part])]


def needed(part: SubgroupSpec) -> int:
    """minMembersToSatisfy of a branch, the minimum of a leaf."""
    if part.minimum is None:
        return len(part.parts)
    return part.minimum


def count(part: SubgroupSpec) -> int:
    return sum(map(satisfied, part.parts)) if part.parts else part.running


def satisfied(part: SubgroupSpec) -> bool:
    return count(part) >= needed(part)


def ready(part: SubgroupSpec) -> bool:
    enough = sum(map(ready, part.parts)) if part.parts else part.running + part.pending
    return enough >= needed(part)


def place_among_siblings(part: SubgroupSpec) -> tuple[int, float, str]:
    """cycle:8.4"""
    if not satisfied(part):
        return (0, 0, part.name)
    if needed(part):
        return (1, count(part) / needed(part), part.name)
    return (2, count(part), part.name)


def chosen(part: SubgroupSpec) -> dict[str, int]:
    """Leaf -> how many of its pods are next; a child that is not ready is passed over."""
    if not part.parts:
        wanted = max(needed(part) - part.running, 1)
        number = min(wanted, part.pending)
        return {part.name: number} if number else {}
    children = sorted(filter(ready, part.parts), key=place_among_siblings)
    if satisfied(part):
        return next((found for child in children if (found := chosen(child))), {})
    together: dict[str, int] = {}
    for child in children[: needed(part)]:
        if not satisfied(child):
            together.update(chosen(child))
    return together


@st.composite
def trees(draw: st.DrawFn) -> SubgroupSpec:
    """A root with up to three levels below it and at most a dozen leaves."""
    names = iter(draw(st.permutations([f"s{number:02}" for number in range(40)])))

    def grown(depth: int) -> SubgroupSpec:
        if depth == 0 or draw(st.integers(0, 2)) == 0:
            running, pending, gated = (draw(st.integers(0, most)) for most in (3, 3, 1))
            return leaf(next(names), draw(st.integers(0, 3)), running=running, pending=pending, gated=gated)
        return branched(next(names), depth)

    def branched(name: str, depth: int) -> SubgroupSpec:
        parts = [grown(depth - 1) for _ in range(draw(st.integers(1, 3)))]
        needs = draw(st.sampled_from([None, None, *range(len(parts) + 1)]))
        return branch(name, *parts, needs=needs)

    return branched("", 3 if draw(st.booleans()) else 2)


def planted(root: SubgroupSpec, gpus: int = 500) -> Cluster:
    made = cluster(nodes=1, gpus=gpus, cpu=1000, pods=1000).queue("q")
    return made.tree("job", *root.parts, needs=root.minimum, gpu=1)


def next_pods(built: Cluster) -> dict[str, int]:
    """Leaf -> how many of its pods the group would place next."""
    cycle = built.cycle()
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/job"])
    return {batch.leaf.name: len(batch.tasks) for batch in cycle.gangs.next_tasks(gang)}


@settings(max_examples=100, deadline=None)
@given(trees())
def test_the_choice_is_that_of_the_pseudo_code(root: SubgroupSpec) -> None:
    """cycle:6.2"""
    assume(ready(root))  # the others take no part (cycle:ORD-1)
    assert next_pods(planted(root)) == chosen(root)


@settings(max_examples=100, deadline=None)
@given(trees())
def test_no_choice_holds_part_of_a_missing_minimum(root: SubgroupSpec) -> None:
    """cycle:24, hard rules; cycle:PG-10."""
    leaves = {part.name: part for part in all_leaves(root.parts)}
    for name, chosen_of_leaf in next_pods(planted(root)).items():
        missing = needed(leaves[name]) - leaves[name].running
        assert chosen_of_leaf == max(missing, 1)


@settings(max_examples=80, deadline=None)
@given(trees(), st.integers(0, 12))
def test_after_a_cycle_every_leaf_and_the_group_are_whole_or_untouched(root: SubgroupSpec, free: int) -> None:
    """cycle:24, hard rules: whatever fits, no pod starts below the minimum of its leaf or of its group."""
    running = sum(part.running for part in all_leaves(root.parts))
    result = planted(root, gpus=running + free).schedule()
    started = Counter(pod.split("-")[1] for pod in result.bound_pods("job"))
    assert sum(started.values()) <= free

    def after(part: SubgroupSpec) -> SubgroupSpec:
        return SubgroupSpec(
            part.name, part.minimum, tuple(map(after, part.parts)), part.running + started[part.name], part.pending
        )

    for part in all_leaves(after(root).parts):
        assert satisfied(part) or not started[part.name]
    assert satisfied(after(root)) or not started
