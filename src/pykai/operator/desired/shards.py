"""The objects of a SchedulingShard: configuration, scheduler, Service, endpoints of its leader (operations:4).

The ConfigMap holds the command line beside the configuration file, so that both change at once.

Statements: operations:O-14, O-40, OD-12, E-13, E-20, E-21.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from typing import Any, Final

from pykai.api.installation import SchedulingShard, ShardSpec
from pykai.api.quantity import QuantityError, nano_value
from pykai.api.unstructured import JsonObject
from pykai.operator.desired import arguments
from pykai.operator.desired.checking import check_command_line
from pykai.operator.desired.facts import ClusterFacts, LeaderPod
from pykai.operator.desired.objects import (
    COMPONENT_LABEL,
    METRICS_NAME,
    OPERATOR,
    autoscaler,
    container,
    deployment,
    disruption_budget,
    labels_of,
    make_object,
    network_policy,
    port,
    service,
)
from pykai.operator.desired.refusals import LeftOut, Refused
from pykai.operator.desired.settings import Settings
from pykai.operator.desired.shardconfiguration import as_text, shard_configuration

SCHEDULER_ACCOUNT: Final = "scheduler"
ARGUMENTS_KEY: Final = "args"
_VERSION_ANNOTATION: Final = "configMapVersion"
_RESOURCES: Final = {
    "requests": {"cpu": "250m", "memory": "512Mi"},
    "limits": {"cpu": "2", "memory": "4Gi"},
}


def lease_name(settings: Settings, shard: SchedulingShard) -> str:
    """The lease that the replicas of a shard compete for (operations:6)."""
    pool = shard.spec.partition_label_value
    return f"{settings.scheduler_name}-{pool}" if pool else settings.scheduler_name


def check_scheduler(settings: Settings) -> None:
    """Raise `Refused` for what a Config says that would end the scheduler of every shard."""
    if settings.is_enabled(settings.scheduler):
        command_line, _ = arguments.scheduler(settings, SchedulingShard())
        fields = {
            "queue-admission-reservation-timeout": ".global.queueAdmissionGating.reservationTimeout",
            "metrics-namespace": ".queueController.metricsNamespace",
        }
        check_command_line("scheduler", command_line, "scheduler", fields)


def shard_objects(
    settings: Settings, shard: SchedulingShard, facts: ClusterFacts
) -> tuple[list[JsonObject], list[LeftOut]]:
    """All objects of a shard, and which of its fields are left out; raises `Refused`."""
    spec, name = settings.scheduler, arguments.shard_name(settings, shard)
    _check_memory_limit(shard.spec)
    command_line, left_out = arguments.scheduler(settings, shard)
    configuration, skipped = shard_configuration(shard.spec, settings)
    left_out += skipped
    content = {
        arguments.CONFIGURATION_KEY: as_text(configuration),
        ARGUMENTS_KEY: json.dumps(command_line),
    }
    # operations:E-12
    if not settings.is_enabled(spec):
        return [], left_out
    config_map = make_object("v1", "ConfigMap", name, settings.namespace, labels=labels_of(name), data=content)
    main = container(
        name,
        settings,
        spec,
        command=("kai", "run", "scheduler"),
        arguments=command_line,
        health_port=arguments.scheduler_port(settings).target_port or 0,
        resources=_RESOURCES,
    )
    main["volumeMounts"].append({"name": "config", "mountPath": arguments.CONFIGURATION_FOLDER})
    workload = deployment(
        name,
        SCHEDULER_ACCOUNT,
        settings,
        spec,
        main,
        is_recreated=True,
        volumes=[{"name": "config", "configMap": {"name": name}}],
        annotations={_VERSION_ANNOTATION: _digest(content)},
    )
    return [
        config_map,
        workload,
        *_service(settings, shard, name, facts),
        *disruption_budget(name, settings, spec),
        *autoscaler(name, settings, spec, available=facts.has_autoscalers),
        *network_policy(name, settings, [arguments.scheduler_port(settings).target_port or 0]),
    ], left_out


def _check_memory_limit(spec: ShardSpec) -> None:
    """Limits of the Go runtime have no effect here, but a KAI cluster to go back to would refuse the same ones."""
    if spec.go_mem_limit is not None:
        try:
            if nano_value(spec.go_mem_limit) <= 0:
                raise Refused("", "goMemLimit must be greater than zero")
        except QuantityError as error:
            raise Refused("spec.goMemLimit", str(error)) from None
    if spec.go_mem_limit_ratio is not None and not 0 < spec.go_mem_limit_ratio <= 1:
        raise Refused("spec.goMemLimitRatio", f"{spec.go_mem_limit_ratio:g}: expected more than 0 and at most 1")


def _digest(content: dict[str, str]) -> str:
    """Changes with the content, so that a new configuration is rolled out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _service(settings: Settings, shard: SchedulingShard, name: str, facts: ClusterFacts) -> list[JsonObject]:
    """The Service of the metrics; of several replicas only the leader's (operations:O-40, O-42)."""
    given = arguments.scheduler_port(settings)
    number, target = given.port or 0, given.target_port or 0
    has_standbys = settings.replicas_of(settings.scheduler) > 1
    made = service(
        name,
        settings,
        [port(number, target)],
        selected="" if has_standbys else name,
        labels={COMPONENT_LABEL: SCHEDULER_ACCOUNT},
        annotations={"prometheus.io/scrape": "true"},
        type=given.type,
        # Without a selector the default would be two families, which not every cluster has, and could not be changed.
        **({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"} if given.type == "ClusterIP" else {}),
    )
    if not has_standbys:
        return [made]
    return [made, _leader_endpoints(settings, name, target, facts.leaders.get(shard.metadata.name))]


def _leader_endpoints(settings: Settings, name: str, target: int, leader: LeaderPod | None) -> JsonObject:
    endpoints: list[dict[str, Any]] = []
    if leader is not None:
        reference = {"kind": "Pod", "name": leader.name, "namespace": settings.namespace, "uid": leader.uid}
        endpoints.append({"addresses": [leader.address], "conditions": {"ready": True}, "targetRef": reference})
    version = ipaddress.ip_address(leader.address).version if leader is not None else 4
    return make_object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        # The type of addresses of a slice cannot change.
        f"{name}-leader" if version == 4 else f"{name}-leader-ipv6",
        settings.namespace,
        labels={
            **labels_of(name),
            "kubernetes.io/service-name": name,
            "endpointslice.kubernetes.io/managed-by": OPERATOR,
        },
        addressType=f"IPv{version}",
        endpoints=endpoints,
        ports=[{"name": METRICS_NAME, "port": target, "protocol": "TCP"}],
    )
