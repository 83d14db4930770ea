"""Reports at the end of the run that recorded cases were missing."""

import pytest

from tests.podgrouper.casefolder import FOLDER, MISSING


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A prominent banner."""
    if not FOLDER.is_dir():
        terminalreporter.section("NO GROUPING CASES", sep="*", red=True, bold=True)
        terminalreporter.write_line(MISSING, red=True)
