"""Topology spread constraints over columns against a slow reference that checks one pod and one node at a time.

The twin is Kubernetes' rule written down word by word, over the raw objects; it shares no code with the product.  Pods
come, go and come back by undo in between, so incremental counts are compared with recomputed ones.  Keys,
values and namespaces are few, so that nearly everything meets nearly everything.
"""

from __future__ import annotations

from math import inf, log
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.core.cycle.request import PlacementRequest
from pykai.core.hooks import ALL_NODES
from pykai.core.opencycle import Cycle
from pykai.core.plugins import DEFAULT_PLUGINS
from tests.core.builders import Cluster, Raw, cluster

KEYS = ("zone", "rack")
ALL = slice(None)
WALL = {"key": "wall", "value": "", "effect": "NoSchedule"}
HINT = {"key": "hint", "value": "", "effect": "PreferNoSchedule"}


def sometimes(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def without_nones(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if value is not None}


node_labels = st.fixed_dictionaries(
    {
        "zone": st.sampled_from(("x", "x", "y", "y", "z", None)),
        "rack": st.sampled_from(("1", "1", "2", "2", None)),
        "pool": st.sampled_from(("p", "p", None)),
    }
).map(without_nones)
pod_labels = st.fixed_dictionaries(
    {"app": st.sampled_from(("web", "web", "db", None)), "version": st.sampled_from(("1", "2", None))}
).map(without_nones)
selectors = st.sampled_from(
    (
        {"matchLabels": {"app": "web"}},
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "version", "operator": "NotIn", "values": ["2"]}]},
        {},
    )
)
constraints = st.lists(
    st.fixed_dictionaries(
        {
            "topologyKey": st.sampled_from(KEYS),
            "maxSkew": st.integers(1, 3),
            "whenUnsatisfiable": st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": sometimes(selectors),
            "minDomains": sometimes(st.integers(1, 4)),
            "nodeAffinityPolicy": sometimes(st.sampled_from(("Honor", "Ignore"))),
            "nodeTaintsPolicy": sometimes(st.sampled_from(("Honor", "Ignore"))),
            "matchLabelKeys": sometimes(st.just(["version"])),
        }
    ).map(without_nones),
    min_size=1,
    max_size=3,
)
nodes = st.lists(st.tuples(node_labels, st.sampled_from((False, False, True))), min_size=1, max_size=6)
pods = st.lists(
    st.fixed_dictionaries(
        {
            "labels": pod_labels,
            "namespace": st.sampled_from(("default", "default", "default", "other")),
            "node": st.integers(0, 5),
            "deleted": st.sampled_from((None, None, None, 5.0)),
        }
    ),
    max_size=10,
)


# The twin


class TwinNode:
    """A node as the twin sees it."""

    def __init__(self, labels: dict[str, str], walled: bool) -> None:
        self.labels = labels
        self.walled = walled
        #: labels and namespaces of the pods that count
        self.pods: list[tuple[dict[str, str], str]] = []


