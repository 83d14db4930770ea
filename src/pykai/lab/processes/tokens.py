"""The account of a pod: a token bound to it, and a kubeconfig that shows the way to the API server.

The token lasts a day and is not renewed: no pod of a test cluster lives longer.  It ends with its pod, as on a real
cluster, so a process that outlives its pod can do nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pykai.api.unstructured import JsonObject
from pykai.kube.client import Client
from pykai.kube.resources import SERVICE_ACCOUNTS
from pykai.lab.processes.failures import CannotRun

_LIFETIME_S: Final = 24 * 3600
#: what every namespace has of the authority of the API server
AUTHORITY_MAP: Final = "kube-root-ca.crt"


class AccountTokens:
    """Makes them."""

    def __init__(self, client: Client, server: str, read: Callable[[str, str, str], JsonObject | None]) -> None:
        self._client = client
        self._server = server
        self._read = read

    async def write(self, pod: JsonObject, folder: Path) -> Path:
        """The kubeconfig of a pod's account, in this folder; raises `CannotRun` and `ApiError`."""
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        authority = self._read("configmap", namespace, AUTHORITY_MAP)
        if authority is None:
            raise CannotRun("ContainerCreating", f"config map {AUTHORITY_MAP!r} not found")
        account = pod["spec"].get("serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": account, "namespace": namespace},
            "spec": {"expirationSeconds": _LIFETIME_S, "boundObjectRef": bound},
        }
        made = await self._client.create(SERVICE_ACCOUNTS, request, subresource="token")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ca.crt").write_text(authority["data"]["ca.crt"], encoding="utf-8")
        _write_private(folder / "token", str(made["status"]["token"]))
        _write_private(folder / "kubeconfig", self._kubeconfig(folder, namespace))
        return folder / "kubeconfig"

    def _kubeconfig(self, folder: Path, namespace: str) -> str:
        cluster = {"server": self._server, "certificate-authority": str(folder / "ca.crt")}
        context = {"cluster": "pod", "user": "pod", "namespace": namespace}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "pod", "cluster": cluster}],
                "users": [{"name": "pod", "user": {"tokenFile": str(folder / "token")}}],
                "contexts": [{"name": "pod", "context": context}],
                "current-context": "pod",
            }
        )


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
