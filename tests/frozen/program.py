"""What the frozen lists are read from: the only module here that says where PyKAI keeps something.

A module of PyKAI that moves changes a line here.  What is imported must stay the same thing: a list that is empty
because it was read from the wrong place would freeze nothing, so `topics.py` refuses empty lists.
"""

from __future__ import annotations

from pykai.api import names
from pykai.api.crds import custom_resource_definitions
from pykai.binder.options import DEFAULT_PLUGINS as BINDER_PLUGINS
from pykai.binder.options import FLAGS as BINDER_FLAGS
from pykai.cli import main as kai
from pykai.core.actions import ACTIONS
from pykai.core.eviction.scenarios import GENERATORS
from pykai.core.hooks import Hooks, NodeCheck, NodeScore
from pykai.core.plugins import ACCEPTED_WITHOUT_EFFECT, PROFILES
from pykai.core.plugins import PLUGIN_CLASSES as PLUGINS
from pykai.core.plugins.orders import ORDER_PLUGINS
from pykai.core.report.decisions import Plan
from pykai.dev.cases import Case
from pykai.dev.soak.memorygrowth import MemorySampler
from pykai.dev.soak.recorder import RecordingStore
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.flags import COMMON_FLAGS
from pykai.kube.resources import PODS
from pykai.kube.runtime import Runtime
from pykai.kube.transport import Request
from pykai.lab.apiserver.server import ApiServer
from pykai.lab.machines.options import FLAGS as MACHINES_FLAGS
from pykai.lab.machines.options import MachineOptions
from pykai.lab.story import Story
from pykai.observe.controllermetrics import ControllerMetrics
from pykai.operator.webhooks import Registration, webhook_configurations
from pykai.podgrouper.kinds import ENTRY_POINTS
from pykai.podgrouper.options import FLAGS as PODGROUPER_FLAGS
from pykai.podgrouper.options import PodGrouperOptions
from pykai.podgroups.options import FLAGS as PODGROUPS_FLAGS
from pykai.podgroups.options import PodGroupsOptions
from pykai.podgroups.status import POOL_NOT_SERVED
from pykai.queues.options import FLAGS as QUEUES_FLAGS
from pykai.queues.options import QueuesOptions
from pykai.scheduler.config.budgets import _KEYS as BUDGET_KEYS
from pykai.scheduler.config.configuration import _KEYS as CONFIGURATION_KEYS
from pykai.scheduler.config.configuration import _PLUGIN_SWITCHES as PLUGIN_SWITCHES
from pykai.scheduler.config.configuration import ENTRY_POINT_GROUP
from pykai.scheduler.config.usagedb import _KEYS as USAGE_KEYS
from pykai.scheduler.dispatch.bindplan import PendingBind, encode_plan
from pykai.scheduler.dispatch.failedbinds import _FailedBindsRecord
from pykai.scheduler.dispatch.records import BIND_PLAN as BIND_PLAN_RECORD
from pykai.scheduler.dispatch.records import FAILED_BINDS as FAILED_BINDS_RECORD
from pykai.scheduler.dispatch.records import HandoverRecords
from pykai.scheduler.flags import FLAGS as SCHEDULER_FLAGS
from pykai.scheduler.flags import read_flags
from pykai.scheduler.joborder import job_order
from pykai.scheduler.snapshotfile import OBJECT_LISTS, SNAPSHOT_ENTRY, read_snapshot, snapshot_zip
from pykai.services.table import SERVICES, services_in_all
from pykai.webhooks.options import FLAGS as ADMISSION_FLAGS

__all__ = [
    "ACTIONS",
    "ADMISSION_FLAGS",
    "ApiServer",
    "BINDER_FLAGS",
    "BINDER_PLUGINS",
    "BIND_PLAN_RECORD",
    "BUDGET_KEYS",
    "COMMON_FLAGS",
    "CONFIGURATION_KEYS",
    "Caches",
    "Case",
    "Client",
    "Clock",
    "ENTRY_POINTS",
    "ENTRY_POINT_GROUP",
    "FAILED_BINDS_RECORD",
    "_FailedBindsRecord",
    "GENERATORS",
    "Hooks",
    "MACHINES_FLAGS",
    "MachineOptions",
    "MemorySampler",
    "NodeCheck",
    "NodeScore",
    "ORDER_PLUGINS",
    "ACCEPTED_WITHOUT_EFFECT",
    "PLUGINS",
    "PLUGIN_SWITCHES",
    "PODGROUPER_FLAGS",
    "PODGROUPS_FLAGS",
    "PODS",
    "POOL_NOT_SERVED",
    "PROFILES",
    "Plan",
    "PendingBind",
    "PodGrouperOptions",
    "PodGroupsOptions",
    "QUEUES_FLAGS",
    "QueuesOptions",
    "RecordingStore",
    "HandoverRecords",
    "Request",
    "ControllerMetrics",
    "Runtime",
    "SCHEDULER_FLAGS",
    "SERVICES",
    "SNAPSHOT_ENTRY",
    "OBJECT_LISTS",
    "Story",
    "USAGE_KEYS",
    "custom_resource_definitions",
    "encode_plan",
    "job_order",
    "kai",
    "names",
    "read_flags",
    "services_in_all",
    "read_snapshot",
    "snapshot_zip",
    "Registration",
    "webhook_configurations",
]