def twin_selects(selector: Raw | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for item in selector.get("matchExpressions", []):
        if item["operator"] == "Exists" and item["key"] not in labels:
            return False
        if item["operator"] == "NotIn" and labels.get(item["key"]) in item["values"]:
            return False
    return True


class TwinConstraint:
    """A constraint of a pod."""

    def __init__(self, raw: Raw, labels: dict[str, str], selects_pool: bool, tolerates: bool) -> None:
        self.key: str = raw["topologyKey"]
        self.skew: int = raw["maxSkew"]
        self.soft = raw["whenUnsatisfiable"] == "ScheduleAnyway"
        self.domains: int = raw.get("minDomains", 1)
        self._selector = raw.get("labelSelector")
        self._same = {key: labels[key] for key in raw.get("matchLabelKeys", []) if key in labels}
        self._labels = labels
        self._honours_affinity = raw.get("nodeAffinityPolicy", "Honor") == "Honor" and selects_pool
        self._honours_taints = raw.get("nodeTaintsPolicy", "Ignore") == "Honor" and not tolerates

    def selects(self, labels: dict[str, str]) -> bool:
        if self._selector is None:
            return False
        return twin_selects(self._selector, labels) and all(labels.get(k) == v for k, v in self._same.items())

    @property
    def itself(self) -> int:
        return int(self.selects(self._labels))

    def lets_in(self, node: TwinNode) -> bool:
        if self._honours_affinity and node.labels.get("pool") != "p":
            return False
        return not (self._honours_taints and node.walled)

    def pods_on(self, node: TwinNode) -> int:
        if self._selector == {} and not self._same:
            return 0
        return sum(namespace == "default" and self.selects(labels) for labels, namespace in node.pods)

    def counts(self, every: list[TwinNode], keys: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in every:
            if all(key in node.labels for key in keys) and self.lets_in(node):
                value = node.labels[self.key]
                found[value] = found.get(value, 0) + self.pods_on(node)
        return found


def twin_codes(every: list[TwinNode], own: list[TwinConstraint]) -> list[int]:
    """0 fits, 1 too many, 2 a label is missing; by the first constraint that refuses."""
    hard = [constraint for constraint in own if not constraint.soft]
    keys = [constraint.key for constraint in hard]
    codes = []
    for node in every:
        code = 0
        for constraint in hard:
            if constraint.key not in node.labels:
                code = 2
                break
            counts = constraint.counts(every, keys)
            least = min(counts.values()) if counts and len(counts) >= constraint.domains else 0
            if counts.get(node.labels[constraint.key], 0) + constraint.itself - least > constraint.skew:
                code = 1
                break
        codes.append(code)
    return codes


def twin_points(every: list[TwinNode], own: list[TwinConstraint], usable: list[bool]) -> list[float]:
    """Points of each node that the pod could use; the others do not matter."""
    soft = [constraint for constraint in own if constraint.soft]
    keys = [constraint.key for constraint in soft]
    labelled = [all(key in node.labels for key in keys) for node in every]
    raw: list[float] = []
    for node, has in zip(every, labelled, strict=True):
        total = 0.0
        for constraint in soft if has else ():
            values = {n.labels[constraint.key] for n, *ok in zip(every, labelled, usable, strict=True) if all(ok)}
            count = constraint.counts(every, keys).get(node.labels[constraint.key], 0)
            total += count * log(len(values) + 2) + constraint.skew - 1
        raw.append(total)
    counted = [value for value, has, use in zip(raw, labelled, usable, strict=True) if has and use]
    least, most = min(counted, default=0.0), max(counted, default=0.0)
    return [
        0.0 if not has else 100.0 if most == 0 else 100.0 * (most + least - value) / most
        for value, has in zip(raw, labelled, strict=True)
    ]


# The comparison


def ask_for(cycle: Cycle, pod: str) -> PlacementRequest:
    task = cycle.context.snapshot.task_records[f"default/{pod}"]
    gang = cycle.gangs.gang(cycle.context.snapshot.group_entries["default/job"])
    (leaf,) = gang.leaves
    return PlacementRequest(task, gang, leaf, cycle.context.snapshot.vectors[task.shape])


def answers(cycle: Cycle, ask: PlacementRequest) -> tuple[list[int], list[float] | None]:
    """What the plugin says about all nodes, and the same for every node alone."""
    state = cycle.state
    checks = [check for check in cycle.context.rules.checks if check.name == "topology spread"]
    assert len(checks) == any(each.when_unsatisfiable == "DoNotSchedule" for each in ask.shape.spread)
    (score,) = [score for score in cycle.context.rules.scores if score.name == "topologyspread"]
    codes = [0] * len(cycle.context.snapshot.nodes)
    for check in checks:
        assert check.applies(ask)
        codes = check.evaluate(state, ask, ALL).tolist()
        alone = [int(check.evaluate(state, ask, np.array([row]))[0]) for row in range(len(codes))]
        assert alone == codes
    if not score.applies(ask):
        return codes, None
    assert score.context is not None
    context = score.context(state, ask, ALL_NODES)()
    return codes, (score.evaluate(state, ask, ALL, context) / 200.0).tolist()


@settings(max_examples=140)
@given(nodes, pods, st.lists(pod_labels, min_size=1, max_size=4), constraints, st.booleans(), st.booleans(), st.data())
def test_every_result_equals_that_of_the_reference_after_any_changes(
    drawn: list[tuple[dict[str, str], bool]],
    placed: list[Raw],
    waiting: list[dict[str, str]],
    wanted: list[Raw],
    selects_pool: bool,
    tolerates: bool,
    data: st.DataObject,
) -> None:
    """cycle:FLT-4; the ranking, which is repaired and not recomputed, refuses the same nodes."""
    made = cluster().queue("q").configured({"profile": "kubernetes"})
    twins = [TwinNode(labels, walled) for labels, walled in drawn]
    for index, twin in enumerate(twins):
        made.node(f"n{index}", labels=twin.labels, taints=[WALL] if twin.walled else [])
    for index, pod in enumerate(placed):
        node = pod["node"] % len(twins)
        made.pod(
            f"there-{index}",
            on=f"n{node}",
            labels=pod["labels"],
            namespace=pod["namespace"],
            deleted=pod["deleted"],
            scheduler="other",
        )
        if pod["deleted"] is None:
            twins[node].pods.append((pod["labels"], pod["namespace"]))
    spec: Raw = {"topologySpreadConstraints": wanted}
    if selects_pool:
        spec["nodeSelector"] = {"pool": "p"}
    if tolerates:
        spec["tolerations"] = [{"operator": "Exists"}]
    made.group("job", minMember=1)
    for index, labels in enumerate(waiting):
        made.pod(f"job-{index}", group="job", labels=labels, spec=spec)
    cycle = made.cycle()
    state = cycle.state
    usable = [(tolerates or not twin.walled) and (not selects_pool or twin.labels.get("pool") == "p") for twin in twins]
    marks: list[tuple[int, list[list[tuple[dict[str, str], str]]], dict[int, int]]] = []
    where: dict[int, int] = {}

    def compare(number: int) -> None:
        own = [TwinConstraint(raw, waiting[number], selects_pool, tolerates) for raw in wanted]
        ask = ask_for(cycle, f"job-{number}")
        codes, points = answers(cycle, ask)
        assert codes == twin_codes(twins, own)
        if points is not None:
            expected = twin_points(twins, own, usable)
            close = [abs(a - b) < 1e-4 for a, b, use in zip(points, expected, usable, strict=True) if use]
            assert all(close), (points, expected)
        ranking = cycle.rankings.ranking_for(state, ask, ALL_NODES).scores.tolist()
        fits = [code == 0 and use for code, use in zip(codes, usable, strict=True)]
        assert [score != -inf for score in ranking] == fits

    for _ in range(data.draw(st.integers(0, 8), label="steps")):
        free = [number for number in range(len(waiting)) if number not in where]
        step = data.draw(st.sampled_from(("ask", "place", "place", "drop", "undo")), label="step")
        if step == "ask" and free:
            compare(data.draw(st.sampled_from(free), label="who"))
        elif step == "place" and free:
            number = data.draw(st.sampled_from(free), label="who")
            row = data.draw(st.integers(0, len(twins) - 1), label="where")
            ask = ask_for(cycle, f"job-{number}")
            marks.append((state.mark(), [list(twin.pods) for twin in twins], dict(where)))
            state.place(ask.gang, ask.leaf, ask.task, row, (), pipelined=True)
            twins[row].pods.append((waiting[number], "default"))
            where[number] = row
        elif step == "drop" and where:
            number = data.draw(st.sampled_from(sorted(where)), label="who")
            ask = ask_for(cycle, f"job-{number}")
            marks.append((state.mark(), [list(twin.pods) for twin in twins], dict(where)))
            state.evict(ask.gang, ask.leaf, ask.task)
            twins[where[number]].pods.remove((waiting[number], "default"))
            del where[number]
        elif step == "undo" and marks:
            mark, before, where = marks.pop()
            state.rollback(mark)
            for twin, there in zip(twins, before, strict=True):
                twin.pods = there
    for number in range(len(waiting)):
        if number not in where:
            compare(number)


wishes = st.fixed_dictionaries(
    {
        "topologySpreadConstraints": sometimes(
            constraints.map(lambda drawn: [{**each, "whenUnsatisfiable": "ScheduleAnyway"} for each in drawn])
        ),
        "affinity": sometimes(
            st.builds(
                lambda weight, value: {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": weight,
                                "preference": {
                                    "matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]
                                },
                            }
                        ]
                    }
                },
                st.integers(1, 100),
                st.sampled_from(("x", "y", "z")),
            )
        ),
    }
).map(without_nones)
jobs = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from(("low", "high")),
        pod_labels,
        st.sampled_from((None, "n0", "n1")),
        wishes,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(nodes, jobs)
