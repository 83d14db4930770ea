"""Labels and annotations of a pod that users write by hand and that cannot be read.

KAI ignores such a value silently, and the pod runs with something its author did not request: a typo in
`gpu-fraction` gives a pod without any GPU.  We decide the same and report the field, the value, and what is used
instead.  The fields are read elsewhere (`shapes.py`, `tasks.py`); here only ignored values are found.

Only waiting pods are checked: a running pod cannot be helped, and a restarted scheduler would repeat its reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.core.model.problems import Problem, ProblemReporter
from pykai.core.model.shapes import GpuKind, Shape, read_fraction, read_integer

_FALLBACK_TEXTS: Final = {
    GpuKind.NONE: "the pod gets no GPU",
    GpuKind.WHOLE: "the pod gets the whole GPUs that it requests",
    GpuKind.FRACTION: f"{names.GPU_FRACTION_ANNOTATION} is used",
    GpuKind.MEMORY: f"{names.GPU_MEMORY_ANNOTATION} is used",
    GpuKind.MIG: "the pod gets its other MIG slices",
}
_MAX_SHOWN_VALUE: Final = 60


def report_unreadable_fields(pod: Pod, shape: Shape, report: ProblemReporter) -> None:
    """Report unreadable labels and annotations of a waiting pod."""
    meta = pod.metadata
    for key, value in meta.annotations.items():
        if key in _VALIDATORS:
            expected, is_valid = _VALIDATORS[key]
        elif key.startswith(names.MIG_PREFIX):
            expected, is_valid = _POSITIVE_COUNT
        else:
            continue
        if not is_valid(value):
            fallback = _FALLBACK_TEXTS[shape.gpu.kind]
            if key == names.GPU_NUM_DEVICES_ANNOTATION and shape.shared:
                fallback = "the pod shares one GPU"
            report(_problem(pod, f"metadata.annotations[{key}]", value, expected, fallback))
    priority = meta.labels.get(names.TASK_PRIORITY_LABEL)
    if priority is not None and read_integer(priority) is None:
        field = f"metadata.labels[{names.TASK_PRIORITY_LABEL}]"
        fallback = "the pod comes after those of its group that have a number"
        report(_problem(pod, field, priority, "a whole number", fallback))


def _problem(pod: Pod, field: str, value: str, expected: str, fallback: str) -> Problem:
    shown = repr(value if len(value) <= _MAX_SHOWN_VALUE else value[:_MAX_SHOWN_VALUE] + "...")
    subject = f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
    return Problem(subject, field, f"{shown} is not {expected}; {fallback}")


def _is_count(text: str) -> bool:
    return (read_integer(text) or 0) > 0


_POSITIVE_COUNT: Final = ("a whole number above 0", _is_count)
#: Annotation -> what it should be, and whether a value is that.
_VALIDATORS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    names.GPU_FRACTION_ANNOTATION: ("a number above 0 and at most 1", lambda text: read_fraction(text) is not None),
    names.GPU_MEMORY_ANNOTATION: ("a whole number of MiB above 0", _is_count),
    names.GPU_NUM_DEVICES_ANNOTATION: _POSITIVE_COUNT,
}
