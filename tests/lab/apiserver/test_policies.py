"""Policies for fields of services: the same requests to the CEL policies and to the embedded server's table.

The people are a tenant, administrators, our services under their own roles, those of KAI Scheduler and of
fake-gpu-operator under theirs, and the controllers that make pods of a tenant's template.  A verdict is the text of the
policy that refuses, or nothing.  All requests are dry runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from pykai.api import guardedfields, names
from pykai.kube.client import Client
from tests.lab.apiserver.accounts import Accounts, Grant, rule
from tests.lab.apiserver.apiclient import APPLY, MERGE, Answer, Api, Object, path_of, pod
from tests.servers import Server, ensure_namespace

HOME = "tenants"
RESERVATIONS = names.RESERVATION_NAMESPACE
READ = ("get", "list", "watch")
CRUD = ("create", "delete", *READ, "patch", "update")
GROUPS, REQUESTS = "podgroups.scheduling.run.ai", "bindrequests.scheduling.run.ai"

#: account -> its roles, as they are installed in clusters (operations:11 for KAI Scheduler's)
PEOPLE: dict[str, tuple[Grant, ...]] = {
    "tenant": (Grant("edit", HOME), Grant("", HOME, (rule(GROUPS, *CRUD), rule(REQUESTS, *CRUD)))),
    "deputy": (Grant("cluster-admin"),),
    "kai-scheduler": (
        Grant(
            rules=(
                rule("pods", "delete", "patch", "update", *READ),
                rule("pods/status", *CRUD),
                rule(REQUESTS, *CRUD),
                rule(f"{GROUPS}/status", *CRUD),
                rule(GROUPS, "patch", "update", *READ),
            )
        ),
    ),
    "kai-binder": (
        Grant(
            rules=(
                rule("pods", *CRUD),
                rule("pods/binding", "create", "patch", "update"),
                rule("pods/status", "create", "patch", "update", *READ),
                rule(REQUESTS, "delete", "patch", "update", *READ),
            )
        ),
    ),
    "kai-podgrouper": (
        Grant(
            rules=(rule("pods", "create", "patch", "update", *READ), rule(GROUPS, "create", "patch", "update", *READ))
        ),
    ),
    "kai-numa-placement-exporter": (Grant(rules=(rule("pods", "get", "list", "patch"),)),),
    "kai-resource-reservation": (Grant("", RESERVATIONS, (rule("pods", "patch", "update", *READ),)),),
    "fake-status-updater": (
        Grant(rules=(rule("pods", *READ),)),
        Grant("", RESERVATIONS, (rule("pods", "patch", "update"),)),
    ),
    "job-controller": (Grant(rules=(rule("pods", "create", "delete", "patch", "list", "watch"),)),),
    "daemon-set-controller": (
        Grant(rules=(rule("pods", "create", "delete", "patch", "list", "watch"), rule("pods/binding", "create"))),
    ),
}
#: users with the roles of `kai manifests`
OURS = ("scheduler", "binder", "pod-grouper")
HOLDERS = {"deputy", "admin", "scheduler", "binder", "kai-scheduler", "kai-binder"}


class Asked(NamedTuple):
    """A request, its senders, and those that are allowed."""

    what: str
    method: str
    path: str
    body: Object
    by: frozenset[str]
    may: frozenset[str]
    #: beginning of the message to refused users
    field: str = ""
    content_type: str = "application/json"

    async def sent(self, api: Api) -> Answer:
        more = {"fieldManager": "test", "force": "true"} if self.content_type == APPLY else {}
        return await self.ask(api, **more)

    async def ask(self, api: Api, **more: str) -> Answer:
        return await api.request(
            self.method, self.path, self.body, content_type=self.content_type, dryRun="All", **more
        )


CREATORS = frozenset(
    {"tenant", "deputy", "admin", "kai-binder", "kai-podgrouper", "job-controller", "daemon-set-controller"}
)
CHANGERS = CREATORS | {"scheduler", "binder", "pod-grouper", "kai-scheduler", "kai-numa-placement-exporter"}


def creates(what: str, obj: Object, may: Iterable[str] = HOLDERS, field: str = "") -> Asked:
    """A new pod in the tenant's namespace."""
    return Asked(f"create {what}", "POST", path_of("pods", namespace=HOME), obj, CREATORS, frozenset(may), field)


def patches(what: str, name: str, meta: Object, may: Iterable[str] = HOLDERS, field: str = "") -> Asked:
    """A patch of a pod's metadata."""
    path = path_of("pods", name, namespace=HOME)
    return Asked(f"patch {what}", "PATCH", path, {"metadata": meta}, CHANGERS, frozenset(may), field, MERGE)


