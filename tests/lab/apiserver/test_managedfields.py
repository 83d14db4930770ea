"""Server-side apply and field ownership."""

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pykai.lab.apiserver.managedfields import ApplyConflicts, apply, track_update
from pykai.lab.apiserver.patches import PatchError
from pykai.lab.apiserver.schema.fieldsets import (
    add_fields,
    created_fields,
    decode_fields,
    difference,
    encode_fields,
    subtract_fields,
)
from pykai.lab.apiserver.schema.model import SchemaNode
from pykai.lab.apiserver.schema.table import builtin_schema, crd_schema

Object = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def deployment(**spec: Any) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def template(*containers: Object) -> Object:
    return {"spec": {"containers": list(containers)}}


class Cluster:
    """One object and its writers; each write happens a second after the last."""

    def __init__(self, schema: SchemaNode | None, api_version: str) -> None:
        self.schema = schema
        self.api_version = api_version
        self.live: Object | None = None
        self.second = 0

    def _now(self) -> str:
        self.second += 1
        return f"2026-01-01T00:00:{self.second:02}Z"

    def applies(self, manager: str, config: Object, *, force: bool = False, subresource: str = "") -> "Cluster":
        given, live = copy.deepcopy(config), copy.deepcopy(self.live)
        new = apply(self.schema, self.live, config, manager, force, self._now(), self.api_version, subresource)
        assert config == given
        assert self.live == live
        self.live = new
        return self

    def updates(self, manager: str, *, subresource: str = "", **changes: Any) -> "Cluster":
        assert self.live is not None
        new = {**self.live, **changes}
        self.live = track_update(self.schema, self.live, new, manager, self._now(), self.api_version, subresource)
        return self

    def creates(self, manager: str, obj: Object) -> "Cluster":
        self.live = track_update(self.schema, None, obj, manager, self._now(), self.api_version, "")
        return self

    @property
    def spec(self) -> Any:
        assert self.live is not None
        return self.live["spec"]

    def record(self) -> dict[tuple[str, str], Object]:
        assert self.live is not None
        entries = self.live["metadata"].get("managedFields", [])
        return {(entry["manager"], entry["operation"]): entry for entry in entries}

    def fields(self, manager: str, operation: str = "Apply") -> Any:
        entry = self.record().get((manager, operation))
        return None if entry is None else entry["fieldsV1"]


@pytest.fixture
def web() -> Cluster:
    return Cluster(builtin_schema("apps", "v1", "Deployment"), "apps/v1")


def test_an_apply_creates_and_owns_what_it_names(web: Cluster) -> None:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}], "command": ["x"]}
    labelled = {**deployment(replicas=2, selector={"matchLabels": {"a": "b"}}, template=template(container))}
    labelled["metadata"] = {"name": "web", "labels": {"a": "b"}, "finalizers": ["f"]}
    web.applies("me", labelled)
    assert web.record()["me", "Apply"] == {
        "manager": "me",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:01Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:finalizers": {'v:"f"': {}}, "f:labels": {"f:a": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:template": {
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"c"}': {
                                ".": {},
                                "f:command": {},
                                "f:image": {},
                                "f:name": {},
                                "f:ports": {
                                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                                },
                            }
                        }
                    }
                },
            },
        },
    }


def test_a_create_owns_what_it_brings_as_a_real_server_notes_it(web: Cluster) -> None:
    created = deployment(strategy={"rollingUpdate": {"maxSurge": 1}}, template=template({"name": "c", "resources": {}}))
    created["metadata"]["labels"] = {"a": "b"}
    web.creates("kubectl-create", created)
    assert web.fields("kubectl-create", "Update") == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:resources": {}}}}},
        },
    }


def test_applying_the_same_again_changes_nothing(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2))
    before = web.live
    web.applies("me", deployment(replicas=2))
    assert web.live is before


def test_a_conflict_names_the_field_and_its_owner(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2)).updates("hpa", spec={"replicas": 5})
    with pytest.raises(ApplyConflicts) as refused:
        web.applies("me", deployment(replicas=2))
    assert str(refused.value) == 'Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas'
    assert refused.value.causes == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "hpa" using apps/v1',
            "field": ".spec.replicas",
        }
    ]


def test_several_conflicts(web: Cluster) -> None:
    web.applies("a", deployment(replicas=2, template=template({"name": "c", "image": "1"})))
    web.applies("b", deployment(paused=True))
    with pytest.raises(ApplyConflicts) as refused:
        web.applies("me", deployment(replicas=1, paused=False, template=template({"name": "c", "image": "2"})))
    assert str(refused.value) == (
        "Apply failed with 3 conflicts: "
        'conflicts with "a":\n- .spec.replicas\n- .spec.template.spec.containers[name="c"].image\n'
        'conflicts with "b":\n- .spec.paused'
    )


