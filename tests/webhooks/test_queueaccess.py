"""Which queue pods and PodGroups name, and whether their namespace may use it (access:admission)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pykai.api import names
from pykai.api.core import Namespace
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue
from pykai.kube.resources import NAMESPACES, QUEUES
from pykai.webhooks import queueaccess
from pykai.webhooks.handlers import ReviewHandlers, object_handlers, pod_handlers
from pykai.webhooks.options import make_admission, read_options
from pykai.webhooks.queueaccess import QueueAccessCheck, queue_of_group, queue_of_pod
from pykai.webhooks.reviews import ReviewAnswer, ReviewRequest
from pykai.webhooks.server import AdmissionServer
from pykai.webhooks.table import VALIDATE_POD_GROUPS, VALIDATE_PODS
from pykai.webhooks.topologylookups import TopologyLookups
from tests.webhooks.test_gpusharing import a_pod
from tests.webhooks.test_server import runtime_of_nothing


@pytest.mark.parametrize(
    ("labels", "owned", "queue_name"),
    [
        ({}, False, ""),
        ({names.QUEUE_LABEL: "q"}, False, "q"),
        ({names.QUEUE_LABEL: "q", "project": "p"}, True, "q"),
        ({names.QUEUE_LABEL: "", "project": "p"}, False, ""),
        ({"project": "p"}, False, "p"),
        ({"project": "p", names.NODE_POOL_LABEL: "fast"}, False, "p-fast"),
        ({"project": "p"}, True, ""),
    ],
)
def test_the_queue_that_a_pod_names(labels: dict[str, str], owned: bool, queue_name: str) -> None:
    """access:admission; workloads:DF-5: a project counts where no owner can say otherwise."""
    metadata: dict[str, Any] = {"labels": labels, **({"ownerReferences": [{"uid": "u"}]} if owned else {})}
    assert queue_of_pod({"metadata": metadata}) == queue_name


def test_a_group_without_a_readable_queue_names_none() -> None:
    assert queue_of_group({"spec": {"queue": "q"}}) == "q"
    assert queue_of_group({"spec": {"queue": 3}}) == ""
    assert queue_of_group({}) == ""


#: the annotations of the queues that there are
LISTS = {
    "vision": {names.ALLOWED_NAMESPACES_ANNOTATION: "vision"},
    "red": {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: "team=red"},
    "open": {},
}
#: the labels of the namespaces that are known
NAMESPACE_LABELS = {"vision": {}, "b": {"team": "red"}, "c": {"team": "blue"}}


def handlers() -> ReviewHandlers:
    runtime = runtime_of_nothing()
    access = QueueAccessCheck(runtime)
    for name, lists in LISTS.items():
        access._queues.assume(Queue(metadata=ObjectMeta(name=name, annotations=lists)))
    namespaces = runtime.caches.store(NAMESPACES, Namespace, metadata_only=True)
    for name, labels in NAMESPACE_LABELS.items():
        namespaces.assume(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    for store in (access._queues, namespaces):
        store.synced.set()
    return {**pod_handlers(access=access), **object_handlers(TopologyLookups(runtime), access)}


def pod_answer(namespace: str, queue: str, old_queue: str | None = None) -> ReviewAnswer:
    new, old = (None if each is None else a_pod(labels={names.QUEUE_LABEL: each}) for each in (queue, old_queue))
    request = ReviewRequest("u", "UPDATE" if old else "CREATE", namespace, "p", object=new, old_object=old)
    return asyncio.run(handlers()[VALIDATE_PODS.path](request))


def group_answer(namespace: str, queue: str, old_queue: str | None = None, user: str = "jane") -> ReviewAnswer:
    new, old = (None if each is None else {"spec": {"queue": each}} for each in (queue, old_queue))
    request = ReviewRequest("u", "UPDATE" if old else "CREATE", namespace, "g", object=new, old_object=old, user=user)
    return asyncio.run(handlers()[VALIDATE_POD_GROUPS.path](request))


@pytest.mark.parametrize(
    ("namespace", "queue", "allowed"),
    [
        ("vision", "vision", True),
        ("b", "vision", False),
        ("b", "red", True),
        ("c", "red", False),
        ("new", "red", True),
        ("new", "vision", False),
        ("b", "open", True),
        ("b", "absent", True),
        ("b", "", True),
    ],
)
def test_pods_and_groups_are_refused_where_the_namespace_may_not_use_the_queue(
    namespace: str, queue: str, allowed: bool
) -> None:
    """access:admission: the labels of a namespace that is not known yet may select it."""
    for answer in (pod_answer(namespace, queue), group_answer(namespace, queue)):
        assert (not answer.refusal) == allowed
        assert allowed or f"Namespace '{namespace}' may not use queue '{queue}'" in answer.refusal


def test_only_a_new_queue_is_checked() -> None:
    """access:admission: what was admitted stays writable."""
    assert not pod_answer("b", "vision", "vision").refusal
    assert pod_answer("b", "vision", "open").refusal
    assert not group_answer("b", "vision", "vision").refusal
    assert group_answer("b", "vision", "open").refusal


def test_queues_that_are_not_read_yet_refuse_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """access:admission: the scheduler refuses again."""
    monkeypatch.setattr(queueaccess, "_SYNC_LIMIT_S", 0.0)
    check = QueueAccessCheck(runtime_of_nothing())
    check._queues.assume(Queue(metadata=ObjectMeta(name="vision", annotations=LISTS["vision"])))
    assert asyncio.run(check.problem("b", "vision")) == ""
    check._queues.synced.set()
    assert asyncio.run(check.problem("b", "vision"))


def test_the_services_are_warned() -> None:
    """access:admission: a pod without a PodGroup would wait without a reason."""
    answer = group_answer("b", "vision", user="system:serviceaccount:kai-scheduler:pod-grouper")
    assert not answer.refusal
    assert "may not use queue 'vision'" in answer.warnings[0]
    assert group_answer("b", "vision", user="system:serviceaccount:b:pod-grouper").refusal


def test_pods_of_other_schedulers_are_not_checked() -> None:
    pod = a_pod(labels={names.QUEUE_LABEL: "vision"}, schedulerName="default-scheduler")
    request = ReviewRequest("u", "CREATE", "b", "p", object=pod)
    assert not asyncio.run(handlers()[VALIDATE_PODS.path](request)).refusal


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        ({"team": "vision"}, True),
        ({names.QUEUE_LABEL: "vision"}, False),
        ({names.PROJECT_LABEL: "vision", "pool": "large"}, False),
        ({names.PROJECT_LABEL: "vision", names.NODE_POOL_LABEL: "large"}, True),
    ],
)
def test_labels_of_queues_and_node_pools_can_be_others(labels: dict[str, str], refused: bool) -> None:
    """access:admission: `--queue-label-key` and `--nodepool-label-key`, as for the scheduler."""
    runtime = runtime_of_nothing()
    server, *_ = make_admission(runtime, read_options({"queue-label-key": "team", "nodepool-label-key": "pool"}))
    assert isinstance(server, AdmissionServer)
    queues = runtime.caches.store(QUEUES, Queue)
    queues.assume(Queue(metadata=ObjectMeta(name="vision", annotations=LISTS["vision"])))
    queues.synced.set()
    validate = server._handlers[VALIDATE_PODS.path]
    request = ReviewRequest("u", "CREATE", "b", "p", object=a_pod(labels=labels))
    assert bool(asyncio.run(validate(request)).refusal) == refused
