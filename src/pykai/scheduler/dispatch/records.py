"""State that must survive the scheduler, in ConfigMaps of its own namespace.

A scheduler may die at any moment, and another takes over.  What the next one has to know is kept in *records*: the plan
of a gang that is being bound (`gangbinding`), failed binds (`failedbinds`), and suspended workloads (`suspension`).  A
record is about one PodGroup and has its uid in the name.  It is in the scheduler's namespace, not on the PodGroup,
because tenants write PodGroups.

Records carry labels for their kind, scheduler and node pool, so that schedulers and shards never read each other's.  A
scheduler that takes over reads them once; they are not watched.

Subtle: a write without an answer is simply repeated.  A `create` that finds the name taken becomes a patch: the name
belongs to this shard and PodGroup, so the existing ConfigMap is an older record of ours.  Deletes name the uid of the
ConfigMap.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from pykai.api import names
from pykai.core.model.shard import Shard
from pykai.kube import resources
from pykai.kube.client import Client
from pykai.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)
from pykai.scheduler.dispatch.bindrequests import label_value
from pykai.scheduler.dispatch.deletions import MAX_SERVER_FAILURES, retry_delay_s

log = logging.getLogger(__name__)

#: kinds
BIND_PLAN = "bind-plan"
FAILED_BINDS = "failed-binds"
SUSPENDED_WORKLOAD = "suspended-workload"
_KINDS = (BIND_PLAN, FAILED_BINDS, SUSPENDED_WORKLOAD)

#: Characters a record may hold; the API server admits 1 MiB for all data of a ConfigMap.
MAX_RECORD_CHARACTERS = 1_000_000

_GROUP = "podGroup"
_UID = "podGroupUid"


class HandoverRecord(NamedTuple):
    """A record as it was read."""

    kind: str
    #: name of its ConfigMap
    name: str
    #: namespace/name and uid of its PodGroup, as the record says
    group: str
    uid: str
    data: Mapping[str, str]


class HandoverRecords:
    """Writes and reads the records of one shard."""

    def __init__(self, client: Client, shard: Shard, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._labels = {
            names.RECORD_SCHEDULER_LABEL: label_value(shard.scheduler_name),
            names.RECORD_POOL_LABEL: label_value(shard.node_pool),
        }
        whose = f"{shard.scheduler_name}/{shard.node_pool}"
        self._shard_hash = hashlib.sha256(whose.encode()).hexdigest()[:8]
        #: name -> uid of the ConfigMaps that exist, as far as we know
        self._uids: dict[str, str] = {}

    def name_of(self, kind: str, uid: str) -> str:
        """The name of the record about the PodGroup with this uid."""
        return f"kai-{kind}-{uid}-{self._shard_hash}"

    async def put(self, kind: str, group: str, uid: str, data: Mapping[str, str]) -> str:
        """Write a record, replacing an older one; returns why that failed, "" on success."""
        size = sum(len(text.encode()) for text in data.values())
        if size > MAX_RECORD_CHARACTERS:
            return f"it has {size} bytes; a ConfigMap holds {MAX_RECORD_CHARACTERS}"
        name = self.name_of(kind, uid)
        content = {
            "metadata": {"name": name, "labels": {names.RECORD_LABEL: kind, **self._labels}},
            "data": {_GROUP: group, _UID: uid, **data},
        }
        exists = name in self._uids
        failures = tries = 0
        while True:
            try:
                answer = await self._write(name, content, exists=exists)
            except AlreadyExists:
                exists = True
            except NotFound:
                self._uids.pop(name, None)
                if not exists:
                    return f"there is no namespace {self._namespace}; create it, or name another with --namespace"
                exists = False
            except (ServerError, TooManyRequests) as error:
                failures += 1
                if failures >= MAX_SERVER_FAILURES:
                    return str(error)
            except ConnectionLost:
                pass
            except KubeError as error:
                return str(error)
            else:
                self._uids[name] = str(answer["metadata"].get("uid") or "")
                return ""
            tries += 1
            await asyncio.sleep(retry_delay_s(tries))

    async def _write(self, name: str, content: Mapping[str, Any], *, exists: bool) -> dict[str, Any]:
        if exists:
            return await self._client.patch(resources.CONFIG_MAPS, name, content, self._namespace, brief=True)
        return await self._client.create(resources.CONFIG_MAPS, content, self._namespace, brief=True)

    async def remove(self, name: str) -> None:
        """Delete a record; one that cannot be deleted stays, and the next scheduler deletes it."""
        uid = self._uids.pop(name, "")
        failures = tries = 0
        while True:
            try:
                await self._client.delete(resources.CONFIG_MAPS, name, self._namespace, uid=uid)
                return
            except NotFound:
                return
            except ConnectionLost:
                pass
            except (Conflict, ServerError, TooManyRequests) as error:
                if isinstance(error, Conflict) and uid:
                    # Another ConfigMap of the same name.
                    return
                failures += 1
                if failures >= MAX_SERVER_FAILURES:
                    log.warning("record %s stays: %s", name, error)
                    return
            except KubeError as error:
                log.warning("record %s stays: %s", name, error)
                return
            tries += 1
            await asyncio.sleep(retry_delay_s(tries))

    async def list_records(self) -> list[HandoverRecord]:
        """All records of this shard; those without a PodGroup, or under a name that is not theirs, are deleted."""
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        tries = 0
        while True:
            try:
                config_maps = await self._client.list_raw(
                    resources.CONFIG_MAPS, namespace=self._namespace, label_selector=f"{names.RECORD_LABEL},{selector}"
                )
                break
            except (ConnectionLost, ServerError, TooManyRequests) as error:
                # Without the server nothing else can be done either.
                log.warning("the records of the last leader cannot be read yet: %s", error)
            except KubeError as error:
                log.error("the records of the last leader cannot be read; its gangs are not finished: %s", error)
                return []
            tries += 1
            await asyncio.sleep(retry_delay_s(tries))
        records = []
        for item in config_maps:
            meta, data = item["metadata"], item.get("data") or {}
            self._uids[meta["name"]] = meta["uid"]
            kind = meta["labels"][names.RECORD_LABEL]
            record = HandoverRecord(kind, meta["name"], data.get(_GROUP, ""), data.get(_UID, ""), data)
            if kind in _KINDS and record.name == self.name_of(kind, record.uid):
                records.append(record)
            else:
                log.warning("record %s is not about the PodGroup it names, %s; it is deleted", record.name, record.uid)
                await self.remove(record.name)
        return records
