"""What upstream's pages describe, next to what PyKAI does: one row each, with the effect that its objects must have.

`docs/migrate.md` has the same rows.  The objects are in `<name>.yaml` beside this file; `<name>-then.yaml` comes once
the pods of the first file run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api import names
from pykai.api.sharing import gpu_groups

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster, as a test sees it."""

    pods: Mapping[str, Document]
    groups: Mapping[str, Document]
    #: node -> its labels
    nodes: Mapping[str, Mapping[str, str]]
    #: other objects: kind/name
    others: Mapping[str, Document]

    def starting(self, prefix: str) -> list[Document]:
        """The pods whose names begin so."""
        return [each for name, each in self.pods.items() if name.startswith(prefix)]

    def running(self, prefix: str) -> int:
        """How many of them run."""
        return sum(each["status"].get("phase") == "Running" and not is_leaving(each) for each in self.starting(prefix))

    def waits(self, prefix: str, text: str = "") -> int:
        """How many of them are unschedulable, with this text as the reason."""
        return sum(text in message for each in self.starting(prefix) if (message := unschedulable(each)))

    def group_of(self, pod: str) -> Document:
        """The PodGroup of a pod; empty while it has none."""
        found = self.pods.get(pod, {}).get("metadata", {}).get("annotations", {})
        return self.groups.get(found.get(names.POD_GROUP_ANNOTATION, ""), {})

    def label_values(self, prefix: str, label: str) -> list[str]:
        """The values of a label of their nodes."""
        return sorted(
            self.nodes.get(each["spec"].get("nodeName", ""), {}).get(label, "") for each in self.starting(prefix)
        )


def is_leaving(pod: Document) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def unschedulable(pod: Document) -> str:
    """Why a pod waits, empty if it does not."""
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"{each.get('reason', '')} {each.get('message', '')}"
    return ""


def shares_one_gpu(seen: Seen) -> bool:
    groups = {frozenset(gpu_groups(each["metadata"].get("labels", {}))) for each in seen.starting("half-")}
    return seen.running("half-") == 2 and len(groups) == 1 and groups != {frozenset()}


def one_rack(seen: Seen) -> bool:
    return seen.running("one-rack-") == 2 and len(set(seen.label_values("one-rack-", RACK))) == 1


def two_racks(seen: Seen) -> bool:
    racks = seen.label_values("segments-", RACK)
    return seen.running("segments-") == 4 and [racks.count(each) for each in sorted(set(racks))] == [2, 2]


def is_installed(seen: Seen) -> bool:
    config, shard = (
        seen.others.get(each, {}).get("spec", {}) for each in ("Config/kai-config", "SchedulingShard/default")
    )
    usage = shard.get("usageDBConfig", {}).get("usageParams", {})
    return (config.get("scheduler"), shard.get("plugins"), usage.get("halfLifePeriod")) == (
        {"replicas": 2},
        {"elastic": {"enabled": False}},
        "12h",
    )


RACK: Final = "example.com/rack"
ROW: Final = "example.com/row"
SAME: Final = "same"
BETTER: Final = "better"


@dataclass(frozen=True, slots=True)
class Feature:
    """One row."""

    #: the file, and the row of the document
    name: str
    #: upstream's page, below its docs
    page: str
    verdict: str
    holds: Callable[[Seen], bool]
    #: what must run before the second file is applied
    first: Callable[[Seen], bool] | None = None


FEATURES: Final = (
    Feature("quickstart", "quickstart", SAME, lambda s: s.running("gpu-pod") == 1),
    Feature("queues", "queues", SAME, lambda s: s.running("limited-") == 2 and s.waits("limited-", "limit") == 1),
    Feature("hierarchy", "fairness", SAME, lambda s: s.running("tree-") == 2 and s.waits("tree-", "limit") == 1),
    Feature("batch", "batch", SAME, lambda s: s.running("batch-") == 2 and s.waits("torn-") == 2),
    Feature(
        "elastic",
        "elastic",
        SAME,
        lambda s: s.running("elastic-") == 2 and s.waits("elastic-") == 1,
    ),
    Feature(
        "fairness",
        "fairness",
        SAME,
        lambda s: s.running("owner-0") == 1 and not s.running("taker-0"),
        lambda s: s.running("taker-0") == 1,
    ),
    Feature(
        "priority",
        "priority",
        SAME,
        lambda s: s.running("high-0") == 1 and not s.running("low-0"),
        lambda s: s.running("low-0") == 1,
    ),
    Feature(
        "non-preemptible",
        "priority",
        SAME,
        lambda s: s.running("fixed-") == 1 and s.waits("fixed-", "quota") == 1,
    ),
    Feature("gpu-sharing", "gpu-sharing", SAME, shares_one_gpu),
    Feature("gpu-memory", "gpu-sharing", SAME, lambda s: s.running("memory-0") == 1),
    Feature("mig", "gpu-sharing", SAME, lambda s: s.running("slice-0") == 1),
    Feature("dra", "dra", SAME, lambda s: s.running("claim-0") == 1),
    Feature("topology", "topology", SAME, one_rack),
    Feature("segments", "topology/multilevel", SAME, two_racks),
    Feature(
        "min-runtime",
        "plugins/minruntime",
        SAME,
        lambda s: s.waits("eager-0") == 1 and s.running("kept-0") == 1,
        lambda s: s.running("kept-0") == 1,
    ),
    Feature(
        "external-podgroup",
        "developer/designs/external-podgroups",
        SAME,
        lambda s: s.running("pair-") == 2 and s.group_of("pair-0").get("spec", {}).get("minMember") == 2,
    ),
    Feature("subgroups", "developer/designs/hierarchical-podgroup", SAME, lambda s: s.running("parts-") == 3),
    Feature(
        "shards",
        "operator/scheduling-shards",
        SAME,
        lambda s: (
            bool(s.group_of("pooled-0"))
            and s.group_of("pooled-0")["metadata"]["labels"].get(names.NODE_POOL_LABEL) == "elsewhere"
            and "nodeName" not in s.pods["pooled-0"]["spec"]
        ),
    ),
    Feature("installation", "operator", SAME, is_installed),
    Feature(
        "topology-spread",
        "topology",
        BETTER,
        lambda s: s.running("spread-") == 2 and len(set(s.label_values("spread-", RACK))) == 2,
    ),
)
#: workloads of other projects: kind -> how many pods its group needs at least
WORKLOADS: Final[Mapping[str, int]] = {"pytorchjob": 4, "jaxjob": 2, "mpijob": 4, "raycluster": 3, "leaderworkerset": 3}