def group(name: str, annotations: Object | None = None) -> Object:
    meta: Object = {"name": name, "annotations": annotations} if annotations else {"name": name}
    return {"apiVersion": names.POD_GROUP_API_VERSION, "kind": "PodGroup", "metadata": meta, "spec": {}}


def request(name: str, node: str = "n", **meta: Any) -> Object:
    return {
        "apiVersion": names.BIND_REQUEST_API_VERSION,
        "kind": "BindRequest",
        "metadata": {"name": name, **meta},
        "spec": {"podName": name, "selectedNode": node},
    }


GROUP, PREFIXED = names.GPU_GROUP_LABEL, f"{names.GPU_GROUP_LABEL_PREFIX}g"
MARK = {names.APP_LABEL: names.RESERVATION_APP}
SEEING = HOLDERS | {"pod-grouper", "kai-podgrouper", "kai-numa-placement-exporter", "job-controller"}
SEEING |= {"daemon-set-controller"}
GROUP_WRITERS = frozenset({"tenant", "admin", "scheduler", "pod-grouper", "kai-scheduler", "kai-podgrouper"})
GROUP_STAMPERS = frozenset({"admin", "scheduler", "kai-scheduler"})


def pods() -> Iterable[Asked]:
    yield creates("a plain pod", pod("new"), CREATORS)
    contract = {
        "pod-group-name": "g",
        "kai.scheduler/subgroup-name": "s",
        "kai.scheduler/task-priority": "1",
        "priorityClassName": "train",
        "kai.scheduler/queue": "q",
        "app": "mine",
        "runai-gpu-groups": "another",
    }
    asking = {"gpu-fraction": "0.5", "gpu-memory": "100", "kai.scheduler/skip-podgrouper": "true"}
    asking["pod-group-name"] = "g"
    yield creates("what users write", pod("new", labels=contract, annotations=asking), CREATORS)
    yield patches("what users write", "plain", {"labels": contract, "annotations": asking}, CHANGERS)
    yield creates("a GPU group", pod("new", labels={GROUP: "g"}), field=f"metadata.labels[{GROUP}]")
    yield creates("one of several groups", pod("new", labels={PREFIXED: "g"}), field=f"metadata.labels[{GROUP}]")
    yield creates("the reservation mark", pod("new", labels=MARK), field="metadata.labels[app]=")
    for key in (names.RECEIVED_TYPE_ANNOTATION, names.NUMA_PREDICTED_ANNOTATION):
        field = f"metadata.annotations[{names.RECEIVED_TYPE_ANNOTATION}]"
        yield creates(key, pod("new", annotations={key: "x"}), field=field)
        yield patches(key, "plain", {"annotations": {key: "x"}}, field=field)
    for key in (names.NUMA_OBSERVED_ANNOTATION, names.RESERVED_GPU_ANNOTATION):
        field = f"metadata.annotations[{names.NUMA_OBSERVED_ANNOTATION}]"
        yield creates(key, pod("new", annotations={key: "x"}), field=field)
        yield patches(key, "plain", {"annotations": {key: "x"}}, SEEING, field)
    on_node = {"schedulerName": names.SCHEDULER_NAME, "nodeName": "n"}
    yield creates("a pod of ours on a node", pod("new", **on_node), field="spec.nodeName")
    yield creates("another's on a node", pod("new", schedulerName="other", nodeName="n"), CREATORS)
    yield creates("a pod of ours", pod("new", schedulerName=names.SCHEDULER_NAME), CREATORS)
    yield patches("a group onto a pod", "plain", {"labels": {GROUP: "g"}}, field=f"metadata.labels[{GROUP}]")
    yield patches("another group", "sharing", {"labels": {PREFIXED: "h"}}, field=f"metadata.labels[{GROUP}]")
    yield patches("a second group", "sharing", {"labels": {f"{PREFIXED}2": "g"}}, field=f"metadata.labels[{GROUP}]")
    yield patches("a group away", "sharing", {"labels": {PREFIXED: None}}, field=f"metadata.labels[{GROUP}]")
    yield patches("all labels away", "sharing", {"labels": None}, field=f"metadata.labels[{GROUP}]")
    yield patches("the mark onto a pod", "plain", {"labels": MARK}, field="metadata.labels[app]=")
    yield patches("the same group", "sharing", {"labels": {PREFIXED: "g"}}, CHANGERS)
    yield patches("something beside a group", "sharing", {"labels": {"app": "x"}, "annotations": {"a": "b"}}, CHANGERS)
    yield patches("finalizers of a pod of ours", "running", {"finalizers": ["example.com/x"]}, CHANGERS)


