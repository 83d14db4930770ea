"""With or without a memory across cycles the same is decided, to the last byte, whatever changes in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pykai.api.decode import decode_object
from pykai.api.duration import SECOND
from pykai.core.cycle import schedule
from pykai.core.decisions import Plan
from pykai.core.memory import Memory
from pykai.core.status import Status
from pykai.core.tables import Tables
from tests.core.builders import NOW_NS, Cluster, Raw
from tests.property.clusters import clusters, tight_clusters

#: Seconds between cycles: those of the rules about time in the clusters, and some between.
PAUSES = (0.0, 1.0, 5.0, 15.0, 30.0, 40.0, 120.0, 4000.0)
CHANGES = ("nothing", "nothing", "nothing", "pod goes", "pod comes back", "pod leaves", "plan happens", "node", "group")


class Life:
    """A cluster to which things happen."""

    def __init__(self, built: Cluster) -> None:
        self.tables: Tables = built.tables()
        self.pods: dict[str, Raw] = {}
        self.others: dict[str, list[Raw]] = {"Node": [], "PodGroup": []}
        for raw in built.objects:
            meta = raw["metadata"]
            if raw["kind"] == "Pod":
                self.pods[f"{meta['namespace']}/{meta['name']}"] = raw
            elif raw["kind"] in self.others:
                self.others[raw["kind"]].append(raw)

    def change(self, what: str, plan: Plan, draw: Any) -> None:
        """Let something happen."""
        if what == "plan happens":
            self._carry_out(plan)
        elif what in ("node", "group"):
            raw = draw(st.sampled_from(self.others["Node" if what == "node" else "PodGroup"]))
            self.tables.apply(decode_object(raw))
        elif what.startswith("pod") and self.pods:
            key = draw(st.sampled_from(sorted(self.pods)))
            namespace, _, name = key.partition("/")
            if what == "pod goes":
                self.tables.remove("Pod", namespace, name)
            elif what == "pod comes back":
                self.tables.apply(decode_object(self.pods[key]))
            else:
                self.tables.assume(key, draw(st.sampled_from([Status.RELEASING, None])))

    def _carry_out(self, plan: Plan) -> None:
        """What was bound runs, and what was evicted is gone."""
        for bind in plan.binds:
            raw = self.pods[f"{bind.namespace}/{bind.pod}"]
            meta = raw["metadata"]
            labels = {f"runai-gpu-group/{device}": device for device in bind.gpu_groups}
            if len(bind.gpu_groups) == 1:
                labels = {"runai-gpu-group": bind.gpu_groups[0]}
            running = {
                **raw,
                "metadata": {**meta, "labels": {**meta["labels"], **labels}},
                "spec": {**raw["spec"], "nodeName": bind.node},
                "status": {"phase": "Running"},
            }
            self.tables.apply(decode_object(running))
        for item in plan.evictions:
            self.tables.remove("Pod", item.namespace, item.pod)


@settings(max_examples=150, deadline=None)
@given(st.one_of(tight_clusters(), clusters()), st.data())
def test_a_memory_changes_no_decision(built: Cluster, data: st.DataObject) -> None:
    life, policy, memory = Life(built), built.policy(), Memory()
    now_ns, recalled = NOW_NS, 0
    for _ in range(data.draw(st.integers(2, 5))):
        recalled += memory.recall(life.tables.snapshot(now_ns), policy) is not None
        plan = schedule(life.tables.snapshot(now_ns), policy, memory)
        assert plan.encoded() == schedule(life.tables.snapshot(now_ns), policy).encoded()
        life.change(data.draw(st.sampled_from(CHANGES)), plan, data.draw)
        now_ns += int(data.draw(st.sampled_from(PAUSES)) * SECOND)
    note(f"{recalled} plans came from memory")
