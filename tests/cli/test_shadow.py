"""`kai shadow report` prints what a shadow serves, and says what to do where there is none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from click.testing import CliRunner, Result

from pykai.cli.shadow import report, shadow
from pykai.scheduler.shadowreport import BIND, EVICT, MOST_DIFFERENCES, Difference, Outcome, ShadowReport


def document() -> dict[str, object]:
    found = ShadowReport("2026-11-18T00:00:00Z")
    why = "Resources were not found for 1 pods " * 5
    for outcome in (Outcome.AGREED, Outcome.EQUAL_NODE, Outcome.WOULD_WAIT):
        found.add(Difference("2026-11-18T12:00:00Z", BIND, outcome, "ns/train-0", "team", "node-1", "", why))
    found.add(Difference("2026-11-18T12:00:01Z", EVICT, Outcome.OTHER_VICTIM, "ns/train-1", "team", "node-2", ""))
    return found.as_document()


@contextmanager
def serving(status: int, body: object) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/get-shadow-report" else 500)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(shadow, ["report", *arguments])


def test_the_report_as_text() -> None:
    with serving(200, document()) as url:
        result = run("--url", url)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[:3] == [
        "Since 2026-11-18T00:00:00Z agreed with the other scheduler",
        "on 2 of 3 binds,",
        "on 0 of 1 evictions.",
    ]
    assert "        1  node of equal score" in lines
    assert max(map(len, lines)) <= 80
    assert "The last 3 of 3 differences that are kept:" in lines


def test_the_report_as_json_is_what_the_page_has() -> None:
    with serving(200, document()) as url:
        assert json.loads(run("--url", url, "-o", "json").output) == document()


def test_fewer_differences() -> None:
    with serving(200, document()) as url:
        assert "The last 1 of 3" in run("--url", url, "--last", "1").output
        assert "differences" not in run("--url", url, "--last", "0").output


def test_differences_that_are_gone_are_counted_with_the_reason() -> None:
    found = ShadowReport("2026-11-18T00:00:00Z")
    for number in range(MOST_DIFFERENCES + 34):
        found.add(Difference("2026-11-18T12:00:00Z", BIND, Outcome.OTHER_NODE, f"ns/{number}", "team", "a", "b"))
    with serving(200, found.as_document()) as url:
        lines = run("--url", url).output.splitlines()
    assert "The last 20 of 1000 differences that are kept:" in lines
    assert " ".join(lines[-2:]) == (
        "34 older differences were dropped: a shadow keeps the newest 1000, so that it does not grow; all are in the"
        " counts above."
    )


def test_no_shadow_there() -> None:
    for status, body in ((404, "no shadow"), (200, {"global_order": []})):
        with serving(status, body) as url:
            result = run("--url", url)
        assert result.exit_code == 1
        assert "Is a scheduler with --shadow running there?" in result.output
    assert "Is a scheduler with --shadow running there?" in run("--url", url).output
    assert report.name == "report"
