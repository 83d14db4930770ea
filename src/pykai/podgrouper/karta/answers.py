"""What a grouper remembers of the workloads it has evaluated, bounded in number and in size.

Tenants write the workloads, so they choose how long the answers are.  A refusal is kept as its text: an exception that
was raised holds its frames, and with them the whole workload.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from pykai.podgrouper.metadata import GroupingError

#: Answers that a grouper remembers, and the bytes they hold together.
MAX_ANSWERS: Final = 4096
MAX_BYTES: Final = 16 << 20
#: What a text or number costs beside its characters.
_BYTES_EACH: Final = 64

AnswerKey = tuple[str, ...]
Answer = tuple[int, ...] | tuple[str, ...]


class RememberedAnswers:
    """Answers and refusals by what was asked; the oldest go first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._answers: OrderedDict[AnswerKey, tuple[Answer | str, int]] = OrderedDict()
        #: bytes that all of them hold
        self.size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: AnswerKey) -> Answer | None:
        """The answer, None where it is not remembered; raises `GroupingError` where it was a refusal."""
        answer, _ = self._answers.get(key, (None, 0))
        if isinstance(answer, str):
            raise GroupingError(answer)
        return answer

    def put(self, key: AnswerKey, answer: Answer | str) -> None:
        """Remember an answer, or the text of a refusal."""
        size = _size(key) + _size((answer,) if isinstance(answer, str) else answer)
        _, before = self._answers.get(key, (None, 0))
        self._answers[key] = (answer, size)
        self.size += size - before
        while self.size > self._max_bytes or len(self._answers) > MAX_ANSWERS:
            _, (_, dropped) = self._answers.popitem(last=False)
            self.size -= dropped


def _size(parts: Iterable[str | int]) -> int:
    # A character of a text may take four bytes.
    return sum(_BYTES_EACH + (4 * len(part) if isinstance(part, str) else 0) for part in parts)
