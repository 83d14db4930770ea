"""The plugins, under the names of KAI's configuration files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykai.api import names
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.hooks import Hooks, Plugin
from pykai.core.model.problems import ProblemReporter
from pykai.core.plugins.arguments import read_arguments
from pykai.core.plugins.dynamicresources import DynamicResourcesPlugin, hooks_without_claims
from pykai.core.plugins.kubernetes import NodeAffinityPlugin, TaintToleration, TopologySpread
from pykai.core.plugins.minruntime import MinRuntime
from pykai.core.plugins.numa import Numa
from pykai.core.plugins.orders import ORDER_PLUGINS
from pykai.core.plugins.predicates import Predicates
from pykai.core.plugins.proportion import Proportion
from pykai.core.plugins.scores import (
    GpuPack,
    GpuSharingOrder,
    GpuSpread,
    NodeAvailability,
    NodePlacement,
    NominatedNode,
    PodAffinityPlugin,
    ResourceType,
)
from pykai.core.plugins.topology import TopologyPlugin, report_unenforced_constraints
from pykai.core.plugins.volumes import VolumeLimits

PLUGIN_CLASSES: Mapping[str, type] = {
    "predicates": Predicates,
    "dynamicresources": DynamicResourcesPlugin,
    "proportion": Proportion,
    "nodeavailability": NodeAvailability,
    "gpusharingorder": GpuSharingOrder,
    "gpupack": GpuPack,
    "gpuspread": GpuSpread,
    "resourcetype": ResourceType,
    "nominatednode": NominatedNode,
    "nodeplacement": NodePlacement,
    "podaffinity": PodAffinityPlugin,
    "minruntime": MinRuntime,
    "topology": TopologyPlugin,
    "numa": Numa,
    "topologyspread": TopologySpread,
    "nodeaffinity": NodeAffinityPlugin,
    "tainttoleration": TaintToleration,
    "volumelimits": VolumeLimits,
}

#: What holds in a cycle without a plugin, by its name.
SWITCHED_OFF: Mapping[str, Callable[[Snapshot, ProblemReporter], Hooks]] = {
    "dynamicresources": hooks_without_claims,
    "topology": report_unenforced_constraints,
}

#: Names of upstream's plugins that decide nothing in this version; a configuration may name them.
ACCEPTED_WITHOUT_EFFECT = (
    "reflectjoborder",
    "snapshot",
)

#: The built-in configuration (cycle:CFG-2): names in order, with their arguments.
DEFAULT_PLUGINS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("predicates", {}),
    ("proportion", {}),
    ("priority", {}),
    ("elastic", {}),
    ("kubeflow", {}),
    ("ray", {}),
    ("nodeavailability", {}),
    ("gpusharingorder", {}),
    ("gpupack", {}),
    ("resourcetype", {}),
    ("subgrouporder", {}),
    ("taskorder", {}),
    ("nominatednode", {}),
    ("dynamicresources", {}),
    ("nodeplacement", {"cpu": "binpack", "gpu": "binpack"}),
    ("minruntime", {}),
    ("topology", {}),
    ("snapshot", {}),
    ("sg-nodelocalgreedy", {}),
    ("sg-multinodegang", {}),
)

#: The built-in configurations by name, see docs/profiles.md: as KAI Scheduler decides, and with what only the default
#: scheduler of Kubernetes honours (cycle:FLT-4, Do better).
DEFAULT_PROFILE = "default"
PROFILES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    DEFAULT_PROFILE: DEFAULT_PLUGINS,
    "kubernetes": (
        *DEFAULT_PLUGINS,
        ("topologyspread", {}),
        ("nodeaffinity", {}),
        ("tainttoleration", {}),
        ("volumelimits", {}),
    ),
}

DEFAULT_ACTIONS = names.DEFAULT_ACTIONS


def plugin_names() -> list[str]:
    """Names a configuration may use without installing anything."""
    return sorted((*ORDER_PLUGINS, *PLUGIN_CLASSES, *ACCEPTED_WITHOUT_EFFECT))


def built_in_plugin(name: str, arguments: Mapping[str, str], path: str, report: ProblemReporter) -> Plugin | None:
    """A built-in plugin with its arguments, None when there is none of that name."""
    subject = f"plugin {name}"
    order = ORDER_PLUGINS.get(name)
    if order is not None:
        read_arguments({}, arguments, subject, path, report)
        return order
    plugin_class = PLUGIN_CLASSES.get(name)
    if plugin_class is None:
        return None
    # Each class of the table has ARGUMENTS, and a constructor that takes them; `type` does not say so.
    plugin: Plugin = plugin_class(**read_arguments(plugin_class.ARGUMENTS, arguments, subject, path, report))  # type: ignore[attr-defined]
    return plugin