def test_force_takes_the_field(web: Cluster) -> None:
    web.applies("a", deployment(replicas=2, paused=True)).applies("b", deployment(replicas=3), force=True)
    assert web.spec == {"replicas": 3, "paused": True}
    assert web.fields("a") == {"f:spec": {"f:paused": {}}}
    assert web.fields("b") == {"f:spec": {"f:replicas": {}}}


def test_a_manager_without_fields_is_gone_from_the_record(web: Cluster) -> None:
    web.applies("a", deployment(replicas=2)).applies("b", deployment(replicas=3), force=True)
    assert list(web.record()) == [("b", "Apply")]


def test_the_same_value_is_shared_without_a_conflict(web: Cluster) -> None:
    web.applies("a", deployment(replicas=2)).applies("b", deployment(replicas=2))
    assert web.fields("a") == web.fields("b") == {"f:spec": {"f:replicas": {}}}


def test_a_field_no_longer_named_goes(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2, paused=True)).applies("me", deployment(replicas=2))
    assert web.spec == {"replicas": 2}


def test_a_field_no_longer_named_stays_where_another_owns_it(web: Cluster) -> None:
    web.applies("a", deployment(replicas=2, paused=True)).applies("b", deployment(paused=True))
    web.applies("a", deployment(replicas=2))
    assert web.spec == {"replicas": 2, "paused": True}
    web.applies("b", deployment())
    assert web.spec == {"replicas": 2}


def test_fields_without_an_applier_stay(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2))
    assert web.live is not None
    web.live = {**web.live, "spec": {**web.spec, "revisionHistoryLimit": 10}}
    web.applies("me", deployment(paused=True))
    assert web.spec == {"revisionHistoryLimit": 10, "paused": True}


def test_a_struct_goes_with_the_last_field_named_in_it(web: Cluster) -> None:
    web.applies("me", deployment(replicas=1, strategy={"type": "RollingUpdate"}))
    assert web.live is not None
    defaulted = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}
    web.live = {**web.live, "spec": {**web.spec, "strategy": defaulted}}
    web.applies("me", deployment(replicas=1))
    assert web.spec == {"replicas": 1}


def test_keyed_lists_merge_by_key(web: Cluster) -> None:
    web.applies("a", deployment(template=template({"name": "x", "image": "1"})))
    web.applies("b", deployment(template=template({"name": "y", "image": "1"})))
    assert [one["name"] for one in web.spec["template"]["spec"]["containers"]] == ["x", "y"]
    web.applies("a", deployment(template=template({"name": "z", "image": "1"})))
    assert [one["name"] for one in web.spec["template"]["spec"]["containers"]] == ["y", "z"]


def test_the_configuration_orders_its_elements(web: Cluster) -> None:
    one, two, three = ({"name": name, "image": "1"} for name in ("1", "2", "3"))
    web.applies("b", deployment(template=template(three)))
    web.applies("a", deployment(template=template(one, two)))
    web.applies("a", deployment(template=template(two, one)))
    assert [container["name"] for container in web.spec["template"]["spec"]["containers"]] == ["3", "2", "1"]


def test_an_element_goes_with_all_that_was_filled_in(web: Cluster) -> None:
    web.applies("me", deployment(template=template({"name": "x", "image": "1"}, {"name": "y", "image": "1"})))
    assert web.live is not None
    filled = [{**container, "imagePullPolicy": "Always"} for container in web.spec["template"]["spec"]["containers"]]
    web.live = {**web.live, "spec": {"template": template(*filled)}}
    web.applies("me", deployment(template=template({"name": "y", "image": "1"})))
    assert web.spec["template"]["spec"]["containers"] == [{"name": "y", "image": "1", "imagePullPolicy": "Always"}]


def test_atomic_lists_and_structs_are_one_field(web: Cluster) -> None:
    toleration = {"key": "a", "operator": "Exists"}
    web.applies("a", deployment(selector={"matchLabels": {"a": "1"}}, template={"spec": {"tolerations": [toleration]}}))
    other = deployment(selector={"matchLabels": {"b": "1"}}, template={"spec": {"tolerations": []}})
    with pytest.raises(ApplyConflicts) as refused:
        web.applies("b", other)
    assert [cause["field"] for cause in refused.value.causes] == [".spec.selector", ".spec.template.spec.tolerations"]
    web.applies("b", other, force=True)
    assert web.spec == {"selector": {"matchLabels": {"b": "1"}}, "template": {"spec": {"tolerations": []}}}


