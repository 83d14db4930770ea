"""The table of services: one row each.

A new service is a row here and a package with its flags and its factory.  `kai run` and its help, accounts and roles of
`kai manifests`, and the tests of docs/services.md read this table.
"""

from __future__ import annotations

from pykai.services import rights
from pykai.services.definition import ServiceDefinition, ServicePort
from pykai.services.rights import RoleRule
from pykai.webhooks.table import PATHS as WEBHOOK_PATHS

_METRICS = ServicePort("metrics", "metrics-bind-address")
_HEALTH = ServicePort("health", "health-probe-bind-address")
_PLUGIN_PATHS = ("/get-snapshot", "/get-job-order", "/get-shadow-report")

_ROWS = (
    ServiceDefinition(
        "scheduler",
        "pykai.scheduler.flags:FLAGS",
        "pykai.scheduler.commandline:from_flags",
        page="scheduler.md",
        ports=(
            ServicePort("metrics", "listen-address", own=True),
            ServicePort("plugins", "plugin-server-port", _PLUGIN_PATHS, own=True),
        ),
        account="scheduler",
        rights=rights.SCHEDULER,
        optional_roles={"suspend": rights.suspend_rules},
        in_all=True,
    ),
    ServiceDefinition(
        "binder",
        "pykai.binder.options:FLAGS",
        "pykai.binder.service:from_flags",
        page="binder.md",
        ports=(_METRICS, _HEALTH),
        account="binder",
        rights=rights.BINDER,
        reader_location="pykai.binder.options:read_options",
        future_rules=rights.BINDER_FUTURE,
        in_all=True,
    ),
    ServiceDefinition(
        "podgrouper",
        "pykai.podgrouper.options:FLAGS",
        "pykai.podgrouper.service:from_flags",
        page="podgrouper.md",
        ports=(_METRICS, _HEALTH),
        account="pod-grouper",
        rights=rights.POD_GROUPER,
        future_rules=rights.POD_GROUPER_FUTURE,
        lease="54dff599.kai.scheduler",
        in_all=True,
    ),
    ServiceDefinition(
        "podgroups",
        "pykai.podgroups.options:FLAGS",
        "pykai.podgroups.service:from_flags",
        page="statuses.md",
        ports=(_METRICS, _HEALTH),
        account="podgroup-controller",
        rights=rights.POD_GROUP_CONTROLLER,
        lease="o1x22tjj.kai.scheduler",
        in_all=True,
    ),
    ServiceDefinition(
        "queues",
        "pykai.queues.options:FLAGS",
        "pykai.queues.service:from_flags",
        page="statuses.md",
        ports=(ServicePort("metrics", "metrics-listen-address"), _HEALTH),
        account="queue-controller",
        rights=rights.QUEUE_CONTROLLER,
        lease="ov3xj497.kai.scheduler",
        in_all=True,
    ),
    ServiceDefinition(
        "admission",
        "pykai.webhooks.options:FLAGS",
        "pykai.webhooks.options:from_flags",
        page="admission.md",
        ports=(_METRICS, _HEALTH, ServicePort("webhooks", "webhook-addr", WEBHOOK_PATHS, own=True)),
        account="admission",
        rights=rights.ADMISSION,
    ),
    ServiceDefinition(
        "nodescale",
        "pykai.nodescale.options:FLAGS",
        "pykai.nodescale.service:from_flags",
        page="nodescale.md",
        ports=(_METRICS, _HEALTH),
        account="node-scale-adjuster",
        rights=rights.NODE_SCALE_ADJUSTER,
        lease="7n7h49uc.kai.scheduler",
    ),
    ServiceDefinition(
        "operator",
        "pykai.operator.options:FLAGS",
        "pykai.operator.service:from_flags",
        page="operator.md",
        ports=(_METRICS, _HEALTH),
        account="kai-operator",
        rights=rights.OPERATOR,
        lease="41fce092.run.ai",
    ),
    ServiceDefinition(
        "numa-exporter",
        "pykai.numaexporter.options:FLAGS",
        "pykai.numaexporter.service:from_flags",
        page="numa.md",
        ports=(_METRICS,),
        account="numa-placement-exporter",
        rights=rights.NUMA_PLACEMENT_EXPORTER,
        elects_leader=False,
    ),
    ServiceDefinition(
        "machines",
        "pykai.lab.machines.options:FLAGS",
        "pykai.lab.samplenodes:from_flags",
        page="lab.md",
        elects_leader=False,
    ),
    ServiceDefinition(
        "operators",
        "pykai.lab.operators.service:FLAGS",
        "pykai.lab.operators.service:from_flags",
        page="workloads.md",
        elects_leader=False,
    ),
)

#: name -> row, in the order of help and manifests
SERVICES: dict[str, ServiceDefinition] = {row.name: row for row in _ROWS}


def services_in_all() -> tuple[str, ...]:
    """What `kai run all` runs: everything a real cluster needs beside its own parts."""
    return tuple(name for name, service in SERVICES.items() if service.in_all)


def installed_services() -> tuple[ServiceDefinition, ...]:
    """The services that have an account in a cluster."""
    return tuple(service for service in SERVICES.values() if service.account)


def account_rules() -> dict[str, tuple[RoleRule, ...]]:
    """Account -> its rules."""
    return {service.account: service.rules for service in installed_services()}
