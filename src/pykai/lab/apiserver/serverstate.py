"""What the rules of kinds read and write: the stored objects, the served kinds and the cluster's time.

`ServerState.write` stores objects that the server itself made. Requests of clients go through `writer.ObjectWriter`.
"""

from __future__ import annotations

from pykai.api.unstructured import JsonObject
from pykai.kube.clock import Clock
from pykai.lab.apiserver import apierrors, metadata
from pykai.lab.apiserver.calls import Call
from pykai.lab.apiserver.kinds import KindRegistry, ResourceKind
from pykai.lab.apiserver.storage import ObjectStorage, StoredObject, encode


class ServerState:
    """Stored objects, served kinds and cluster time."""

    def __init__(self, storage: ObjectStorage, registry: KindRegistry, clock: Clock) -> None:
        self.storage = storage
        self.registry = registry
        self.clock = clock
        self._second, self._stamp = -1, ""

    def now(self) -> str:
        """Cluster time as Kubernetes writes it."""
        moment = self.clock.now()
        second = int(moment.timestamp())
        if second != self._second:
            self._second, self._stamp = second, metadata.format_rfc3339(moment)
        return self._stamp

    def write(self, kind: ResourceKind, obj: JsonObject) -> StoredObject:
        """Store what the server itself has made, without checks; metadata must be the caller's own dict."""
        meta = obj["metadata"]
        call = Call("update", kind, meta.get("namespace", ""), meta["name"])
        return self.store(call, obj)

    def store(self, call: Call, obj: JsonObject) -> StoredObject:
        """Store the object of a call; a dry run only answers with it."""
        kind = call.kind
        # kind and apiVersion come first, because lists cut them off by position.
        rest = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
        obj = {"kind": kind.kind, "apiVersion": kind.storage_api_version, **rest}
        fields = metadata.selectable_field_reader(kind)(obj)
        try:
            if call.dry_run:
                present = self.storage.get(kind.store, call.key)
                if present is not None:
                    obj["metadata"]["resourceVersion"] = present.object()["metadata"]["resourceVersion"]
                return StoredObject(call.key, self.storage.published, encode(obj), obj, fields)
            return self.storage.write(kind.store, call.key, obj, fields)
        except (OverflowError, UnicodeError, TypeError) as error:
            raise apierrors.bad_request(f"the object cannot be written as JSON: {error}") from None
