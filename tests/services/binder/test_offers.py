"""Which volumes a claim is shown on a node: all that it may get, and not those of every other node."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pykai.api.core import Node
from pykai.api.decode import decode_as
from pykai.api.storage import PersistentVolume, PersistentVolumeClaim
from pykai.binder.volumes import CANDIDATE_INDEX, _candidate_index_keys, candidate_volumes, is_reachable_from
from pykai.core.model.volumerequests import nodes_of_selector
from pykai.kube.resources import PERSISTENT_VOLUMES
from pykai.kube.store import Store

HOST = "kubernetes.io/hostname"
CLAIM = decode_as(PersistentVolumeClaim, {"metadata": {"name": "claim", "namespace": "ns", "uid": "u"}})


def node(**labels: str) -> Node:
    return decode_as(
        Node, {"metadata": {"name": "n", "labels": {key.replace("host", HOST): labels[key] for key in labels}}}
    )


def expression(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def volume(name: str, *terms: list[dict[str, Any]], storage_class: str = "fast", **spec: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affinity = {"nodeAffinity": {"required": required}} if terms else {}
    return {"metadata": {"name": name}, "spec": {"storageClassName": storage_class, **affinity, **spec}}


def shown(volumes: list[dict[str, Any]], to: Node) -> list[str]:
    store = Store(PERSISTENT_VOLUMES, PersistentVolume)
    store.index(CANDIDATE_INDEX, _candidate_index_keys)
    store.begin_list()
    store.add_listed([msgspec.Raw(msgspec.json.encode(each)) for each in volumes])
    store.end_list("1")
    return sorted({each.metadata.name for each in candidate_volumes(store, CLAIM, "fast", to)})


def test_local_volumes_of_other_nodes_are_not_shown() -> None:
    local = [volume(f"v{number}", [expression(HOST, f"h{number}")]) for number in range(100)]
    assert shown(local, node(host="h7")) == ["v7"]


def test_volumes_of_others_and_of_other_classes_are_not_shown() -> None:
    volumes = [
        volume("free"),
        volume("other-class", storage_class="slow"),
        volume("taken", claimRef={"namespace": "ns", "name": "another", "uid": "x"}),
        volume("kept", [expression(HOST, "elsewhere")], claimRef={"namespace": "ns", "name": "claim"}),
        volume("named", storage_class="slow"),
    ]
    volumes[-1]["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "fast"}
    assert shown(volumes, node(host="h")) == ["free", "kept", "named"]


def test_any_label_may_locate_a_volume() -> None:
    volumes = [
        volume("driver", [expression("topology.example.com/node", "a", "b")]),
        volume("zone", [expression("zone", "z1")]),
        volume("either", [expression(HOST, "h")], [expression("zone", "z2")]),
        volume("or", [expression(HOST, "another")], [expression("zone", "z1")]),
        volume("not-here", [expression(HOST, "h", operator="NotIn")]),
    ]
    here = node(host="h", zone="z1")
    assert shown(volumes, here) == ["either", "not-here", "or", "zone"]


EXPRESSIONS = st.builds(
    lambda key, operator, values: expression(key, *values, operator=operator),
    st.sampled_from([HOST, "zone"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
)


@given(
    st.lists(st.lists(EXPRESSIONS, max_size=2), max_size=3),
    st.dictionaries(st.sampled_from(["host", "zone"]), st.sampled_from(["a", "b"])),
)
def test_every_volume_that_the_node_reaches_is_shown(terms: list[list[dict[str, Any]]], labels: dict[str, str]) -> None:
    document = volume("v", *terms)
    spec = decode_as(PersistentVolume, document).spec
    place = nodes_of_selector(spec.node_affinity.required if spec.node_affinity is not None else None)
    here = node(**labels)
    if is_reachable_from(place, here):
        assert shown([document], here) == ["v"]
