"""What several workers did is judged together, and only tests that can ask for a server run on a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pykai.services.rights import RoleRule
from tests.cluster.distribution import work_unit
from tests.cluster.rights import rights_problems
from tests.cluster.serveruse import ServerUse
from tests.cluster.test_rights import asked
from tests.serverneeds import can_ask_for_a_server

TESTS = Path(__file__).parent.parent
TABLE = {"writer": (RoleRule("", ("pods",), ("get", "patch")),)}


def worker(folder: Path, *verbs: str, decision: str = "allow") -> ServerUse:
    """A worker whose server was asked by the writer for pods; its report has been sent and received."""
    log = folder / f"{len(list(folder.iterdir()))}.log"
    log.write_text("".join(f"{json.dumps(asked(verb, 'pods', decision=decision))}\n" for verb in verbs))
    return ServerUse.from_plain(json.loads(json.dumps(ServerUse(10, 3, [log]).plain())))


def problems(*workers: ServerUse) -> list[str]:
    together = ServerUse()
    for each in workers:
        together.add(each)
    return rights_problems(together.requests(), TABLE, is_complete_run=True)


def test_a_right_is_used_when_one_of_the_workers_has_used_it(tmp_path: Path) -> None:
    one, other = worker(tmp_path, "get"), worker(tmp_path, "patch")
    assert problems(one) == ["never used, remove the rule or test its use: writer: patch pods"]
    assert problems(one, other) == []


def test_a_request_that_was_refused_to_one_of_the_workers_is_named(tmp_path: Path) -> None:
    refused = worker(tmp_path, "delete", decision="forbid")
    assert problems(worker(tmp_path, "get", "patch"), refused) == [
        "forbidden, add a rule or mend the service: writer: delete /api/v1/pods"
    ]


def test_servers_of_workers_add_up_and_tests_that_each_of_them_leaves_out_do_not(tmp_path: Path) -> None:
    both = worker(tmp_path)
    both.add(worker(tmp_path))
    assert (both.opened, both.left_out) == (20, 3)
    assert both.embedded_only == pytest.approx(100 * 3 / 23)


def test_a_log_that_was_never_written_and_a_line_that_was_cut_are_no_requests(tmp_path: Path) -> None:
    cut = worker(tmp_path, "get")
    whole = cut.audit_logs[0].read_text()
    cut.audit_logs[0].write_text(whole + whole[:40])
    cut.add(ServerUse(audit_logs=[tmp_path / "missing"]))
    assert len(list(cut.requests())) == 1


@pytest.mark.parametrize(
    ("module", "can"),
    [
        # by itself, through a module beside it, through conftest.py
        ("kube/test_on_a_server.py", True),
        ("services/binder/test_claims.py", True),
        ("lab/apiserver/test_pods.py", True),
        ("kube/test_store.py", False),
        ("webhooks/test_queues.py", False),
    ],
)
def test_what_leads_to_a_server_is_read_from_imports(module: str, can: bool) -> None:
    assert can_ask_for_a_server(TESTS / module) is can


def test_a_module_of_stories_goes_to_one_worker_and_other_tests_one_by_one() -> None:
    story = "tests/cluster/test_controllers.py"
    assert work_unit(f"{story}::test_a") == work_unit(f"{story}::test_b[x::y]") == story
    single = "tests/services/binder/test_bind.py::test_a"
    assert work_unit(single) == single
