"""Labels and annotations of a pod that users write by hand and that mean nothing.

KAI ignores such a value silently, and the pod runs with something its author did not ask for: a typo in
`gpu-fraction` gives a pod without any GPU.  We decide the same and say so: which field, which value, and what is used
instead.  Readers of the fields are elsewhere (`shapes.py`, `tasks.py`); only what they pass over is looked for here.

Only pods that still wait are looked at: nothing helps a pod that runs, and a restarted scheduler would repeat itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.core.model.groups import Report
from pykai.core.model.problems import Problem
from pykai.core.model.shapes import GpuKind, Shape, read_fraction, read_integer

_INSTEAD: Final = {
    GpuKind.NONE: "the pod gets no GPU",
    GpuKind.WHOLE: "the pod gets the whole GPUs that it requests",
    GpuKind.FRACTION: f"{names.GPU_FRACTION_ANNOTATION} is used",
    GpuKind.MEMORY: f"{names.GPU_MEMORY_ANNOTATION} is used",
    GpuKind.MIG: "the pod gets its other MIG slices",
}
_LONGEST_VALUE: Final = 60


def report_unread(pod: Pod, shape: Shape, report: Report) -> None:
    """Report what cannot be used of the labels and annotations of a pod that waits."""
    meta = pod.metadata
    for key, value in meta.annotations.items():
        if key in _READERS:
            expected, usable = _READERS[key]
        elif key.startswith(names.MIG_PREFIX):
            expected, usable = _A_COUNT
        else:
            continue
        if not usable(value):
            instead = _INSTEAD[shape.gpu.kind]
            if key == names.GPU_NUM_DEVICES_ANNOTATION and shape.shared:
                instead = "the pod shares one GPU"
            report(_problem(pod, f"metadata.annotations[{key}]", value, expected, instead))
    priority = meta.labels.get(names.TASK_PRIORITY_LABEL)
    if priority is not None and read_integer(priority) is None:
        field = f"metadata.labels[{names.TASK_PRIORITY_LABEL}]"
        instead = "the pod comes after those of its group that have a number"
        report(_problem(pod, field, priority, "a whole number", instead))


def _problem(pod: Pod, field: str, value: str, expected: str, instead: str) -> Problem:
    shown = repr(value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "...")
    subject = f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
    return Problem(subject, field, f"{shown} is not {expected}; {instead}")


def _is_count(text: str) -> bool:
    return (read_integer(text) or 0) > 0


_A_COUNT: Final = ("a whole number above 0", _is_count)
#: Annotation -> what it should be, and whether a value is that.
_READERS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    names.GPU_FRACTION_ANNOTATION: ("a number above 0 and at most 1", lambda text: read_fraction(text) is not None),
    names.GPU_MEMORY_ANNOTATION: ("a whole number of MiB above 0", _is_count),
    names.GPU_NUM_DEVICES_ANNOTATION: _A_COUNT,
}
