"""KAI Scheduler's recorded decisions, one test a case, with every sum recomputed after every gang.

`FILES` says which files count in full and which fields of the others; files that wait for more of the engine
(topology, NUMA, eviction) are run by `kai conformance` and join here when it can pass them.
"""

from collections.abc import Iterator

import pytest

from pykai.simulator.cases import Case, read_cases
from pykai.simulator.comparison import compares
from pykai.simulator.conformance import run_case
from tests.conformance.folder import FOLDER, MISSING

Fields = tuple[str, ...] | None

#: File -> fields of `expect` to compare; None = all of them.
FILES: dict[str, Fields] = {
    "allocate.core.jsonl": None,
    "allocate.elastic.jsonl": None,
    "allocate.gpu-sharing.jsonl": None,
    "allocate.mig.jsonl": None,
    "allocate.subgroups.jsonl": None,
    "waves.allocate.jsonl": None,
    "waves.whole-cycle.jsonl": ("fairShares",),
}
#: Files of which only cases without topology count: a group that names one waits, and so may what comes after it.
WITHOUT_TOPOLOGY = ("waves.allocate.jsonl",)

pytestmark = pytest.mark.conformance


def cases() -> Iterator[tuple[Case, Fields]]:
    """The cases that count."""
    for name, fields in FILES.items():
        for case in read_cases(FOLDER / name):
            if compares(case, fields) and not (name in WITHOUT_TOPOLOGY and case.names_topology):
                yield case, fields


if FOLDER.is_dir():

    @pytest.mark.parametrize(("case", "fields"), [pytest.param(case, fields, id=case.id) for case, fields in cases()])
    def test_decisions_are_as_recorded(case: Case, fields: Fields) -> None:
        assert run_case(case, fields, validate=True) == []

    def test_every_file_has_cases() -> None:
        """A folder with an empty or renamed file must not pass for a tested one."""
        counted = {name: sum(1 for _ in read_cases(FOLDER / name)) for name in FILES}
        assert min(counted.values()) > 0, counted

else:

    @pytest.mark.skip(reason=MISSING)
    def test_recorded_decisions() -> None:
        """Stands for all cases while there are none."""
