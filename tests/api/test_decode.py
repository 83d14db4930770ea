"""Decoding: every field arrives, odd input does no harm, broken input is named."""

import copy
import gc
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.core import Node, Pod
from pykai.api.decode import (
    API_GROUPS,
    KINDS,
    DecodeError,
    EncodedObject,
    UnknownKind,
    decode_as,
    decode_each,
    decode_list,
    decode_object,
)
from pykai.api.meta import Wire
from pykai.api.nulls import replace_nulls
from pykai.api.resource import DeviceAttribute, OpaqueConfiguration, ResourceSlice
from pykai.api.scheduling import BindRequest, PodGroup, Queue
from tests.api.samples import SAMPLES

BY_KIND = {sample["kind"]: sample for sample in SAMPLES}
Path = tuple[str | int, ...]
DECODED = {Wire.__module__, *(wire_type.__module__ for wire_type in KINDS.values())}


def as_json(document: object) -> bytes:
    return json.dumps(document).encode()


def pod_with(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, **fields}


def refusal(data: EncodedObject) -> DecodeError:
    with pytest.raises(DecodeError) as refused:
        decode_object(data)
    return refused.value


def structs_in(value: object) -> Iterator[Wire]:
    if isinstance(value, Wire):
        yield value
        for name in value.__struct_fields__:
            yield from structs_in(getattr(value, name))
    elif isinstance(value, list | tuple):
        for element in value:
            yield from structs_in(element)
    elif isinstance(value, dict):
        for element in value.values():
            yield from structs_in(element)


def all_wire_types(base: type[Wire] = Wire) -> Iterator[type[Wire]]:
    """Those that `decode_object` may give; others read manifests of workloads with structs of their own."""
    for wire_type in base.__subclasses__():
        if wire_type.__module__ in DECODED:
            yield wire_type
        yield from all_wire_types(wire_type)


