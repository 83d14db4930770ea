"""Where the recorded groups of KAI's pod grouper are, and the notice when they are missing."""

import os
from collections.abc import Iterator
from pathlib import Path

from pykai.dev.groupingcases import GroupingCase, read_grouping_cases

#: KAI_GROUPING_DIR, or `shared/grouping` beside the checkout.
FOLDER = Path(os.environ.get("KAI_GROUPING_DIR") or Path(__file__).parents[3] / "shared" / "grouping")

MISSING = (
    f"NO GROUPING CASES: {FOLDER} is missing. The recorded work of KAI's pod grouper is NOT tested. "
    "Set KAI_GROUPING_DIR to the folder that holds it."
)


def recorded() -> Iterator[GroupingCase]:
    """All cases of the folder; none where it is missing."""
    for path in sorted(FOLDER.glob("*.jsonl")):
        yield from read_grouping_cases(path)


CASES = list(recorded())
