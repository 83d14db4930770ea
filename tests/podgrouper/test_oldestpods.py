"""The oldest pod of a group, while pods come and go."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from pykai.api.core import Pod
from pykai.kube import resources
from pykai.kube.reflector import WatchEvent
from pykai.kube.store import Store
from pykai.podgrouper.oldestpods import OldestPods
from tests.podgrouper.groupings import owner, pod

RAY = owner("RayCluster", "ray", "r", api="ray.io/v1")


class Pods:
    """Pods of one group, as a watch delivers them."""

    def __init__(self) -> None:
        self.store: Store[Pod] = Store(resources.PODS, Pod)
        self.eldest = OldestPods(self.store)
        self.store.subscribe(self.eldest.observe)
        self._version = 0

    def _happens(self, type_: str, name: str, born: int) -> None:
        self._version += 1
        found = pod(name, name, by=RAY, annotations={"pod-group-name": "ray"})
        meta = replace(
            found.metadata,
            creation_timestamp=f"2026-01-01T00:{born // 60:02}:{born % 60:02}Z",
            resource_version=str(self._version),
        )
        said = msgspec.json.encode(replace(found, metadata=meta))
        self.store.apply_event(WatchEvent(type_, msgspec.Raw(said)))

    def come(self, name: str, born: int) -> None:
        self._happens("ADDED", name, born)

    def go(self, name: str, born: int) -> None:
        self._happens("DELETED", name, born)

    def oldest(self) -> str:
        found = self.eldest.oldest_in("ns/ray")
        return found.metadata.name if found is not None else ""


def test_a_deleted_pod_is_followed_by_the_next_oldest() -> None:
    pods = Pods()
    for born, name in enumerate(("a", "b", "c")):
        pods.come(name, born)
    pods.go("a", 0)
    assert pods.oldest() == "b"
    pods.go("c", 2)
    pods.go("b", 1)
    assert (pods.oldest(), len(pods.eldest)) == ("", 0)


def test_younger_pods_that_come_and_go_are_not_kept() -> None:
    pods = Pods()
    pods.come("head", 0)
    for born in range(1, 1000):
        pods.come(f"worker-{born}", born)
        assert pods.oldest() == "head"
        pods.go(f"worker-{born}", born)
    assert len(pods.eldest) < 100


def test_many_pods_are_kept_and_become_the_oldest_one_by_one() -> None:
    pods = Pods()
    for born in range(300):
        pods.come(f"worker-{born}", born)
    assert len(pods.eldest) == 300
    for born in range(300):
        assert pods.oldest() == f"worker-{born}"
        pods.go(f"worker-{born}", born)
    assert pods.oldest() == ""
