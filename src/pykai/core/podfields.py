"""Labels and annotations of a pod that users write by hand and that mean nothing.

KAI passes over such a value in silence, and the pod runs with something its author did not ask for: a typo in
`gpu-fraction` gives a pod without any GPU.  We decide the same and say so: which field, which value, and what is used
instead.  Readers of the fields are elsewhere (`shapes.py`, `tasks.py`); only what they pass over is looked for here.

Only pods that still wait are looked at: nothing helps a pod that runs, and a restarted scheduler would repeat itself.
"""

from __future__ import annotations

from typing import Final

from pykai.api import names
from pykai.api.core import Pod
from pykai.core.groups import Report
from pykai.core.problems import Problem
from pykai.core.shapes import GpuKind, Shape, read_fraction, read_integer

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
    subject = f"Pod/{meta.namespace}/{meta.name}"

    def passed_over(where: str, key: str, value: str, expected: str, instead: str) -> None:
        shown = repr(value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "...")
        report(Problem(subject, f"metadata.{where}[{key}]", f"{shown} is not {expected}; {instead}"))

    for key, value in meta.annotations.items():
        if key == names.GPU_FRACTION_ANNOTATION:
            if read_fraction(value) is None:
                passed_over("annotations", key, value, "a number above 0 and at most 1", _INSTEAD[shape.gpu.kind])
        elif key == names.GPU_MEMORY_ANNOTATION:
            if (read_integer(value) or 0) <= 0:
                passed_over("annotations", key, value, "a whole number of MiB above 0", _INSTEAD[shape.gpu.kind])
        elif key == names.GPU_NUM_DEVICES_ANNOTATION:
            if (read_integer(value) or 0) <= 0:
                instead = "the pod shares one GPU" if shape.shared else _INSTEAD[shape.gpu.kind]
                passed_over("annotations", key, value, "a whole number above 0", instead)
        elif key.startswith(names.MIG_PREFIX) and (read_integer(value) or 0) <= 0:
            passed_over("annotations", key, value, "a whole number above 0", _INSTEAD[shape.gpu.kind])
    priority = meta.labels.get(names.TASK_PRIORITY_LABEL)
    if priority is not None and read_integer(priority) is None:
        instead = "the pod comes after those of its group that have a number"
        passed_over("labels", names.TASK_PRIORITY_LABEL, priority, "a whole number", instead)
