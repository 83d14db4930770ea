"""What a hostile tenant can do: every attack once, with what happened and what others felt.

    python -m tests.attack                 all of them
    python -m tests.attack --only 4 5      some, by their number
    python -m tests.attack --list          what there is

Each attack has a cluster of its own.  The command fails when an attack succeeds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from pykai.observe.logs import set_up_logging
from tests.attack import accounting, crowds, forging
from tests.attack.target import Document, Felt, Outcome, Target


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing a tenant tries."""

    point: str
    scenery: Callable[[], AbstractAsyncContextManager[Target]]
    run: Callable[[Target], Awaitable[Outcome]]
    tried: str


def _attack(
    point: str, scenery: Callable[[], AbstractAsyncContextManager[Target]], run: Callable[[Target], Awaitable[Outcome]]
) -> Attack:
    return Attack(point, scenery, run, (run.__doc__ or "").strip())


def _crowd(point: str, objects: Callable[[], Iterator[Document]]) -> Attack:
    async def run(cluster: Target) -> Outcome:
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
)


async def carry_out(attack: Attack) -> tuple[Outcome, Felt, Felt]:
    """One attack on a cluster of its own, and what others felt before and during."""
    async with attack.scenery() as cluster:
        before = await cluster.probe()
        outcome = await attack.run(cluster)
        during = await cluster.probe()
        for refusal in cluster.tenant.refusals[:1]:
            outcome = Outcome(outcome.repelled, f"{outcome.happened} (the API server refused: {refusal[:160]})")
        return outcome, before, during


def report(attack: Attack, outcome: Outcome, before: Felt, during: Felt) -> str:
    """Four lines about an attack."""
    return "\n".join(
        (
            f"{attack.point:>3}  {attack.tried}",
            f"     {'held' if outcome.repelled else 'BROKEN'}: {outcome.happened}",
            f"     others: slowest cycle {before.cycle_ms:.1f} -> {during.cycle_ms:.1f} ms, "
            f"a pod bound after {before.bind_ms:.0f} -> {during.bind_ms:.0f} ms",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="POINT", help="attacks whose number begins so")
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    options = parser.parse_args()
    chosen = [each for each in ATTACKS if not options.only or each.point.startswith(tuple(options.only))]
    if options.list:
        for each in chosen:
            print(f"{each.point:>3}  {each.tried}")
        return 0
    set_up_logging(0)
    broken = []
    for each in chosen:
        outcome, before, during = asyncio.run(carry_out(each))
        print(report(each, outcome, before, during), flush=True)
        if not outcome.repelled:
            broken.append(each.point)
    held = len(chosen) - len(broken)
    print(f"\n{held} of {len(chosen)} attacks held off" + (f"; broken by {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
