"""The index of storage objects: what claims amount to, and which requests a change touches."""

from __future__ import annotations

from typing import Any

from pykai.api.core import Pod
from pykai.api.decode import decode_object
from pykai.core.cluster.storage import StorageIndex, StorageObject
from pykai.core.cluster.tables import Tables
from pykai.core.model.volumerequests import VolumeRequest
from tests.core.builders import Cluster, cluster

KEY = "default/p"


def world() -> Cluster:
    return cluster(nodes=1).storage_class().pod("p", claims=("data",)).pod("other", claims=("elsewhere",))


def built(made: Cluster) -> StorageIndex:
    storage = StorageIndex()
    for raw in made.objects:
        apply(storage, raw)
    return storage


def apply(storage: StorageIndex, raw: dict[str, Any]) -> set[str]:
    item = decode_object(raw)
    if isinstance(item, Pod):
        return storage.update_pod(f"{item.metadata.namespace}/{item.metadata.name}", item)
    assert isinstance(item, StorageObject) or raw["kind"] == "Node"
    return storage.apply(item) if isinstance(item, StorageObject) else set()


def last(made: Cluster) -> dict[str, Any]:
    return made.objects[-1]


def asks(made: Cluster, key: str = KEY) -> tuple[VolumeRequest, ...]:
    return made.tables().snapshot(0).task_records[key].shape.volumes


def test_a_claim_touches_the_pods_that_use_it() -> None:
    storage = built(world())
    assert apply(storage, last(world().claim("data"))) == {KEY}
    assert storage.remove("PersistentVolumeClaim", "default", "data") == {KEY}
    assert apply(storage, last(world().claim("unused"))) == set()


def test_a_volume_touches_the_pods_of_the_claim_that_is_bound_to_it() -> None:
    storage = built(world().claim("data", bound_to="pv"))
    assert apply(storage, last(world().volume("pv"))) == {KEY}
    assert storage.remove("PersistentVolume", "", "pv") == {KEY}
    assert apply(storage, last(world().volume("free"))) == set()


def test_a_volume_reserved_for_a_claim_touches_its_pods_also_when_released() -> None:
    storage = built(world().claim("data"))
    assert apply(storage, last(world().volume("kept", claim="data"))) == {KEY}
    assert apply(storage, last(world().volume("kept"))) == {KEY}


def test_a_class_touches_the_pods_of_its_claims() -> None:
    storage = built(world().claim("data").claim("elsewhere", of="slow"))
    assert apply(storage, last(world().storage_class(waits=False))) == {KEY}
    assert storage.remove("StorageClass", "", "fast") == {KEY}


def test_drivers_nodes_and_capacities_touch_no_pod() -> None:
    storage = built(world().claim("data"))
    for made in (world().csi_driver("d"), world().csi_node("node-0", d=3), world().storage_capacity("c")):
        assert apply(storage, last(made)) == set()


def test_removed_objects_leave_nothing_behind() -> None:
    made = world().claim("data", selected_node="node-0").volume("pv", claim="data").volume("free").csi_driver("d")
    made.csi_node("node-0", d=1).storage_capacity("c").claim("elsewhere", bound_to="pv")
    storage = built(made)
    for raw in made.objects:
        meta = raw["metadata"]
        if raw["kind"] == "Pod":
            storage.update_pod(f"{meta['namespace']}/{meta['name']}", None)
        else:
            storage.remove(raw["kind"], meta.get("namespace", ""), meta["name"])
    assert vars(storage) == vars(StorageIndex())


def test_a_claim_is_shared_while_it_has_a_second_user() -> None:
    made = world().claim("data").volume("pv")
    tables = made.tables()

    def shared() -> str:
        (ask,) = tables.snapshot(0).task_records[KEY].shape.volumes
        return ask.shared_key

    assert shared() == ""
    tables.apply(decode_object(last(made.pod("second", claims=("data",)))))
    assert shared() == "default/data"
    tables.remove("Pod", "default", "second")
    assert shared() == ""


def test_a_pod_that_switches_claims_releases_the_first() -> None:
    storage = built(world().claim("data").pod("second", claims=("data",)))
    assert apply(storage, last(world().pod("second", claims=("elsewhere",)))) == {KEY, "default/other"}


def test_a_claim_mounted_twice_is_one_request() -> None:
    made = cluster().storage_class().claim("data")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": "data"}} for name in "ab"]
    assert len(asks(made.pod("p", spec={"volumes": volumes}))) == 1


def test_the_order_of_claims_means_nothing() -> None:
    made = cluster().storage_class().claim("a").claim("b", size="9Gi").claim("c").claim("d", size="9Gi")
    tasks = made.pod("p", claims=("a", "b")).pod("q", claims=("d", "c")).tables().snapshot(0).task_records
    assert tasks["default/p"].shape is tasks["default/q"].shape


def test_a_bound_claim_is_identified_by_its_volume_alone() -> None:
    made = world().volume("pv", on="node-0", driver="d", claim="data").claim("data", bound_to="pv", size="7Gi")
    (ask,) = asks(made)
    assert (ask.bound, ask.driver, ask.size, ask.storage_class) == (True, "d", 0, "")
    assert ask.accessible_from is not None


def test_a_pending_claim_names_the_driver_that_would_attach_it() -> None:
    made = cluster().storage_class(provisioner="d").claim("data").pod("p", claims=("data",))
    assert [ask.driver for ask in asks(made)] == ["d"]
    assert [ask.driver for ask in asks(world().claim("data"))] == [""]


def test_a_driver_that_stops_publishing_its_capacity_is_dropped() -> None:
    storage = built(world().csi_driver("d"))
    assert storage.capacity_drivers == {"d"}
    apply(storage, last(world().csi_driver("d", tells_capacity=False)))
    assert storage.capacity_drivers == set()


def test_a_capacity_that_moves_to_another_class_leaves_the_first() -> None:
    storage = built(world().storage_capacity("c"))
    apply(storage, last(world().storage_capacity("c", of="slow")))
    assert list(storage.pools) == ["slow"]


def test_tables_read_only_pods_whose_requests_changed() -> None:
    made = world().claim("data").volume("pv")
    tables = made.tables()
    before = tables.snapshot(0).task_records[KEY]
    tables.apply(decode_object(last(made.claim("data", annotations={"note": "1"}))))
    assert tables.snapshot(0).task_records[KEY] is before
    tables.apply(decode_object(last(made.claim("data", size="8Gi"))))
    assert tables.snapshot(0).task_records[KEY] is not before


def test_a_missing_storage_object_can_be_removed() -> None:
    tables = Tables()
    for kind in ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSINode"):
        tables.remove(kind, "default", "x")
    tables.remove("CSIStorageCapacity", "default", "x")
    assert vars(tables.storage) == vars(StorageIndex())
