"""Where the recorded groups of KAI's pod grouper are, and the notice when they are missing."""

import os
from pathlib import Path

#: KAI_GROUPING_DIR, or `shared/grouping` beside the checkout.
FOLDER = Path(os.environ.get("KAI_GROUPING_DIR") or Path(__file__).parents[3] / "shared" / "grouping")

MISSING = (
    f"NO GROUPING CASES: {FOLDER} is missing. The recorded work of KAI's pod grouper is NOT tested. "
    "Set KAI_GROUPING_DIR to the folder that holds it."
)
