"""`kai doctor` on what the chart has installed: a check that misjudges a real cluster fails here."""

from __future__ import annotations

import json

import pytest

from tests.e2e.installation import Installation

pytestmark = pytest.mark.cluster_only


async def test_an_installation_of_the_chart_has_nothing_to_fix(installation: Installation) -> None:
    """doctor:exit: any other exit code than 0 fails the command."""
    await installation.available()
    said = json.loads(installation.kai("doctor", "--output=json"))
    assert [each for each in said["findings"] if each["severity"] != "info"] == []
    assert said["severity"] == "info"