def paths_in(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, element in value.items():
            yield from paths_in(element, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from paths_in(element, (*path, index))


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_arrives_under_its_wire_name(kind: str) -> None:
    sample = BY_KIND[kind]
    for data in (sample, as_json(sample), msgspec.Raw(as_json(sample))):
        decoded = decode_object(data)
        assert type(decoded) is KINDS[kind]
        header = {"apiVersion": sample["apiVersion"], "kind": kind}
        assert header | msgspec.json.decode(msgspec.json.encode(decoded)) == sample


def test_the_samples_leave_no_field_at_its_default() -> None:
    seen: set[tuple[type[Wire], str]] = set()
    for sample in SAMPLES:
        for struct in structs_in(decode_object(sample)):
            blank = type(struct)()
            for name in struct.__struct_fields__:
                if getattr(struct, name) != getattr(blank, name):
                    seen.add((type(struct), name))
    fields = {(wire_type, name) for wire_type in all_wire_types() for name in wire_type.__struct_fields__}
    assert fields - seen == set()


@pytest.mark.parametrize("wire_type", list(all_wire_types()), ids=lambda wire_type: wire_type.__name__)
def test_every_type_has_defaults_and_is_read_only(wire_type: type[Wire]) -> None:
    blank = wire_type()
    assert decode_as(wire_type, b"{}") == blank
    for name in wire_type.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(blank, name, None)


def test_kinds_and_groups_cover_the_same_types() -> None:
    assert list(KINDS) == list(API_GROUPS)
    assert all(wire_type.__name__ == kind for kind, wire_type in KINDS.items())


def test_absent_maps_are_not_shared_between_objects() -> None:
    one, other = decode_as(Pod, b"{}"), decode_as(Pod, b"{}")
    assert one.metadata.labels is not other.metadata.labels
    assert one.spec.node_selector is not other.spec.node_selector


@pytest.mark.parametrize("kind", ["Node", "Pod"])
def test_frequent_types_are_not_tracked_by_the_garbage_collector(kind: str) -> None:
    decoded = decode_object(as_json(BY_KIND[kind]))
    gc.collect()
    parts = [(struct, name) for struct in structs_in(decoded) for name in struct.__struct_fields__]
    assert not [name for struct, name in parts if gc.is_tracked(getattr(struct, name))]


def test_unknown_fields_are_skipped_and_unknown_values_survive() -> None:
    pod = decode_object(as_json(pod_with(spec={"brandNew": {"deep": [1]}}, status={"phase": "Pondering"}, more=1)))
    assert isinstance(pod, Pod)
    assert pod.status.phase == "Pondering"
    group = decode_as(PodGroup, {"spec": {"preemptibility": "semi-preemptible"}})
    assert group.spec.preemptibility == "semi-preemptible"


def test_the_data_of_a_config_map_is_never_decoded() -> None:
    decoded = decode_object(b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"password":"x"}}')
    assert "password" not in repr(decoded)


def test_absence_stays_apart_from_zero_and_empty() -> None:
    absent, zero = decode_as(Queue, b'{"spec":{}}'), decode_as(Queue, b'{"spec":{"priority":0,"resources":{}}}')
    assert (absent.spec.priority, zero.spec.priority) == (None, 0)
    assert absent.spec.resources is None
    assert zero.spec.resources is not None
    assert zero.spec.resources.gpu.limit == 0.0
    terms: dict[str, list[Any]] = {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaceSelector": {}}, {}]}
    affinity = decode_as(Pod, {"spec": {"affinity": {"podAffinity": terms}}}).spec.affinity
    assert affinity is not None
    assert affinity.pod_affinity is not None
    all_namespaces, own_namespace = affinity.pod_affinity.required
    assert all_namespaces.namespace_selector is not None
    assert own_namespace.namespace_selector is None


def test_queue_numbers_may_be_ints() -> None:
    resources = decode_as(Queue, b'{"spec":{"resources":{"gpu":{"quota":2,"limit":-1}}}}').spec.resources
    assert resources is not None
    assert (resources.gpu.quota, resources.gpu.limit, resources.cpu.quota) == (2.0, -1.0, 0.0)
    assert type(resources.gpu.quota) is float


@pytest.mark.parametrize("kind", KINDS)
def test_null_reads_as_absent_in_every_field(kind: str) -> None:
    sample = BY_KIND[kind]
    for path in paths_in(sample):
        name = path[-1]
        # Opaque parameters keep their nulls; elements of lists and values of maps become zero, see below.
        if isinstance(name, int) or name in ("kind", "apiVersion") or "parameters" in path or "details" in path[:-1]:
            continue
        parent = path[:-1]
        if parent and parent[-1] in MAPS:
            continue
        nulled, removed = copy.deepcopy(sample), copy.deepcopy(sample)
        at(nulled, parent)[name] = None
        del at(removed, parent)[name]
        assert decode_object(as_json(nulled)) == decode_object(as_json(removed)), path
        assert decode_object(nulled) == decode_object(removed), path


MAPS = {
    "labels", "annotations", "requests", "limits", "allocatable", "capacity", "nodeSelector", "overhead", "matchLabels",
    "attributes", "amount", "counters",
}  # fmt: skip


def test_null_in_a_map_or_list_reads_as_zero() -> None:
    pod = decode_as(
        Pod,
        b"""{"metadata": {"labels": {"a": null, "b": "x"}, "annotations": null},
             "spec": {"containers": [null, {"name": "c", "resources": {"requests": {"cpu": null, "memory": "1Gi"}}}],
                      "nodeSelector": {"zone": null}, "tolerations": null, "affinity": null}}""",
    )
    assert pod.metadata.labels == {"a": "", "b": "x"}
    assert pod.metadata.annotations == {}
    assert [container.name for container in pod.spec.containers] == ["", "c"]
    assert pod.spec.containers[1].resources.requests == {"cpu": 0, "memory": "1Gi"}
    assert pod.spec.node_selector == {"zone": ""}
    assert pod.spec.tolerations == ()
    assert pod.spec.affinity is None


def test_null_in_a_list_of_texts_and_in_a_map_of_objects_reads_as_zero() -> None:
    request = decode_as(
        BindRequest, b'{"spec":{"selectedGPUGroups":["a",null],"predictedNUMAZones":[{"amount":null}]}}'
    )
    assert request.spec.selected_gpu_groups == ["a", ""]
    assert request.spec.predicted_numa_zones[0].amount == {}
    slice_ = decode_as(ResourceSlice, b'{"spec":{"devices":[{"attributes":{"model":null,"index":{"int":null}}}]}}')
    assert slice_.spec.devices[0].attributes == {"model": DeviceAttribute(), "index": DeviceAttribute()}


def test_null_keeps_a_default_that_is_not_zero() -> None:
    pod = decode_as(Pod, {"spec": {"containers": [{"ports": [{"hostPort": 80, "protocol": None}]}]}})
    assert pod.spec.containers[0].ports[0].protocol == "TCP"


def test_normalising_changes_nothing_in_a_valid_object() -> None:
    for sample in SAMPLES:
        wire_type = KINDS[sample["kind"]]
        assert msgspec.convert(replace_nulls(sample, wire_type), wire_type) == msgspec.convert(sample, wire_type)


@pytest.mark.parametrize(
    ("fields", "path", "problem"),
    [
        ({"spec": {"containers": [{}, {"name": 5}]}}, "spec.containers[1].name", "expected text, got 5"),
        ({"spec": {"containers": {}}}, "spec.containers", "expected a list, got an object"),
        ({"spec": []}, "spec", "expected an object, got a list"),
        ({"spec": {"priority": "high"}}, "spec.priority", "expected a whole number of 64 bits, got the text 'high'"),
        (
            {"spec": {"priority": 1 << 63}},
            "spec.priority",
            "expected a whole number of 64 bits, got 9223372036854775808",
        ),
        ({"spec": {"priority": True}}, "spec.priority", "expected a whole number of 64 bits, got true"),
        ({"spec": {"nodeSelector": {"zone": 1}}}, "spec.nodeSelector['zone']", "expected text, got 1"),
        ({"spec": {"nodeSelector": "zone"}}, "spec.nodeSelector", "expected a map, got the text 'zone'"),
        (
            {"spec": {"overhead": {"cpu": False}}},
            "spec.overhead['cpu']",
            "expected text or a whole number or a finite number, got false",
        ),
        (
            {"spec": {"containers": [None, {"env": [None, 7]}]}},
            "spec.containers[1].env[1]",
            "expected an object, got 7",
        ),
        (
            {"spec": {"volumes": [{"configMap": {"optional": "yes"}}]}},
            "spec.volumes[0].configMap.optional",
            "expected true or false, got the text 'yes'",
        ),
    ],
)
def test_a_bad_field_is_named_with_its_object(fields: dict[str, Any], path: str, problem: str) -> None:
    document = pod_with(**fields)
    for data in (document, as_json(document)):
        error = refusal(data)
        assert (error.subject, error.path, error.problem) == ("Pod team/p", path, problem)
        assert str(error) == f"Pod team/p: {path}: {problem}"
        assert not isinstance(error, UnknownKind)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "object without a readable name: not JSON: Input data was truncated"),
        (b"{", "object without a readable name: not JSON: Input data was truncated"),
        (b"[]", "object without a readable name: expected a JSON object"),
        (b"null", "object without a readable name: expected a JSON object"),
        (b'{"kind":5,"metadata":{"name":"x"}}', "object x: kind: expected text, got 5"),
        (b'{"kind":"Pod","apiVersion":[]}', "object without a readable name: apiVersion: expected text, got a list"),
        (b'{"kind":"Pod","apiVersion":"v1","metadata":3}', "Pod without a readable name: metadata: expected an object"),
        (
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":{},"namespace":"a"}}',
            "Pod a: metadata.name: expected text, got an object",
        ),
        (b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"\xff"}}', "not UTF-8"),
        (b'{"kind":"Pod","apiVersion":"v1","spec":' + 100_000 * b"[", "nested too deeply"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_an_object_is_refused(data: bytes, text: str) -> None:
    assert text in str(refusal(data))


def test_a_deep_object_is_refused_when_its_type_is_known() -> None:
    with pytest.raises(DecodeError, match="Pod without a readable name: nested too deeply"):
        decode_as(Pod, b'{"x":' + 100_000 * b"[")


def test_a_foreign_kind_is_unknown_even_when_unreadable() -> None:
    error = refusal(b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"\xff"}}')
    assert isinstance(error, UnknownKind)


