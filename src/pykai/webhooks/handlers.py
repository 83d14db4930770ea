"""Answers to reviews, by path of the webhook.

Each function gives handlers for some kinds; the server takes them together.  The rules are in a module for each kind,
and pure; a handler adds what must be read of the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pykai.api import names
from pykai.kube.errors import KubeError
from pykai.webhooks import podgroups, queues, table, topologies
from pykai.webhooks.admission import is_privileged, is_service, random_letters
from pykai.webhooks.gpusharing import DEFAULT_RULES, AdmissionDenied, SharingRules
from pykai.webhooks.pods import EPHEMERAL_CONTAINERS, is_for_scheduler, mutate_pod, pod_problem
from pykai.webhooks.protection import ProtectionCheck
from pykai.webhooks.queueaccess import QueueAccessCheck, queue_of_group
from pykai.webhooks.queuegating import GatingRules, add_gate
from pykai.webhooks.queuelookups import QueueLookups
from pykai.webhooks.reviews import ALLOWED, UNAVAILABLE, ReviewAnswer, ReviewRequest, answer_of
from pykai.webhooks.topologylookups import TopologyLookups

ReviewHandler = Callable[[ReviewRequest], Coroutine[Any, Any, ReviewAnswer]]
#: path -> what answers there
ReviewHandlers = Mapping[str, ReviewHandler]

#: seconds for the pods of a queue that is deleted, less than an API server waits
_READ_LIMIT_S: Final = table.VALIDATE_QUEUES.timeout_s - 2
#: the same for the pods of a PodGroup
_PROTECTION_LIMIT_S: Final = table.VALIDATE_POD_GROUPS.timeout_s - 1


def pod_handlers(
    rules: SharingRules = DEFAULT_RULES,
    access: QueueAccessCheck | None = None,
    *,
    random: Callable[[int], str] = random_letters,
    gating: GatingRules | None = None,
    protection: ProtectionCheck | None = None,
    services_namespace: str = names.DEFAULT_NAMESPACE,
) -> ReviewHandlers:
    """Mutation and validation of pods (gpu:A-1); without `gating` no pod gets the gate of its queue, without `access`
    no queue that a pod names is checked, without `protection` no PodGroup that a running pod joins.

    `services_namespace` is the namespace of our services.
    """

    async def mutate(request: ReviewRequest) -> ReviewAnswer:
        old = request.old_object if request.subresource == EPHEMERAL_CONTAINERS else None
        if request.object is None or (request.operation != table.CREATE and old is None):
            return ALLOWED
        try:
            changed = mutate_pod(request.object, old, namespace=request.namespace, random=random, rules=rules)
        except AdmissionDenied as refused:
            return ReviewAnswer(str(refused))
        if gating is not None and old is None:
            changed = add_gate(changed or request.object, request.namespace, gating) or changed
        return ReviewAnswer(changed=changed)

    async def validate(request: ReviewRequest) -> ReviewAnswer:
        if request.object is None:
            return ALLOWED
        privileged = is_privileged(request.user, request.groups, services_namespace)
        problem = pod_problem(request.object, request.old_object, privileged=privileged, rules=rules)
        if not problem and access is not None and is_for_scheduler(request.object, rules):
            objects = (request.object, request.old_object or {})
            queue, old_queue = map(access.queue_of_pod, objects)
            problem = await access.problem(request.namespace, queue, old_queue)
        if problem or protection is None or privileged or request.old_object is None:
            return ReviewAnswer(problem)
        return await _answer_to(protection.pod_problem(request.namespace, request.object, request.old_object))

    return {table.MUTATE_PODS.path: mutate, table.VALIDATE_PODS.path: validate}


def object_handlers(
    lookups: TopologyLookups,
    access: QueueAccessCheck | None = None,
    protection: ProtectionCheck | None = None,
    *,
    services_namespace: str = names.DEFAULT_NAMESPACE,
) -> ReviewHandlers:
    """Validation of PodGroups and Topologies; `access` checks the queue that a PodGroup names, `protection` whether it
    protects pods that run (protect:admission).  `services_namespace` is the namespace of our services.
    """

    async def validate_group(request: ReviewRequest) -> ReviewAnswer:
        if request.object is None:
            return ALLOWED
        result = podgroups.validate(request.object, request.old_object)
        if access is not None:
            queue, old_queue = queue_of_group(request.object), queue_of_group(request.old_object or {})
            problem = await access.problem(request.namespace, queue, old_queue)
            result = result.with_finding(problem, is_error=not is_service(request.user, services_namespace))
        if not result.allowed or protection is None or is_privileged(request.user, request.groups, services_namespace):
            return answer_of(result)
        checked = protection.group_problem(request.namespace, request.object, request.old_object)
        return replace(await _answer_to(checked), warnings=result.warnings)

    async def validate_topology(request: ReviewRequest) -> ReviewAnswer:
        if request.object is None:
            return ALLOWED
        groups_using = partial(lookups.groups_using, request.name)
        return answer_of(topologies.validate(request.object, request.old_object, groups_using))

    return {table.VALIDATE_POD_GROUPS.path: validate_group, table.VALIDATE_TOPOLOGIES.path: validate_topology}


async def _answer_to(check: Coroutine[Any, Any, str]) -> ReviewAnswer:
    """The answer about a write that must not pass unless the cluster could be read."""
    try:
        async with asyncio.timeout(_PROTECTION_LIMIT_S):
            return ReviewAnswer(await check)
    except (KubeError, TimeoutError) as error:
        text = f"the cluster could not be read, so try again: {error or 'no answer in time'}"
        return ReviewAnswer(text, code=UNAVAILABLE)


def queue_handlers(
    lookups: QueueLookups, *, quotas_checked: bool = True, children_refused: bool = False
) -> ReviewHandlers:
    """Validation of Queues, against the other queues and the pods that use them."""

    async def validate(request: ReviewRequest) -> ReviewAnswer:
        try:
            async with asyncio.timeout(_READ_LIMIT_S):
                await lookups.synced()
                if request.object is None:
                    return await delete(request)
        except (KubeError, TimeoutError) as error:
            text = f"queue {request.name}: the cluster could not be read, so try again: {error or 'no answer in time'}"
            return ReviewAnswer(text, code=UNAVAILABLE)
        parent = queues.parent_of(request.object)
        result = queues.validate(
            request.object,
            request.old_object,
            lookups.queues(),
            quotas=quotas_checked,
            parent_has_workloads=lookups.has_groups(parent),
        )
        return answer_of(result)

    async def delete(request: ReviewRequest) -> ReviewAnswer:
        pod = await lookups.live_pod(request.name)
        found = queues.validate_deletion(
            request.name, lookups.queues(), live_pod=pod, children_refused=children_refused
        )
        return answer_of(found)

    return {table.VALIDATE_QUEUES.path: validate}