def others() -> Iterable[Asked]:
    applied = pod("applied", labels={GROUP: "g"})
    yield Asked(
        "apply a pod with a group",
        "PATCH",
        path_of("pods", "applied", namespace=HOME),
        applied,
        frozenset({"tenant", "admin", "kai-binder", "job-controller"}),
        frozenset({"admin", "kai-binder"}),
        f"metadata.labels[{GROUP}]",
        APPLY,
    )
    own = path_of("pods", "held", namespace=RESERVATIONS)
    yield Asked(
        "patch the device of a reservation",
        "PATCH",
        own,
        {"metadata": {"annotations": {names.RESERVED_GPU_ANNOTATION: "GPU-1"}}},
        frozenset({"admin", "binder", "kai-resource-reservation", "fake-status-updater"}),
        frozenset({"admin", "binder", "kai-resource-reservation", "fake-status-updater"}),
        content_type=MERGE,
    )
    yield Asked(
        "create a reservation",
        "POST",
        path_of("pods", namespace=RESERVATIONS),
        pod("reserved", labels={**MARK, GROUP: "g"}, nodeName="n"),
        frozenset({"admin", "binder", "kai-binder", "job-controller"}),
        frozenset({"admin", "binder", "kai-binder"}),
        f"metadata.labels[{GROUP}]",
    )
    in_groups, one = path_of("podgroups", namespace=HOME), path_of("podgroups", "waiting", namespace=HOME)
    makers = frozenset({"tenant", "admin", "pod-grouper", "kai-podgrouper"})
    yield Asked("create a group", "POST", in_groups, group("new"), makers, makers)
    for key in guardedfields.TIMESTAMPS:
        field = f"metadata.annotations[{names.STALE_TIMESTAMP_ANNOTATION}]"
        stamped = {key: "2026-01-01T00:00:00Z"}
        admins = frozenset({"admin"})
        yield Asked(f"create a group with {key}", "POST", in_groups, group("new", stamped), makers, admins, field)
        patch = {"metadata": {"annotations": stamped}}
        yield Asked(f"patch {key}", "PATCH", one, patch, GROUP_WRITERS, GROUP_STAMPERS, field, MERGE)
    away = {"metadata": {"annotations": {names.LAST_START_TIMESTAMP_ANNOTATION: None}}}
    started = path_of("podgroups", "started", namespace=HOME)
    field = f"metadata.annotations[{names.STALE_TIMESTAMP_ANNOTATION}]"
    yield Asked("take a start time away", "PATCH", started, away, GROUP_WRITERS, GROUP_STAMPERS, field, MERGE)
    queue = {"spec": {"queue": "other"}, "metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}}
    yield Asked("patch a group", "PATCH", started, queue, GROUP_WRITERS, GROUP_WRITERS, content_type=MERGE)
    in_requests, bound = path_of("bindrequests", namespace=HOME), path_of("bindrequests", "bound", namespace=HOME)
    schedulers = frozenset({"tenant", "admin", "scheduler", "kai-scheduler"})
    services = frozenset({"admin", "scheduler", "kai-scheduler", "kai-binder"})
    yield Asked("create a request", "POST", in_requests, request("new"), schedulers, services, "spec, metadata.labels")
    changers = frozenset({"tenant", "admin", "kai-scheduler", "kai-binder"})
    changes: tuple[Object, ...] = ({"spec": {"selectedNode": "m"}}, {"metadata": {"labels": {"selected-node": "m"}}})
    for change in changes:
        yield Asked(f"patch {change}", "PATCH", bound, change, changers, services, "spec, metadata.labels", MERGE)
    owned = {"metadata": {"finalizers": ["example.com/x"], "annotations": {"a": "b"}}}
    yield Asked("patch what belongs to nobody", "PATCH", bound, owned, changers, changers, content_type=MERGE)


class Cast(NamedTuple):
    """All users by name."""

    accounts: Accounts
    people: dict[str, Api]

    @property
    def admin(self) -> Api:
        return self.accounts.admin


@pytest.fixture
async def cast(server: Server) -> Cast:
    accounts = Accounts(server)
    client = Client(server.transport())
    await ensure_namespace(client, HOME)
    people = {name: await accounts.make(name, HOME, *grants) for name, grants in PEOPLE.items()}
    people |= {name: Api(server.transport(name)) for name in OURS}
    people["admin"] = accounts.admin
    await accounts.until_may(people["tenant"], "create", "pods", HOME)
    await accounts.until_may(people["deputy"], "create", "pods", HOME)
    admin = accounts.admin
    running = pod("running", schedulerName=names.SCHEDULER_NAME, nodeName="n")
    for each in (pod("plain"), pod("sharing", labels={PREFIXED: "g", "app": "a"}), running):
        (await admin.create("pods", each, HOME)).ok()
    (await admin.create("pods", pod("held", labels={**MARK, GROUP: "g"}), RESERVATIONS)).ok()
    (await admin.create("podgroups", group("waiting"), HOME)).ok()
    stamped = group("started", {names.LAST_START_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"})
    (await admin.create("podgroups", stamped, HOME)).ok()
    (await admin.create("bindrequests", request("bound"), HOME)).ok()
    return Cast(accounts, people)


MESSAGES = [guard.message for policy in guardedfields.field_policies() for guard in policy.guards]


def expected(asked: Asked, who: str) -> str:
    """The policy's message to refused users."""
    if who in asked.may:
        return ""
    (message,) = [text for text in MESSAGES if text.startswith(asked.field)] if asked.field else [""]
    return message


async def verdict(asked: Asked, api: Api) -> str:
    answer = await asked.sent(api)
    if answer.code < 300:
        return ""
    text = str(answer.body["message"])
    assert answer.code == 403, f"{asked.what}: {answer.code} {text}"
    assert " with binding 'kai-" in text, (asked.what, text)
    return text.partition(" denied request: ")[2]


@pytest.mark.parametrize("table", [pods, others])
async def test_what_belongs_to_services_is_written_by_services(cast: Cast, table: Any) -> None:
    wrong = {}
    for asked in table():
        for who in sorted(asked.by):
            found = await verdict(asked, cast.people[who])
            if found != expected(asked, who):
                wrong[asked.what, who] = found
    assert wrong == {}


async def test_the_refusal_is_worded_as_kubernetes_does(cast: Cast) -> None:
    answer = await cast.people["tenant"].create("pods", pod("new", labels={GROUP: "g"}), HOME)
    message = MESSAGES[0]
    text = f"ValidatingAdmissionPolicy 'kai-pods' with binding 'kai-pods' denied request: {message}"
    assert answer.code == 403
    assert answer.body["reason"] == "Forbidden"
    assert answer.body["message"] == f'pods "new" is forbidden: {text}'
    assert answer.body["details"] == {"name": "new", "kind": "pods", "causes": [{"message": text}]}


async def test_our_services_write_nothing_in_namespaces_of_the_cluster(cast: Cast) -> None:
    (await cast.admin.create("pods", pod("dns"), "kube-system")).ok()
    here = path_of("pods", "dns", namespace="kube-system")
    patch = {"metadata": {"annotations": {"a": "b"}}}
    binding = {"metadata": {"name": "dns"}, "target": {"name": "n"}}
    refused = guardedfields.closed_namespaces().message
    for who in ("scheduler", "binder", "pod-grouper"):
        service = cast.people[who]
        answers = [await service.request("PATCH", here, patch, content_type=MERGE, dryRun="All")]
        if who != "pod-grouper":
            answers.append(await service.request("DELETE", here, dryRun="All"))
            answers.append(await service.request("PATCH", f"{here}/status", patch, content_type=MERGE, dryRun="All"))
            answers.append(await service.request("POST", f"{here}/binding", binding, dryRun="All"))
        for answer in answers:
            assert answer.code == 403, (who, answer.body)
            assert answer.body["message"].endswith(f" denied request: {refused}"), answer.body
    for who in ("admin", "deputy", "kai-scheduler"):
        assert (await cast.people[who].request("PATCH", here, patch, content_type=MERGE, dryRun="All")).code == 200
    made = {"metadata": {"name": "m"}}
    for place, code in (("kube-system", 403), (HOME, 201)):
        answer = await cast.people["binder"].request("POST", path_of("configmaps", namespace=place), made, dryRun="All")
        assert answer.code == code, answer.body


async def test_a_policy_ends_with_its_binding(cast: Cast) -> None:
    tenant, root = cast.people["tenant"], "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    stored = (await cast.admin.request("GET", f"{root}/kai-podgroups")).ok().body
    (await cast.admin.request("DELETE", f"{root}/kai-podgroups")).ok()
    stamped = group("new", {names.LAST_START_TIMESTAMP_ANNOTATION: "2026-01-01T00:00:00Z"})

    async def attempt() -> Answer:
        return await tenant.create("podgroups", stamped, HOME, dryRun="All")

    try:
        await tenant.until(attempt, lambda answer: answer.code == 201)
    finally:
        again = {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "spec": stored["spec"]}
        restored = {**again, "metadata": {"name": "kai-podgroups"}}
        (await cast.people["deputy"].request("POST", root, restored)).ok()
    await tenant.until(attempt, lambda answer: answer.code == 403)
