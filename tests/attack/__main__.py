"""What a hostile tenant can do: every attack once, with its outcome and the effect on others.

    python -m tests.attack                 all of them
    python -m tests.attack --only 4 7b     some: a number, of all its attacks, or one of these
    python -m tests.attack --policies      with the admission policies, which refuse most of it at once
    python -m tests.attack --list          what there is
    python -m tests.attack --jobs 4        several at once: quicker, but the times of cycles mean nothing

Each attack has a process and a cluster of its own.  The command fails when an attack succeeds.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.attack.catalogue import chosen_attacks, report, run_attack_in_process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="POINT", help="7 for all attacks 7a to 7f, 7b for one")
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    parser.add_argument("--policies", action="store_true", help="with the admission policies of `kai manifests`")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at once (1)")
    options = parser.parse_args()
    chosen = chosen_attacks(options.only)
    if options.list:
        for each in chosen:
            print(f"{each.point:>3}  {each.tried}")
        return 0
    broken = []
    run = partial(run_attack_in_process, policies=options.policies)
    # A process for each: what one attack leaves in memory is not the next one's.
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for each, ended in zip(chosen, pool.map(run, [each.point for each in chosen]), strict=True):
            print(report(each, *ended), flush=True)
            if not ended[0].repelled:
                broken.append(each.point)
    held = len(chosen) - len(broken)
    print(f"\n{held} of {len(chosen)} attacks held off" + (f"; broken by {', '.join(broken)}" if broken else ""))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
