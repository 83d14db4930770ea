"""Consolidation: running work is moved together so that a waiting gang fits; nobody loses anything (cycle:14)."""

from __future__ import annotations

from collections.abc import Callable

from pykai.core.actions.taking import Method, take_back
from pykai.core.decisions import Verdict
from pykai.core.gangs import Gang
from pykai.core.hooks import Taking
from pykai.core.session import Session
from pykai.core.tasks import Task
from pykai.core.victims.search import Aim
from pykai.core.victims.trial import total_free_gpus
from pykai.core.victims.units import placed_in_cycle, victims_of


def consolidate(session: Session) -> None:
    """Move preemptible work where that makes room."""
    most = session.policy.max_consolidation_preemptees
    if most == 0:
        return
    free: dict[int, float] = {}

    def gate(gang: Gang) -> tuple[Verdict, bool] | None:
        if not gang.preemptible:
            return Verdict("consolidation", "not_preemptible"), False
        version = session.state.version
        if version not in free:
            free.clear()
            free[version] = total_free_gpus(session)
        asked = session.amounts(gang, session.largest_gpu_mib)[2]
        if asked > free[version] + 1e-6:
            return Verdict("consolidation", "too_little_free", "", "GPU", asked / 100.0, free[version] / 100.0), True
        return None

    def aim(gang: Gang) -> Aim:
        def accepts(victim: Gang) -> bool:
            # Nobody is moved twice in a cycle; what was only promised a place is not there to be moved.
            return victim is not gang and not placed_in_cycle(session, victim)

        return Aim("consolidation", victims_of(session).leaves(), accepts, _all_move, most, frozenset())

    def message(gang: Gang) -> Callable[[Gang, Task], str]:
        return lambda victim, task: (
            f"Pod {task.key} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
        )

    take_back(session, Method("consolidation", gate, aim, message, by_queue=False))


def _all_move(taking: Taking) -> str | None:
    for gang, losses in taking.losses:
        if any(not loss.moves for loss in losses):
            return f"there is no other place for {gang.key}"
    return None
