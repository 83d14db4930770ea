"""Reviews of anything: there is an answer, or a refusal that says why, and the work is linear in the size."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykai.api import names
from pykai.api.core import Namespace
from pykai.api.meta import ObjectMeta
from pykai.api.scheduling import Queue
from pykai.kube.resources import NAMESPACES
from pykai.lab.apiserver.patches import json_patch
from pykai.webhooks import table
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.handlers import ReviewHandlers, object_handlers, pod_handlers, queue_handlers
from pykai.webhooks.queueaccess import QueueAccessCheck
from pykai.webhooks.queuelookups import QueueLookups
from pykai.webhooks.reviews import ReviewAnswer, ReviewError, ReviewRequest, read_review, review_response
from pykai.webhooks.topologylookups import TopologyLookups
from tests.webhooks.test_gpusharing import letters
from tests.webhooks.test_server import runtime_of_nothing

RULES = SharingRules(visible_devices_blocked=True, hami_core_enabled=True)
#: words that the rules look for
WORDS = st.sampled_from(
    (
        *("metadata", "spec", "annotations", "labels", "name", "namespace", "schedulerName", names.SCHEDULER_NAME),
        *(
            "containers",
            "initContainers",
            "ephemeralContainers",
            "env",
            "envFrom",
            "value",
            "valueFrom",
            "volumeMounts",
        ),
        *("resources", "limits", "requests", "claims", "nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES", "void", "all"),
        *("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "0.5", "mps"),
        *("subGroups", "parent", "minMember", "minSubGroup", "preemptibility", "semi-preemptible", "status"),
        *("resourcesStatus", "allocated", "parentQueue", "quota", "limit", "gpu", "levels", "nodeLabel", "alias"),
        *("ownerReferences", "generateName", "runai-gpu-group/x", "volumes", "mountPath", "a", "b"),
        *(names.QUEUE_LABEL, "project", names.NODE_POOL_LABEL, "queue"),
        *(names.ALLOWED_NAMESPACES_ANNOTATION, names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION, "a,b", "a in (b)"),
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | WORDS
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=6), inner, max_size=6),
    max_leaves=15,
)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": WORDS}, optional={"env": ANYTHING, "resources": ANYTHING, "volumeMounts": ANYTHING}),
    max_size=4,
)
#: objects that get past the first checks
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"annotations": st.dictionaries(WORDS, WORDS | LEAVES, max_size=5)},
            optional={"labels": st.dictionaries(WORDS, WORDS | LEAVES, max_size=5), "ownerReferences": ANYTHING},
        ),
        "spec": st.fixed_dictionaries(
            {"schedulerName": st.just(names.SCHEDULER_NAME), "containers": CONTAINERS},
            optional={"initContainers": CONTAINERS, "ephemeralContainers": CONTAINERS, "volumes": ANYTHING},
        ),
    }
)
GROUPS = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {
                "subGroups": st.lists(
                    st.fixed_dictionaries(
                        {"name": WORDS},
                        optional={"parent": WORDS, "minMember": st.integers(), "minSubGroup": st.integers()},
                    ),
                    max_size=6,
                )
            },
            optional={"minMember": LEAVES, "minSubGroup": st.integers(), "preemptibility": WORDS, "queue": WORDS},
        )
    },
    optional={"status": ANYTHING, "metadata": ANYTHING},
)
QUEUES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": WORDS, "annotations": st.dictionaries(WORDS, WORDS | LEAVES, max_size=5)}
        ),
        "spec": st.fixed_dictionaries({"resources": ANYTHING}, optional={"parentQueue": WORDS, "priority": LEAVES}),
    }
)
TOPOLOGIES = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"levels": st.lists(st.dictionaries(st.sampled_from(("nodeLabel", "alias")), WORDS), max_size=5)}
        )
    }
)
OBJECTS = PODS | GROUPS | QUEUES | TOPOLOGIES | ANYTHING
#: of the queues a and b
LISTS: tuple[dict[str, str], ...] = (
    {names.ALLOWED_NAMESPACES_ANNOTATION: "other"},
    {names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: "team=("},
)
OPERATIONS = st.sampled_from(("CREATE", "UPDATE", "DELETE", "CONNECT", ""))


def handlers() -> ReviewHandlers:
    runtime = runtime_of_nothing()
    lookups = QueueLookups(runtime)
    for store in (lookups._queues, lookups._groups):
        store.synced.set()
    access = QueueAccessCheck(runtime)
    for number, lists in enumerate(LISTS):
        meta = ObjectMeta(name="ab"[number], annotations=lists)
        access._queues.assume(Queue(metadata=meta))
    runtime.caches.store(NAMESPACES, Namespace, metadata_only=True).synced.set()
    objects = object_handlers(TopologyLookups(runtime), access)
    return {**pod_handlers(RULES, access, random=letters), **objects, **queue_handlers(lookups)}


def answered(path: str, document: Any) -> tuple[ReviewRequest, ReviewAnswer]:
    """The answer to a review."""
    request = read_review(document)
    return request, asyncio.run(handlers()[path](request))


@settings(max_examples=30, deadline=None)
@given(ANYTHING | st.fixed_dictionaries({"request": ANYTHING | st.dictionaries(st.just("uid"), ANYTHING)}))
def test_a_document_is_a_review_or_an_error_says_why_not(document: Any) -> None:
    has_uid = False
    with contextlib.suppress(ReviewError):
        has_uid = bool(read_review(document).uid)
    assert has_uid == bool(
        isinstance(document, dict)
        and isinstance(document.get("request"), dict)
        and isinstance(document["request"].get("uid"), str)
        and document["request"]["uid"]
    )


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(table.PATHS), OPERATIONS, OBJECTS, OBJECTS, st.sampled_from(("", "ephemeralcontainers")))
def test_every_review_has_an_answer(path: str, operation: str, new: Any, old: Any, subresource: str) -> None:
    request = {"uid": "u", "operation": operation, "object": new, "oldObject": old, "subResource": subresource}
    asked, answer = answered(path, {"request": {**request, "namespace": "ns", "name": "n"}})
    response = review_response(asked, answer)["response"]
    msgspec.json.encode(response)
    assert response["uid"] == "u"
    assert response["allowed"] or response["status"]["message"]
    assert all(isinstance(text, str) and len(text) <= 256 for text in response.get("warnings", ()))
    if "patch" in response:
        patch = msgspec.json.decode(base64.b64decode(response["patch"]))
        again = json_patch(new, patch)
        # What was changed once is not changed again.
        _, second = answered(path, {"request": {**request, "object": again, "namespace": "ns"}})
        assert second.changed is None or second.changed == again


def steps(path: str, document: Any) -> int:
    """Lines of Python that an answer takes."""
    request = read_review(document)
    handler = handlers()[path]
    count = 0

    async def answer() -> None:
        sys.settrace(trace)
        try:
            await handler(request)
        finally:
            sys.settrace(before)

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    asyncio.run(answer())
    return count


def pod(size: int) -> dict[str, Any]:
    """A pod in which everything is many times."""
    containers = [
        {
            "name": f"c{number}",
            "env": [{"name": f"E{each}"} for each in range(10)],
            "volumeMounts": [{"mountPath": "/"}],
        }
        for number in range(size)
    ]
    annotations = {"gpu-fraction": "0.5", **{f"a{number}": "b" for number in range(size)}}
    return {
        "metadata": {"name": "p", "annotations": annotations, "labels": {f"l{number}": "b" for number in range(size)}},
        "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": containers, "initContainers": []},
    }


def chain(size: int) -> dict[str, Any]:
    """A group whose subgroups are one below the other."""
    parts: list[dict[str, Any]] = [{"name": "s0"}]
    parts += [{"name": f"s{number}", "parent": f"s{number - 1}"} for number in range(1, size)]
    return {"spec": {"subGroups": parts, "preemptibility": "semi-preemptible"}}


def levels(size: int) -> dict[str, Any]:
    return {"spec": {"levels": [{"nodeLabel": f"l{number}", "alias": f"l{number}"} for number in range(size)]}}


def lists(size: int) -> dict[str, Any]:
    """A queue that names and selects many namespaces."""
    annotations = {
        names.ALLOWED_NAMESPACES_ANNOTATION: ",".join(f"team-{number}" for number in range(size)),
        names.ALLOWED_NAMESPACE_SELECTOR_ANNOTATION: ",".join(f"l{number} in (a, b)" for number in range(size)),
    }
    return {"metadata": {"name": "q", "annotations": annotations}, "spec": {"resources": {"gpu": {}}}}


@pytest.mark.parametrize(
    ("path", "made"),
    [
        (table.MUTATE_PODS.path, pod),
        (table.VALIDATE_PODS.path, pod),
        (table.VALIDATE_POD_GROUPS.path, chain),
        (table.VALIDATE_TOPOLOGIES.path, levels),
        (table.VALIDATE_QUEUES.path, lists),
    ],
)
def test_work_is_linear_in_the_size(path: str, made: Any) -> None:
    def work(size: int) -> int:
        request = {"uid": "u", "operation": "CREATE", "object": made(size), "namespace": "ns"}
        return steps(path, {"request": request})

    small, large = work(100), work(800)
    assert large < 10 * small


def test_many_warnings_and_a_long_refusal_are_cut() -> None:
    request = ReviewRequest("u")
    response = review_response(request, ReviewAnswer("x" * 100_000, ("w" * 1000,) * 100))["response"]
    assert len(response["status"]["message"]) == 32 << 10
    assert [len(text) for text in response["warnings"]] == [256] * 20
