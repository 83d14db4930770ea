"""Every attack, with the cluster it runs on, and how one is carried out and reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from string import ascii_lowercase

from pykai.observe.logs import set_up_logging
from tests.attack import accounting, crowds, fieldrun, forging, queues
from tests.attack.target import POLICIES, AttackOutcome, Document, Impact, Target


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing a tenant tries."""

    point: str
    cluster: Callable[[], AbstractAsyncContextManager[Target]]
    run: Callable[[Target], Awaitable[AttackOutcome]]
    tried: str


def _attack(
    point: str,
    scenery: Callable[[], AbstractAsyncContextManager[Target]],
    run: Callable[[Target], Awaitable[AttackOutcome]],
) -> Attack:
    return Attack(point, scenery, run, (run.__doc__ or "").strip())


def _crowd(point: str, objects: Callable[[], Iterator[Document]]) -> Attack:
    async def run(cluster: Target) -> AttackOutcome:
        return await crowds.crowd(cluster, objects())

    return Attack(point, crowds.thousand_nodes, run, (objects.__doc__ or "").strip())


ATTACKS = (
    _attack("1a", forging.eight_gpus, forging.forged_plan),
    _attack("1b", forging.eight_gpus, forging.forged_share),
    _attack("1c", forging.claimed_gpus, forging.forged_claim),
    _attack("1d", forging.eight_gpus, forging.forged_request),
    _attack("2", forging.eight_gpus, forging.fake_reservations),
    _attack("3a", forging.eight_gpus, forging.foreign_groups),
    _attack("3b", forging.eight_gpus, forging.node_name),
    _attack("3c", forging.eight_gpus, forging.free_ride),
    _attack("4", accounting.fast_machine, accounting.long_deletion),
    _attack("5", accounting.shared_machine, accounting.endless_evictions),
    _attack("6", accounting.protected_machine, accounting.forged_start),
    _crowd("7a", crowds.affinity),
    _crowd("7b", crowds.anti_affinity),
    _crowd("7c", crowds.unknown_topology),
    _crowd("7d", crowds.trees),
    _crowd("7e", crowds.invented_names),
    _crowd("7f", crowds.shares),
    _attack("8", forging.eight_gpus, forging.config_maps),
    _attack("9a", queues.closed_queue, queues.foreign_labels),
    _attack("9b", queues.closed_queue, queues.foreign_pod_groups),
    _attack("9c", queues.closed_queue, queues.foreign_bind_request),
    _attack("10", fieldrun.shared_cluster, fieldrun.every_field),
)


def chosen_attacks(only: Sequence[str]) -> list[Attack]:
    """The attacks with these points, and all of the numbers that stand without a letter; without any, all of them.

    Raises `SystemExit` for a point that there is not: a check of nothing would pass.
    """
    unknown = [point for point in only if not any(_is_chosen(each, point) for each in ATTACKS)]
    if unknown:
        raise SystemExit(f"--only: there is no attack {', '.join(unknown)}; --list shows all")
    return [each for each in ATTACKS if not only or any(_is_chosen(each, point) for point in only)]


def _is_chosen(attack: Attack, point: str) -> bool:
    return point in (attack.point, attack.point.rstrip(ascii_lowercase))


async def run_attack(attack: Attack) -> tuple[AttackOutcome, Impact, Impact]:
    """One attack on a cluster of its own, and the effect on others before and during it."""
    async with attack.cluster() as cluster:
        # The first cycles import and compile, so they are not measured.
        await cluster.probe()
        before = await cluster.probe()
        outcome = await attack.run(cluster)
        during = await cluster.probe()
        for refusal in cluster.tenant.refusals[:1]:
            outcome = AttackOutcome(outcome.repelled, f"{outcome.happened} (the API server refused: {refusal[:160]})")
        return outcome, before, during


def run_attack_in_process(point: str, policies: bool) -> tuple[AttackOutcome, Impact, Impact]:
    """One attack, in a process of its own."""
    set_up_logging(0)
    # The services warn of what they refuse; the report has it already.
    logging.disable(logging.WARNING)
    POLICIES.set(policies)
    return asyncio.run(run_attack(next(each for each in ATTACKS if each.point == point)))


def report(attack: Attack, outcome: AttackOutcome, before: Impact, during: Impact) -> str:
    """Four lines about an attack."""
    return "\n".join(
        (
            f"{attack.point:>3}  {attack.tried}",
            f"     {'held' if outcome.repelled else 'BROKEN'}: {outcome.happened}",
            f"     others: slowest cycle {before.cycle_ms:.1f} -> {during.cycle_ms:.1f} ms, "
            f"a pod bound after {before.bind_ms:.0f} -> {during.bind_ms:.0f} ms",
        )
    )
