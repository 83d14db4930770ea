"""Nodes with impossible GPU counts.

A broken device plugin may report a negative number of GPUs, or one that no machine has.  The kubelet would reject pods
sent there again and again while healthy nodes stay idle, so such GPUs count as absent, and an event on the node says
so.  A label without a valid GPU memory (the engine then sends no pod there that requests an amount of memory) or GPU
count is reported too.  Values that cannot be read at all are reported by the engine's own reader.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from pykai.api import names
from pykai.api.core import Node
from pykai.api.gpuvendors import is_gpu
from pykai.api.quantity import QuantityError, unit_value
from pykai.core.model.problems import Problem

#: Shared or sliced, a real machine offers some hundreds.
MAX_GPUS_PER_NODE = 4096

_DIGITS = re.compile(r"\+?[0-9]{1,18}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def sanitise_node(node: Node) -> tuple[Node, tuple[Problem, ...]]:
    """The node without impossible GPUs, and what is wrong with them; nearly always the node itself."""
    problems = []
    dropped = set()
    memory = node.metadata.labels.get(names.GPU_MEMORY_NODE_LABEL)
    if memory is not None and not (_DIGITS.fullmatch(memory) and int(memory)):
        field = f"metadata.labels[{names.GPU_MEMORY_NODE_LABEL}]"
        text = f"{memory!r} is not a number of MiB; pods that ask for an amount of GPU memory do not come here"
        problems.append(Problem(f"Node/{node.metadata.name}", field, text))
    labelled = node.metadata.labels.get(names.GPU_COUNT_NODE_LABEL)
    if labelled is not None and not _WHOLE.fullmatch(labelled):
        field = f"metadata.labels[{names.GPU_COUNT_NODE_LABEL}]"
        text = f"{labelled!r} is not a number; the allocatable GPUs are counted instead"
        problems.append(Problem(f"Node/{node.metadata.name}", field, text))
    for resource, raw in node.status.allocatable.items():
        if not is_gpu(resource):
            continue
        try:
            count = unit_value(raw)
        except QuantityError:
            continue
        if not 0 <= count <= MAX_GPUS_PER_NODE:
            dropped.add(resource)
            reason = (
                "is negative"
                if count < 0
                else f"is more than the {MAX_GPUS_PER_NODE} that any machine is believed to have"
            )
            field = f"status.allocatable[{resource}]"
            problems.append(Problem(f"Node/{node.metadata.name}", field, f"{raw} {reason}; treated as absent"))
    if not dropped:
        return node, tuple(problems)
    kept = {resource: raw for resource, raw in node.status.allocatable.items() if resource not in dropped}
    return replace(node, status=replace(node.status, allocatable=kept)), tuple(problems)