def test_numbers_that_no_json_can_spell_are_refused_in_parsed_documents() -> None:
    for number in (float("nan"), float("inf"), 10**400):
        with pytest.raises(DecodeError) as refused:
            decode_as(Queue, {"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": number}}}})
        assert str(refused.value).startswith("Queue q: spec.resources.gpu.quota: expected a finite number, got ")


def test_keys_that_no_json_can_spell_are_refused_in_parsed_documents() -> None:
    error = refusal(pod_with(metadata={"name": "p", "labels": {1: "a"}}))
    assert str(error) == "Pod p: metadata.labels: expected text as key, got 1"


def test_a_deep_opaque_document_passes() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert decode_as(OpaqueConfiguration, {"parameters": deep}).parameters is deep


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("scheduling.k8s.io/v1alpha1", "PodGroup"),
        ("kueue.x-k8s.io/v1beta1", "Topology"),
        ("v1", "Secret"),
        ("v1", "Queue"),
        ("apps/v1", "Pod"),
        ("", "Queue"),
        ("v1", ""),
    ],
)
def test_a_foreign_kind_is_unknown_not_broken(api_version: str, kind: str) -> None:
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": 5}
    for data in (document, as_json(document)):
        error = refusal(data)
        assert isinstance(error, UnknownKind)
        assert "x: " in str(error)


