"""KAI Scheduler's recorded decisions, one test a case, with every sum recomputed after every gang.

`WHOLE` files count in full.  `ENDS` record only how many pods of each group run after many cycles of a random cluster,
and KAI's own end is sometimes the middle of an endless eviction: the few cases that end otherwise are listed, and each
must be shown to be as good.
"""

from collections.abc import Iterator

import pytest

from pykai.dev.cases import Case, read_cases
from pykai.dev.conformance import run_case
from pykai.dev.differences import compare_outcomes
from tests.conformance.casefolder import FOLDER, MISSING

WHOLE = (
    *(f"allocate.{part}.jsonl" for part in ("core", "elastic", "gpu-sharing", "mig", "numa", "subgroups", "topology")),
    *(f"consolidation.{part}.jsonl" for part in ("core", "gpu-sharing", "subgroups")),
    *(f"preempt.{part}.jsonl" for part in ("core", "elastic", "gpu-sharing", "mig", "numa", "subgroups")),
    *(f"reclaim.{part}.jsonl" for part in ("core", "elastic", "gpu-sharing", "mig", "numa", "subgroups")),
    *(f"stalegangeviction.{part}.jsonl" for part in ("core", "subgroups")),
    *(f"whole-cycle.{part}.jsonl" for part in ("core", "dra", "gpu-sharing", "mig", "subgroups", "topology")),
    "waves.allocate.jsonl",
)
ENDS = ("random.whole-cycle.jsonl", "waves.whole-cycle.jsonl")
#: Cases of these that end otherwise than recorded.
OTHERWISE = {
    *(f"random/whole-cycle/{number}" for number in ("031", "189")),
    *(f"waves/whole-cycle/{number}" for number in ("008", "136", "166", "206")),
}

pytestmark = pytest.mark.conformance


def whole() -> Iterator[Case]:
    """Cases that count in full."""
    for name in WHOLE:
        yield from read_cases(FOLDER / name)


def ends(name: str) -> list[Case]:
    """Cases of which the end counts."""
    return list(read_cases(FOLDER / name))


if FOLDER.is_dir():

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in whole()])
    def test_decisions_are_as_recorded(case: Case) -> None:
        assert run_case(case, validate=True) == []

    @pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for name in ENDS for case in ends(name)])
    def test_the_end_is_as_recorded_or_as_good(case: Case) -> None:
        if different := run_case(case, validate=True):
            assert case.id in OTHERWISE, different
            found = compare_outcomes(case)
            assert found.as_good, "\n".join(found.lines)

    def test_nearly_all_ends_are_as_recorded() -> None:
        listed = {case.id for name in ENDS for case in ends(name)}
        assert listed >= OTHERWISE
        assert 100 * len(OTHERWISE) <= 4 * len(listed)

    @pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.id) for case in read_cases(FOLDER / "waves.whole-cycle.jsonl")]
    )
    def test_fair_shares_are_as_recorded(case: Case) -> None:
        assert run_case(case, ("fairShares",)) == []

    def test_every_file_is_tested_and_has_cases() -> None:
        """A folder with an empty, renamed or new file must not pass for a tested one."""
        assert {path.name for path in FOLDER.glob("*.jsonl")} == {*WHOLE, *ENDS}
        counted = {name: sum(1 for _ in read_cases(FOLDER / name)) for name in (*WHOLE, *ENDS)}
        assert min(counted.values()) > 0, counted

else:

    @pytest.mark.skip(reason=MISSING)
    def test_recorded_decisions() -> None:
        """Skipped in place of the cases while there are none."""