def test_sets_merge(web: Cluster) -> None:
    def finalized(*names: str) -> Object:
        return {**deployment(), "metadata": {"name": "web", "finalizers": list(names)}}

    web.applies("a", finalized("x", "y")).applies("b", finalized("y", "z")).applies("a", finalized("x"))
    assert web.live is not None
    assert web.live["metadata"]["finalizers"] == ["x", "y", "z"]
    web.applies("b", finalized("z"))
    assert web.live["metadata"]["finalizers"] == ["x", "z"]


def test_labels_are_fields_of_their_own(web: Cluster) -> None:
    def labelled(**labels: str) -> Object:
        return {**deployment(), "metadata": {"name": "web", "labels": labels}}

    web.applies("a", labelled(x="1", y="1")).applies("b", labelled(z="1")).applies("a", labelled(x="2"))
    assert web.live is not None
    assert web.live["metadata"]["labels"] == {"x": "2", "z": "1"}


def test_a_null_in_the_configuration_removes(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2, paused=True)).applies("me", deployment(replicas=None, paused=True))
    assert web.spec == {"paused": True}


def test_an_update_takes_what_it_changes(web: Cluster) -> None:
    web.applies("me", deployment(replicas=2, paused=True)).updates("you", spec={"replicas": 2, "paused": False})
    assert web.fields("me") == {"f:spec": {"f:replicas": {}}}
    assert web.fields("you", "Update") == {"f:spec": {"f:paused": {}}}
    web.updates("you", spec={"replicas": 2})
    assert web.fields("you", "Update") is None


def test_an_update_that_changes_nothing_leaves_the_record(web: Cluster) -> None:
    web.creates("me", deployment(replicas=2))
    before = copy.deepcopy(web.live)
    web.updates("you", spec={"replicas": 2})
    assert web.live == before


def test_updates_of_one_manager_add_up(web: Cluster) -> None:
    web.creates("me", deployment(replicas=2)).updates("me", spec={"replicas": 2, "paused": True})
    assert web.fields("me", "Update") == {"f:spec": {"f:paused": {}, "f:replicas": {}}}


def test_a_subresource_has_an_entry_of_its_own(web: Cluster) -> None:
    web.creates("me", deployment(replicas=2)).updates("me", subresource="status", status={"replicas": 1})
    assert web.live is not None
    entries = web.live["metadata"]["managedFields"]
    assert [(entry.get("subresource"), list(entry["fieldsV1"])) for entry in entries] == [
        (None, ["f:spec"]),
        ("status", ["f:status"]),
    ]
    with pytest.raises(ApplyConflicts, match=r'"me" with subresource "status" using apps/v1: \.status\.replicas'):
        web.applies("you", {**deployment(), "status": {"replicas": 2}})


def test_an_untracked_object_is_owned_by_before_first_apply(web: Cluster) -> None:
    web.live = deployment(replicas=2, paused=True)
    with pytest.raises(ApplyConflicts, match=r'"before-first-apply" using apps/v1: \.spec\.replicas'):
        web.applies("me", deployment(replicas=3))
    web.applies("me", deployment(replicas=2))
    assert web.fields("before-first-apply", "Update") == {"f:spec": {"f:paused": {}, "f:replicas": {}}}


def test_an_untracked_object_stays_untracked_by_updates(web: Cluster) -> None:
    web.live = deployment(replicas=2)
    web.updates("me", spec={"replicas": 3})
    assert web.record() == {}


@pytest.mark.parametrize("wiped", [[], [{}]])
def test_an_update_may_wipe_the_record(web: Cluster, wiped: list[Object]) -> None:
    web.creates("me", deployment(replicas=2))
    web.updates("me", metadata={"name": "web", "managedFields": wiped})
    assert web.record() == {}


def test_an_update_without_a_record_keeps_the_old_one(web: Cluster) -> None:
    web.creates("me", deployment(replicas=2)).updates("you", metadata={"name": "web"}, spec={"replicas": 2})
    assert web.fields("me", "Update") == {"f:spec": {"f:replicas": {}}}


def test_many_updaters_are_put_together(web: Cluster) -> None:
    web.creates("m0", deployment(replicas=1))
    for number in range(1, 15):
        assert web.live is not None
        labels = {**(web.live["metadata"].get("labels") or {}), f"l{number}": "x"}
        web.updates(f"m{number}", metadata={**web.live["metadata"], "labels": labels})
    managers = {manager for manager, _ in web.record()}
    assert len(managers) == 10
    assert "ancient-changes" in managers
    owned = set().union(*(decode_fields(entry["fieldsV1"]) for entry in web.record().values()))
    assert len([path for path in owned if len(path) == 3]) == 14


def test_identifying_fields_have_no_owner(web: Cluster) -> None:
    config = {**deployment(), "metadata": {"name": "web", "namespace": "default", "uid": "u"}}
    web.applies("me", config)
    assert web.fields("me") == {"f:spec": {}}


