"""`kai replay`: one cycle of the engine on a cluster from a file, and what it decides.

The file is what a scheduler serves at `/get-snapshot`, KAI Scheduler's or ours.  The same file gives the same decisions
every time; the fingerprints say so in a line each, to compare two machines or two versions by.

Statements: operations:O-59.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from pykai.core.actions import ACTIONS
from pykai.core.cluster.snapshot import Snapshot
from pykai.core.opencycle import open_cycle
from pykai.core.plan import build_plan
from pykai.core.report.decisions import Plan, encode_as_text
from pykai.core.report.sentences import group_text, orphan_text
from pykai.scheduler.gccontrol import gc_paused
from pykai.scheduler.snapshotfile import MAX_PACKED_BYTES, RecordedCluster, SnapshotError, read_snapshot

T = TypeVar("T")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print decisions and durations as JSON.")
def replay(file: Path, as_json: bool) -> None:
    """Run one scheduling cycle on the cluster in FILE, a snapshot.zip.

    Get the file from a running scheduler: curl -o snapshot.zip http://127.0.0.1:8081/get-snapshot
    """
    try:
        with file.open("rb") as opened:
            # One byte more than a snapshot may have is enough to see that it has too many.
            recording = read_snapshot(opened.read(MAX_PACKED_BYTES + 1))
    except (OSError, SnapshotError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    durations: dict[str, float] = {}
    with gc_paused():
        plan, snapshot = _run(recording, durations)
    total_ms = round(sum(durations.values()), 3)
    fingerprints = {"state": state_fingerprint(snapshot), "plan": hashlib.sha256(plan.encoded()).hexdigest()}
    problems = [str(each) for each in (*recording.unreadable, *recording.configuration.problems)]
    if as_json:
        content = {
            "total_duration_ms": total_ms,
            "action_durations_ms": {name: durations[name] for name in recording.policy.actions},
            "durations_ms": durations,
            "fingerprints": fingerprints,
            "plan": plan,
            "problems": problems,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(content, enc_hook=encode_as_text), indent=2))
        return
    for line in _lines(plan):
        click.echo(line)
    for problem in problems:
        click.echo(f"cannot be used: {problem}", err=True)
    click.echo(f"took {total_ms:g} ms: " + ", ".join(f"{name} {took:g} ms" for name, took in durations.items()))
    for name, digits in fingerprints.items():
        click.echo(f"fingerprint of the {name}: {digits}")


def _run(recording: RecordedCluster, durations: dict[str, float]) -> tuple[Plan, Snapshot]:
    """One cycle, timed action by action."""

    def timed(name: str, work: Callable[[], T]) -> T:
        began_s = time.perf_counter()
        result = work()
        durations[name] = round((time.perf_counter() - began_s) * 1000.0, 3)
        return result

    policy = recording.policy
    tables = timed("tables", recording.tables)
    snapshot = timed("snapshot", lambda: tables.snapshot(recording.now_ns))
    cycle = timed("open", lambda: open_cycle(snapshot, policy))
    for name in policy.actions:
        timed(name, partial(ACTIONS[name].run_in, cycle))
    return timed("close", lambda: build_plan(cycle)), tables.snapshot(recording.now_ns)


def state_fingerprint(snapshot: Snapshot) -> str:
    """A hash of what the cycle saw: nodes with their amounts, tasks with their states and places, queues."""
    digest = hashlib.sha256()
    digest.update("\0".join(snapshot.nodes.names).encode())
    digest.update(snapshot.allocatable.tobytes())
    digest.update(snapshot.columns.tobytes())
    for key in sorted(snapshot.task_records):
        task = snapshot.task_records[key]
        digest.update(f"{key}\0{task.uid}\0{task.status.name}\0{task.node}\0{','.join(task.gpu_groups)}\n".encode())
    digest.update("\0".join(snapshot.tree.names).encode())
    return digest.hexdigest()


def _lines(plan: Plan) -> list[str]:
    lines = [f"bind {each.namespace}/{each.pod} to {each.node}" for each in plan.binds]
    lines += [f"promise {each.node} to {each.namespace}/{each.pod}" for each in plan.nominations]
    for each in plan.evictions:
        cause = f" for {each.preemptor}" if each.preemptor else ""
        lines.append(f"evict {each.namespace}/{each.pod} from {each.node} ({each.action}{cause})")
    for group in plan.unscheduled:
        text = " ".join(group_text(group).split())
        lines.append(f"{group.namespace}/{group.group} waits with {group.pending} pods: {text}")
    lines += [orphan_text(orphan) for orphan in plan.orphans]
    lines += [f"ended early: {search}" for search in plan.stopped]
    return lines or ["nothing to do"]
