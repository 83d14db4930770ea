"""What tests of bad input share: a gang that must not be affected, and a policy with every plugin.

    result = still_fine(beside_haven().zones("node-0", {"cpu": "x"}).gang("odd", qos="Guaranteed"))

Nodes node-0 and node-1 are for the bad objects; the gang `fine` has a node of its own, so only what stops or slows the
whole cycle, or reaches over to other nodes, can keep it from being bound.
"""

from __future__ import annotations

from dataclasses import replace

from pykai.core.policy import Policy
from tests.core.builders import Cluster, Raw, Result, cluster

_ACTIONS = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
#: Plugins that no profile has.
_MORE = ("numa", "podaffinity")


def everything(built: Cluster) -> Policy:
    """All actions, and all plugins of the profile `kubernetes` and besides it."""
    built.with_actions(*_ACTIONS)
    more = built.configured({"tiers": [{"plugins": [{"name": name} for name in _MORE]}]}).policy()
    policy = built.configured({"profile": "kubernetes"}).policy()
    return replace(policy, plugins=(*policy.plugins, *more.plugins))


def with_haven(built: Cluster) -> Cluster:
    """Adds the healthy gang `fine` of two pods, with a queue, a namespace and a node of its own."""
    own = {"haven": "true"}
    built.queue("good").node("haven", gpus=2, labels=own, taints=[{"key": "haven", "effect": "NoSchedule"}])
    bears: Raw = {"tolerations": [{"key": "haven", "operator": "Exists"}], "nodeSelector": own}
    return built.gang("fine", 2, queue="good", gpu=1, spec=bears, namespace="haven")


def beside_haven(nodes: int = 2) -> Cluster:
    """Nodes for the bad objects, with a queue q, besides the healthy gang."""
    return with_haven(cluster(nodes=nodes, gpus=2, labels={"zone": "z"}).queue("q"))


def schedules_haven(built: Cluster) -> Result:
    """Run a cycle with everything switched on and check that the healthy gang was bound."""
    plugins = everything(built).plugins
    result = built.with_policy(plugins=plugins).schedule()
    assert result.nodes_used("fine", "haven") == {"haven": 2}
    return result


def problems_of(result: Result, subject: str) -> str:
    """What the plan says is wrong with an object, line by line."""
    return "\n".join(problem for problem in result.plan.problems if problem.startswith(f"{subject}:"))