def test_in_the_default_configuration_preferences_change_nothing(
    drawn: list[tuple[dict[str, str], bool]], wishful: list[tuple[int, int, str, dict[str, str], str | None, Raw]]
) -> None:
    """cycle:FLT-4: with and without soft constraints, preferred terms and hints, all actions decide the same."""

    def build(*, granted: bool) -> Cluster:
        made = cluster().queue("q").priority_class("low", 10).priority_class("high", 90)
        for index, (labels, hinted) in enumerate(drawn):
            made.node(f"n{index}", gpus=2, labels=labels, taints=[HINT] if hinted and granted else [])
        for index, (size, gpus, priority, labels, on, wish) in enumerate(wishful):
            there = on if on is not None and int(on[1:]) < len(drawn) else ""
            how: Raw = {"gpu": gpus, "labels": labels, "spec": wish if granted else {}, "on": there}
            made.gang(f"job-{index}", pods=1 if there else size, priority=priority, **how)
        return made.with_actions("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")

    plain, granted = build(granted=False).schedule().plan, build(granted=True).schedule().plan
    assert granted.binds == plain.binds
    assert granted.nominations == plain.nominations
    assert granted.evictions == plain.evictions


@settings(max_examples=40)
@given(nodes, jobs, constraints)
def test_pods_without_constraints_get_the_same_bytes(
    drawn: list[tuple[dict[str, str], bool]],
    plain: list[tuple[int, int, str, dict[str, str], str | None, Raw]],
    wanted: list[Raw],
) -> None:
    """ADR 26: whether hard constraints are honoured or not, and though a pod of another scheduler has some."""

    def plan(honoured: str) -> bytes:
        made = cluster().queue("q").priority_class("low", 10).priority_class("high", 90)
        plugins = [{"name": name, "arguments": dict(given)} for name, given in DEFAULT_PLUGINS]
        plugins[0]["arguments"] = {"topologySpread": honoured}
        made.configured({"tiers": [{"plugins": plugins}]})
        for index, (labels, walled) in enumerate(drawn):
            made.node(f"n{index}", gpus=2, labels=labels, taints=[WALL] if walled else [])
        spec = {"topologySpreadConstraints": [{**each, "whenUnsatisfiable": "DoNotSchedule"} for each in wanted]}
        made.pod("other", on="n0", labels={"app": "web"}, scheduler="other", spec=spec)
        for index, (size, gpus, priority, labels, on, _) in enumerate(plain):
            there = on if on is not None and int(on[1:]) < len(drawn) else ""
            how: Raw = {"gpu": gpus, "labels": labels, "on": there}
            made.gang(f"job-{index}", pods=1 if there else size, priority=priority, **how)
        actions = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
        return made.with_actions(*actions).schedule().plan.encoded()

    assert plan("true") == plan("false")
