"""Scheduler flags as a case gives them: `settings`, name without dashes -> value.

A flag that shapes the model goes into the `Shard`.  Flags of actions the engine does not have yet are read all the
same, so that an engine that gets the action only has to look here; flags without influence on decisions are taken and
forgotten.  Any other flag cannot be obeyed, and a case that sets it cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pykai.api import names
from pykai.api.duration import parse_duration
from pykai.core.shard import Shard
from pykai.simulator.cases import CaseError


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags of a case, with the values all cases share where KAI Scheduler's own default differs."""

    shard: Shard = field(default_factory=Shard)
    #: how long a gang may be incomplete before it is evicted; negative = for ever
    staleness_grace_ns: int = names.STALENESS_GRACE_S * 1_000_000_000
    #: jobs that consolidation may move; -1 = any number
    max_consolidation_preemptees: int = -1
    allow_consolidating_reclaim: bool = True
    #: reuse the outcome of equal attempts
    use_scheduling_signatures: bool = True


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"expected true or false, got {value!r}")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(value)


def _span(value: object) -> int:
    return parse_duration(_text(value))


def _stuck(value: object) -> int:
    span = _span(value)
    return span if span > 0 else names.STUCK_IN_RELEASING_S * 1_000_000_000


#: flag -> field of the shard, how to read it
_SHARD: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "scheduler-name": ("scheduler_name", _text),
    "nodepool-label-key": ("node_pool_key", _text),
    "partition-label-value": ("node_pool", _text),
    "resource-reservation-app-label": ("reservation_app", _text),
    "restrict-node-scheduling": ("restrict_nodes", _switch),
    "gpu-worker-node-label-key": ("gpu_worker_label", _text),
    "cpu-worker-node-label-key": ("cpu_worker_label", _text),
    "mig-worker-node-label-key": ("mig_label", _text),
    "full-hierarchy-fairness": ("full_hierarchy", _switch),
    "stuck-in-releasing-threshold": ("stuck_after_ns", _stuck),
}
#: flag -> field of Settings, how to read it
_OWN: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "default-staleness-grace-period": ("staleness_grace_ns", _span),
    "max-consolidation-preemptees": ("max_consolidation_preemptees", _whole),
    "allow-consolidating-reclaim": ("allow_consolidating_reclaim", _switch),
    "use-scheduling-signatures": ("use_scheduling_signatures", _switch),
}
#: Flags that decide nothing.
_WITHOUT_EFFECT = frozenset(("schedule-period", "detailed-fit-errors", "qps", "burst", "v", "log-json"))


def read_settings(flags: Mapping[str, object]) -> Settings:
    """The settings that the flags make; raises CaseError for a flag that cannot be obeyed."""
    shard: dict[str, object] = {}
    own: dict[str, object] = {}
    for flag, value in flags.items():
        name = flag.removeprefix("--")
        if name in _WITHOUT_EFFECT:
            continue
        place, table = (shard, _SHARD) if name in _SHARD else (own, _OWN)
        if name not in table:
            raise CaseError(f"settings.{flag}: this runner cannot set it")
        target, read = table[name]
        try:
            place[target] = read(value)
        except ValueError as error:
            raise CaseError(f"settings.{flag}: {error}") from error
    return replace(Settings(shard=replace(Shard(), **shard)), **own)  # type: ignore[arg-type]
