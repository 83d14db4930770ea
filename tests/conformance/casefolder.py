"""Where the recorded decisions of KAI Scheduler are, and the notice when they are missing."""

import os
from pathlib import Path

#: KAI_CONFORMANCE_DIR, or `shared/conformance` beside the checkout.
FOLDER = Path(os.environ.get("KAI_CONFORMANCE_DIR") or Path(__file__).parents[3] / "shared" / "conformance")

MISSING = (
    f"NO CONFORMANCE CASES: {FOLDER} is missing. The recorded decisions of KAI Scheduler are NOT tested. "
    "Set KAI_CONFORMANCE_DIR to the folder that holds them."
)
