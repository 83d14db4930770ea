"""Which versions of Kubernetes an installation works on: Helm checks the chart's range, `kai install` the same one.

The admission policies are of an API that 1.30 is the first to serve.

Statements: install:kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

#: major and minor
OLDEST: Final = (1, 30)
#: Without `-0` Helm would refuse what clouds append, as in v1.33.1-eks-1de2ab1.
KUBE_VERSION: Final = f">={OLDEST[0]}.{OLDEST[1]}.0-0"

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.")


def version_problem(version: Mapping[str, Any]) -> str:
    """Why an installation cannot work on a server that says this of itself; empty if it can, or says nothing known."""
    found = str(version.get("gitVersion", ""))
    parts = _VERSION.match(found)
    if parts is None or (int(parts[1]), int(parts[2])) >= OLDEST:
        return ""
    needed = ".".join(map(str, OLDEST))
    return f"this cluster runs Kubernetes {found}; PyKAI needs {needed} or newer, so upgrade the cluster first"
