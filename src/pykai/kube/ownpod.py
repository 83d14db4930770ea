"""The name of the pod that this process runs in."""

from __future__ import annotations

import os
import socket

from pykai.api.keys import object_key

#: set from the pod's own fields by the Deployments of the operator
_VARIABLE, _NAMESPACE_VARIABLE = "POD_NAME", "POD_NAMESPACE"


def own_pod_name() -> str:
    """As the pod says, else the name of the machine: a pod's host name is cut off at 63 characters, or its own."""
    return os.environ.get(_VARIABLE) or socket.gethostname()


def own_pod_key(namespace: str) -> str:
    """The key of the pod, in this namespace unless the pod says another; "" for a process that knows of none."""
    name = os.environ.get(_VARIABLE, "")
    return object_key(os.environ.get(_NAMESPACE_VARIABLE) or namespace, name) if name else ""
