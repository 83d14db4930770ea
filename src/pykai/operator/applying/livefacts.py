"""Facts of a cluster, from the objects in it (operations:O-22 to O-24, O-40, OD-16)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pykai.operator.desired.facts import LeaderPod

FAKE_GPU_LABEL: Final = "run.ai/fake.gpu"
_VERSION_LABEL: Final = "app.kubernetes.io/version"
#: the GPU operator uses CDI by default since then
_CDI_VERSION: Final = (25, 10, 0)


def uses_cdi(policies: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the GPU operator names devices as CDI does (operations:O-24)."""
    for policy in policies:
        given = (policy.get("spec") or {}).get("cdi") or {}
        labels = (policy.get("metadata") or {}).get("labels") or {}
        if given.get("enabled") and (_version(labels.get(_VERSION_LABEL)) >= _CDI_VERSION or given.get("default")):
            return True
    return False


def _version(text: object) -> tuple[int, ...]:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", str(text or ""))
    return tuple(int(each or 0) for each in found.groups()) if found else ()


def leader(lease: Mapping[str, Any] | None, pods: Mapping[str, Mapping[str, Any]]) -> LeaderPod | None:
    """The pod that holds a lease: its name stands before the first `_` (operations:O-39, O-40)."""
    holder = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
    pod = pods.get(holder.partition("_")[0])
    if not holder or pod is None:
        return None
    metadata = pod.get("metadata") or {}
    address = (pod.get("status") or {}).get("podIP")
    if not address or metadata.get("deletionTimestamp"):
        return None
    return LeaderPod(metadata["name"], metadata.get("uid", ""), address)


def pull_secrets(account: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The pull secrets of an account (operations:O-23)."""
    return tuple(sorted(each["name"] for each in (account or {}).get("imagePullSecrets") or () if "name" in each))
