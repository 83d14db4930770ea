"""The frozen lists: one sorted file a topic, read from the running program, and compared with it.

`python -m tests.frozen` prints what differs, `python -m tests.frozen --write` writes the files again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.frozen import engine, stored, surface, written

FOLDER = Path(__file__).parent
#: topic -> what it lists
TOPICS: Mapping[str, Callable[[], list[str]]] = {
    "names": engine.wire_names,
    "simulator": engine.simulator_names,
    "events": lambda: [*engine.event_reasons(), *(f"seen {line}" for line in written.events())],
    "conditions": lambda: [*engine.condition_names(), *(f"seen {line}" for line in written.conditions())],
    "plugins": engine.plugins,
    "actions": engine.actions,
    "hooks": engine.hooks,
    "configuration": engine.configuration,
    "flags": surface.flags,
    "commands": surface.commands,
    "outputs": surface.outputs,
    "benchmarks": surface.benchmarks,
    "make": surface.make_targets,
    "entrypoints": surface.entry_points,
    "metrics": surface.metrics,
    "paths": surface.paths,
    "snapshot": stored.snapshot,
    "plan": stored.plan,
    "records": stored.records,
    "state": stored.state,
    "recordings": stored.recordings,
    "stories": stored.stories,
    "definitions": stored.definitions,
    "written": written.bodies,
}
_ADDED = """\
Lines marked "+" are new.  If you really mean to add them, and to keep them from now on, run

    python -m tests.frozen --write {topic}

and commit tests/frozen/{topic}.txt.
"""


def path_of(topic: str) -> Path:
    """The file of a topic."""
    return FOLDER / f"{topic}.txt"


def read(topic: str) -> list[str]:
    """What the running program has, sorted, each line once."""
    lines = sorted(set(TOPICS[topic]()))
    if not lines:
        raise AssertionError(f"nothing found for {topic}: tests/frozen reads it from the wrong place")
    return lines


def write(topic: str) -> None:
    """Freeze what the running program has."""
    path_of(topic).write_text("".join(f"{line}\n" for line in read(topic)), encoding="utf-8")


def difference(topic: str, frozen: list[str], running: list[str]) -> str:
    """What differs and what to do about it; "" when nothing does."""
    if frozen == running:
        return ""
    gone = [f"-{line}" for line in frozen if line not in set(running)]
    new = [f"+{line}" for line in running if line not in set(frozen)]
    changed = sorted((*gone, *new), key=lambda line: (line[1:], line[0]))
    parts = [f"tests/frozen/{topic}.txt is not what the program has:", "", *changed, ""]
    if gone:
        parts.append(
            'These names are a contract: users, other programs or files on disk rely on them.  Lines marked "-" were\n'
            "removed or changed; give them back."
        )
    if new:
        parts.append(_ADDED.format(topic=topic))
    return "\n".join(parts)


def check(topic: str) -> str:
    """Compare a topic; what differs, "" when nothing does."""
    path = path_of(topic)
    frozen = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return difference(topic, frozen, read(topic))