def test_a_configuration_carries_no_record(web: Cluster) -> None:
    config = {**deployment(), "metadata": {"name": "web", "managedFields": [{"manager": "x"}]}}
    with pytest.raises(PatchError, match="managedFields must be nil"):
        web.applies("me", config)


def test_an_element_named_twice_is_refused(web: Cluster) -> None:
    web.applies("me", deployment(template=template({"name": "x"})))
    with pytest.raises(PatchError, match="twice"):
        web.applies("me", deployment(template=template({"name": "x"}, {"name": "x"})))


def test_kubectl_does_not_conflict_with_what_it_applied_from_the_client(web: Cluster) -> None:
    applied = deployment(replicas=2, paused=True)
    created = copy.deepcopy(applied)
    created["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(applied)}
    web.creates("kubectl-client-side-apply", created)
    web.applies("kubectl", deployment(replicas=3, paused=True))
    assert web.spec["replicas"] == 3
    assert web.live is not None
    noted = json.loads(web.live["metadata"]["annotations"][LAST_APPLIED])
    assert noted["spec"]["replicas"] == 3
    web.updates("hpa", spec={"replicas": 9, "paused": True})
    with pytest.raises(ApplyConflicts, match='"hpa"'):
        web.applies("kubectl", deployment(replicas=3, paused=True))


def test_custom_kinds_without_list_types() -> None:
    custom = Cluster(
        crd_schema(
            {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "rows": {"type": "array", "items": {"type": "object", "properties": {}}},
                            "by": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    }
                },
            }
        ),
        "example.com/v1",
    )
    custom.applies("a", {"metadata": {"name": "x"}, "spec": {"rows": [{"id": 1}], "by": {"a": "1"}}})
    custom.applies("b", {"metadata": {"name": "x"}, "spec": {"by": {"b": "1"}}})
    assert custom.spec["by"] == {"a": "1", "b": "1"}
    with pytest.raises(ApplyConflicts, match=r"\.spec\.rows"):
        custom.applies("b", {"metadata": {"name": "x"}, "spec": {"rows": [{"id": 2}], "by": {"b": "1"}}})


def test_unknown_fields_that_are_kept_are_granular() -> None:
    custom = Cluster(crd_schema(None), "example.com/v1")
    custom.applies("a", {"metadata": {"name": "x"}, "spec": {"deep": {"a": 1}, "list": [1]}})
    custom.applies("b", {"metadata": {"name": "x"}, "spec": {"deep": {"b": 1}}})
    assert custom.spec == {"deep": {"a": 1, "b": 1}, "list": [1]}
    custom.applies("a", {"metadata": {"name": "x"}, "spec": {"deep": {}}})
    assert custom.spec["deep"] == {"b": 1}


def test_sets_of_fields_survive_being_written() -> None:
    paths = {("f:a",), ("f:a", "f:b"), ("f:c", 'k:{"x":1}'), ("f:c", 'k:{"x":1}', "f:x"), ("f:d", 'v:"s"')}
    assert decode_fields(encode_fields(paths)) == paths
    assert encode_fields(paths)["f:a"] == {".": {}, "f:b": {}}


#: A machine that is busy with other things is no reason to fail.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

field_sets = st.sets(
    st.lists(st.sampled_from(["f:a", "f:b", 'k:{"n":1}']), min_size=1, max_size=3).map(tuple), max_size=6
)


@patient
@given(left=field_sets, right=field_sets)
def test_fields_are_taken_and_lost_in_written_form_as_in_sets(left: set[Any], right: set[Any]) -> None:
    written = encode_fields(left)
    assert decode_fields(add_fields(written, encode_fields(right))) == left | right
    assert decode_fields(subtract_fields(written, encode_fields(right))) == left - right
    assert add_fields(written, encode_fields(left & right)) is written
    assert subtract_fields(written, encode_fields(right - left)) is written
    assert written == encode_fields(left)


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@patient
@given(obj=st.dictionaries(st.sampled_from(["spec", "status", "x"]), values, max_size=3))
def test_what_a_new_object_brings_is_what_an_empty_one_lacks(obj: Object) -> None:
    schema = crd_schema(None)
    assert created_fields(schema, obj) == encode_fields(difference(schema, {}, obj).added)


def test_what_a_new_deployment_brings() -> None:
    schema = builtin_schema("apps", "v1", "Deployment")
    container = {"name": "c", "env": [{"name": "A"}], "ports": [], "resources": {}, "command": ["x"]}
    obj = deployment(strategy={}, selector={}, template=template(container, {"name": "d"}))
    for brought in (obj, deployment(), deployment(template={"metadata": {}, "spec": {"containers": []}})):
        changes = difference(schema, {}, brought)
        assert created_fields(schema, brought) == encode_fields(changes.added | changes.modified)
