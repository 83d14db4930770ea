"""A cluster with a healthy installation, in which a test breaks one thing.

The objects are those that the operator wants and `kai manifests` prints, so a check that misjudges them fails here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.installation import SchedulingShard
from pykai.api.timestamp import format_timestamp
from pykai.doctor.facts import Facts, Source, Unread
from pykai.doctor.findings import Finding
from pykai.doctor.table import examine, sources
from pykai.kube.certificates import CertificateAuthority, CertificatePair
from pykai.kube.resources import Resource
from pykai.operator.applying.conditions import Progress, conditions
from pykai.operator.desired.state import registration
from pykai.operator.install import installation
from pykai.operator.installing.release import Release, release_objects
from pykai.operator.webhooks import admission_objects
from pykai.services.rights import DEFAULT_PLACES, Places
from pykai.webhooks.table import service_hosts
from tests.operator.installations import IMAGES, shard, states

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
NAMESPACE = names.DEFAULT_NAMESPACE
Document = dict[str, Any]
Labels = Mapping[str, str]
NO_LABELS: Labels = {}


@cache
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("doctor", timedelta(days=90), NOW - timedelta(days=1))


def issued(*hosts: str, days: float = 90, by: CertificateAuthority | None = None) -> CertificatePair:
    lifetime, begin = timedelta(days=days + 1), NOW - timedelta(days=1)
    return (by or authority()).issue(hosts or service_hosts(NAMESPACE), lifetime=lifetime, now=begin)


@cache
def _served_in(namespace: str) -> CertificatePair:
    return issued(*service_hosts(namespace))


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def operator(namespace: str) -> Document:
    """The Deployment of the operator, as the chart has it."""
    found = release_objects(Release({"global": {"registry": IMAGES.repository, "tag": IMAGES.tag}}, namespace))
    (made,) = (each for each in found if each["kind"] == "Deployment")
    return {**made, "status": {"availableReplicas": 1}}


class InstalledCluster:
    """Objects by kind and name; `facts` decodes them as the doctor does."""

    def __init__(self, places: Places = DEFAULT_PLACES) -> None:
        self._namespace = places.services
        self.ahead: timedelta | None = timedelta()
        self.unread: dict[Resource, Unread] = {}
        self.unserved: set[Resource] = set()
        self._objects: dict[tuple[str, str, str], Document] = {}
        self.add(*installation(places=places))
        self.add({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        config = {
            "namespace": places.services,
            "binder": {"resourceReservation": {"namespace": places.reservations}},
            "nodeScaleAdjuster": {"args": {"nodeScaleNamespace": places.scaling}},
        }
        self.configure({} if places == DEFAULT_PLACES else config)
        self.add(self.owner("SchedulingShard", "default", {}), operator(places.services))
        self.add(self.node("n1"), {"kind": "RuntimeClass", "metadata": {"name": "nvidia"}})
        for name in (names.SCHEDULER_NAME, names.BINDER_LEASE):
            self.add(self.lease(name))

    def configure(self, spec: Document, *shards: SchedulingShard) -> None:
        """Have a Config, and all that the operator makes for it and its shards."""
        self.add(self.owner("Config", "kai-config", spec))
        for state in states(spec, *shards):
            self.add(*(each for operand in state.operands.values() for each in operand))
        for each in self.of_kind("Deployment"):
            each["status"] = {"availableReplicas": 1}
        for each in self.of_kind("DaemonSet"):
            each["status"] = {"desiredNumberScheduled": 1, "numberAvailable": 1}
        self._serve_webhooks()

    def owner(self, kind: str, name: str, spec: Document) -> Document:
        """A Config or a shard with which the operator has no trouble."""
        status = {"conditions": conditions(Progress(left_out=(), unconnected=""), generation=1)}
        return {"kind": kind, "metadata": {"name": name}, "spec": spec, "status": status}

    def add_shard(self, name: str, pool: str) -> None:
        """A shard with its scheduler."""
        spec = {"partitionLabelValue": pool}
        self.add(self.owner("SchedulingShard", name, spec))
        self.configure({}, shard(), shard(spec, name))

    def pod(self, name: str, *, is_ready: bool) -> Document:
        """A pod of the installation."""
        ready = {"type": "Ready", "status": str(is_ready)}
        return {"kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "status": {"conditions": [ready]}}

    def _serve_webhooks(self) -> None:
        self.add(*admission_objects(registration(self.facts().settings)))
        for each in (*self.of_kind("MutatingWebhookConfiguration"), *self.of_kind("ValidatingWebhookConfiguration")):
            for webhook in each["webhooks"]:
                webhook["clientConfig"]["caBundle"] = encoded(authority().pem)
        self.serve(_served_in(self._namespace))
        self.add(self.endpoints("admission"))

    def add(self, *documents: Document) -> None:
        """Create or replace objects."""
        for each in documents:
            self._objects[each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", "")] = each

    def remove(self, kind: str, name: str) -> None:
        """Delete it in all namespaces."""
        self._objects = {key: each for key, each in self._objects.items() if key[:2] != (kind, name)}

    def get(self, kind: str, name: str) -> Document:
        return next(each for key, each in self._objects.items() if key[:2] == (kind, name))

    def of_kind(self, kind: str) -> list[Document]:
        return [each for (found, *_), each in self._objects.items() if found == kind]

    def serve(self, pair: CertificatePair, *, given: CertificatePair | None = None) -> None:
        """The admission service has this certificate, and serves the one that is given in its place."""
        secret = self.get("Secret", "kai-admission-webhook-tls-secret")
        secret["data"] = {"serving.crt": encoded(pair.certificate), "serving.key": encoded(pair.key)}
        if given is not None:
            secret["data"] |= {"tls.crt": encoded(given.certificate), "tls.key": encoded(given.key)}

    def endpoints(self, service: str, *, ready: bool = True) -> Document:
        metadata = {"name": service, "namespace": self._namespace, "labels": {"kubernetes.io/service-name": service}}
        return {"kind": "EndpointSlice", "metadata": metadata, "endpoints": [{"conditions": {"ready": ready}}]}

    def lease(self, name: str, *, renewed_s_ago: float = 2, holder: str = "pod-a_1") -> Document:
        renewed = format_timestamp(int((NOW.timestamp() - renewed_s_ago) * 1e9))
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
        return {"kind": "Lease", "metadata": {"name": name, "namespace": self._namespace}, "spec": spec}

    def node(self, name: str, gpus: int = 8, labels: Labels = NO_LABELS) -> Document:
        """A GPU node; `labels` come on top, empty ones are left out."""
        known = {names.GPU_MEMORY_NODE_LABEL: "81559", names.GPU_COUNT_NODE_LABEL: str(gpus)}
        amounts = {"cpu": "64", "memory": "512Gi", names.NVIDIA_GPU: str(gpus)}
        metadata = {"name": name, "labels": {key: value for key, value in {**known, **labels}.items() if value}}
        return {"kind": "Node", "metadata": metadata, "status": {"capacity": amounts, "allocatable": dict(amounts)}}

    def queue(
        self, name: str, parent: str = "", *, quota: float = 0, limit: float = -1, labels: Labels = NO_LABELS
    ) -> Document:
        free = {"quota": 0, "limit": -1}
        spec = {
            "parentQueue": parent,
            "resources": {"gpu": {"quota": quota, "limit": limit}, "cpu": free, "memory": free},
        }
        return {"kind": "Queue", "metadata": {"name": name, "labels": dict(labels)}, "spec": spec}

    def deployment(self, name: str, image: str, *command: str, namespace: str = NAMESPACE) -> Document:
        container = {"name": name, "image": image, "command": list(command)}
        metadata = {"name": name, "namespace": namespace}
        spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        return {"kind": "Deployment", "metadata": metadata, "spec": spec, "status": {"availableReplicas": 1}}

    def facts(self) -> Facts:
        """What the doctor sees."""
        objects = {each.resource: tuple(self._decoded(each)) for each in sources()}
        return Facts(self._namespace, NOW, self.ahead, "v1.35.0", objects, self.unread, frozenset(self.unserved))

    def _decoded(self, source: Source[Any]) -> Iterable[Any]:
        for each in self.of_kind(source.resource.kind):
            yield each if source.into is dict else decode_as(source.into, each)

    def findings(self) -> list[Finding]:
        return examine(self.facts())

    def codes(self) -> dict[str, Finding]:
        """Code -> finding, without those of the healthy cluster."""
        return {each.code: each for each in self.findings() if each.code not in EXPECTED}


#: default-queue has no quota
EXPECTED = frozenset({"queue-without-quota"})