def test_a_bad_object_never_hides_the_others() -> None:
    good = as_json(pod_with())
    bad = as_json(pod_with(spec=1))
    foreign = b'{"apiVersion":"v1","kind":"Secret"}'
    objects, problems = decode_each([good, bad, b"{", foreign, BY_KIND["Node"], good])
    assert [type(decoded) for decoded in objects] == [Pod, Node, Pod]
    assert [isinstance(problem, UnknownKind) for problem in problems] == [False, False, True]
    assert str(problems[0]) == "Pod team/p: spec: expected an object, got 1"


def test_items_of_a_list_need_no_kind() -> None:
    items = msgspec.json.decode(b'[{"metadata":{"name":"a"}},{"spec":1},{"metadata":null}]', type=list[msgspec.Raw])
    pods, problems = decode_list(Pod, items)
    assert [pod.metadata.name for pod in pods] == ["a", ""]
    assert [str(problem) for problem in problems] == ["Pod without a readable name: spec: expected an object, got 1"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_a_damaged_object_decodes_or_is_refused(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    for path in data.draw(st.lists(st.sampled_from(sorted(paths_in(document), key=repr)), min_size=1, max_size=3)):
        try:
            at(document, path[:-1])[path[-1]] = data.draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier damage took the place away
    outcomes = []
    for form in (document, msgspec.json.encode(document)):
        try:
            outcomes.append(repr(decode_object(form)))
        except DecodeError as error:
            outcomes.append(type(error).__name__)
    # NaN and infinity become null in JSON, so only the others must agree.
    if "nan" not in repr(document) and "inf" not in repr(document):
        assert outcomes[0] == outcomes[1]


@given(st.binary() | st.text().map(str.encode) | JSON.map(msgspec.json.encode))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    objects, problems = decode_each([data])
    assert len(objects) + len(problems) == 1
    with pytest.raises(DecodeError):
        decode_object(data)
