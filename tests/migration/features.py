"""What upstream's pages describe, next to what PyKAI does: one row each, with the effect that its objects must have.

`docs/migrate.md` has the same rows.  The objects are in `<name>.yaml` beside this file; `<name>-then.yaml` comes once
the pods of the first file run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.installation import Config, SchedulingShard
from pykai.api.sharing import gpu_groups
from pykai.core.plugins.proportion import Proportion
from pykai.operator.desired.facts import ClusterFacts
from pykai.operator.desired.state import desired_state
from pykai.scheduler.config.configuration import Configuration, load_configuration
from tests.operator.installations import IMAGES

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

    def group_reasons(self, pod: str) -> list[str]:
        """Why the PodGroup of a pod waits."""
        conditions = self.group_of(pod).get("status", {}).get("schedulingConditions", ())
        return [each["reason"] for condition in conditions for each in condition.get("reasons", ())]

    def label_values(self, prefix: str, label: str) -> list[str]:
        """The values of a label of their nodes."""
        return sorted(
            self.nodes.get(each["spec"].get("nodeName", ""), {}).get(label, "") for each in self.starting(prefix)
        )

    def wanted(self) -> dict[tuple[str, str], Document]:
        """(kind, name) -> object that the operator wants because of the Config and the shards."""
        config = decode_as(Config, self.others.get("Config/kai-config", {}))
        shards = [
            decode_as(SchedulingShard, each) for key, each in self.others.items() if key.startswith("SchedulingShard/")
        ]
        states = desired_state(config, shards, ClusterFacts(has_prometheus=True), IMAGES)
        operands = [operand for state in states for operand in state.operands.values()]
        return {(each["kind"], each["metadata"]["name"]): each for operand in operands for each in operand}

    def wanted_container(self, deployment: str) -> Document:
        """The container of a Deployment that the operator wants."""
        found: Document = self.wanted()["Deployment", deployment]["spec"]["template"]["spec"]["containers"][0]
        return found

    def wanted_configuration(self, shard: str) -> Configuration:
        """What the scheduler of a shard reads in its ConfigMap."""
        return load_configuration(self.wanted()["ConfigMap", f"kai-scheduler-{shard}"]["data"]["config.yaml"])


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
    racks = set(seen.label_values("one-rack-", RACK))
    return seen.running("one-rack-") == 2 and len(racks) == 1 and racks != {""}


def two_racks(seen: Seen) -> bool:
    racks = seen.label_values("segments-", RACK)
    return seen.running("segments-") == 4 and [racks.count(each) for each in sorted(set(racks))] == [2, 2]


def is_installed(seen: Seen) -> bool:
    """What the operator wants for the Config and its shard is not what it wants by default."""
    if not {"Config/kai-config", "SchedulingShard/default"} <= seen.others.keys():
        return False
    scheduler, admission = seen.wanted_container("kai-scheduler-default"), seen.wanted_container("admission")
    found = seen.wanted_configuration("default")
    return (
        seen.wanted()["Deployment", "kai-scheduler-default"]["spec"]["replicas"] == 2
        and {"--leader-elect=true", "--v=4"} <= set(scheduler["args"])
        and "--gpu-sharing-enabled=true" in admission["args"]
        and ("Prometheus", "prometheus") in seen.wanted()
        and "elastic" not in [each.name for each in found.policy.plugins]
        and k_value(found) == 0.5
        and found.usage is not None
        and found.usage.connection == "http://usage-prometheus.kai-scheduler.svc.cluster.local:9090"
        and found.usage.window.half_life_ns == 12 * HOUR
    )


def counts_usage(seen: Seen) -> bool:
    """A shard is scheduled by usage over time: the file that our scheduler gets, as our scheduler reads it."""
    if "SchedulingShard/over-time" not in seen.others:
        return False
    found = seen.wanted_configuration("over-time")
    return (
        found.problems == ()
        and k_value(found) == 0.5
        and found.usage is not None
        and found.usage.client_type == "prometheus"
        and found.usage.connection == "http://prometheus-operated.kai-scheduler.svc.cluster.local:9090"
        and (found.usage.window.size_ns, found.usage.window.half_life_ns) == (168 * HOUR, HOUR // 6)
    )


def k_value(found: Configuration) -> float:
    (plugin,) = (each.plugin for each in found.policy.plugins if isinstance(each.plugin, Proportion))
    return plugin.k_value


HOUR: Final = 3600 * 10**9
RACK: Final = "example.com/rack"
ROW: Final = "example.com/row"
SAME: Final = "same"
BETTER: Final = "better"
NOT_THERE: Final = "not there"


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
    Feature("time-aware", "timeaware", BETTER, counts_usage),
    Feature(
        "preemption-delay",
        "developer/designs/preemption-delay",
        SAME,
        lambda s: (
            s.waits("delayed-0") == 1
            and "PreemptionDelayNotElapsed" in s.group_reasons("delayed-0")
            and s.running("busy-0") == 1
        ),
        lambda s: s.running("busy-0") == 1,
    ),
    Feature(
        "nv-fraction",
        "gpu-sharing/nv-fraction",
        NOT_THERE,
        lambda s: s.running("unaccounted-") == 2 and not gpu_groups(s.pods["unaccounted-0"]["metadata"]["labels"]),
    ),
    Feature(
        "background-pods",
        "background-pods",
        NOT_THERE,
        lambda s: s.waits("user-0") == 1 and s.running("background-0") == 1,
        lambda s: s.running("background-0") == 1,
    ),
    Feature(
        "topology-spread",
        "topology",
        BETTER,
        lambda s: s.running("spread-") == 2 and len(set(s.label_values("spread-", RACK))) == 2,
    ),
)
#: workloads of other projects: kind -> how many pods its group needs at least
WORKLOADS: Final[Mapping[str, int]] = {"pytorchjob": 4, "jaxjob": 2, "mpijob": 4, "raycluster": 3, "leaderworkerset": 3}
