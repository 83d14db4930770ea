"""Counts of what a comparison has covered, to reveal trivial sets of clusters."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Counts:
    """Counts by kind of decision."""

    def __init__(self) -> None:
        self.total = 0
        self._decisions: Counter[str] = Counter()
        self._evictions: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._verdicts: Counter[str] = Counter()
        self._features: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()

    def add(self, line: dict[str, Any]) -> None:
        """Count a line of a runner."""
        self.total += 1
        self._features.update(line.get("features") or ())
        if "write" in line:
            self._writes[f"{line['write']['by']} {line['write']['method']}"] += 1
        if "differences" in line:
            self._decisions["cases as recorded"] += not line["differences"]
            self._decisions["cases that differ from what was recorded"] += bool(line["differences"])
        plan = line.get("plan")
        if plan is None:
            return
        self._decisions["cycles"] += 1
        for word, field in (("binds", "binds"), ("promises", "nominations"), ("stale gangs", "stale")):
            self._decisions[word] += len(plan[field])
        for bind in plan["binds"]:
            self._decisions[f"binds {bind['received_type']}"] += 1
            self._decisions["binds with claims"] += bool(bind["claims"] or bind["extended_claim"])
            self._decisions["binds with NUMA zones"] += bool(bind["numa_zones"])
            self._decisions["binds of several shared GPUs"] += len(bind["gpu_groups"]) > 1
        self._decisions["promises on shared GPUs"] += sum(bool(each["gpu_groups"]) for each in plan["nominations"])
        self._decisions["promises held for pods in deletion"] += sum(bool(each["held"]) for each in plan["nominations"])
        self._decisions["plans with nothing to do"] += not (plan["binds"] or plan["evictions"])
        for eviction in plan["evictions"]:
            self._evictions[eviction["action"]] += 1
            self._evictions["moved"] += bool(eviction["moves_to"])
            self._evictions["not bound yet"] += eviction["unbound"]
        for group in plan["unscheduled"]:
            self._refusals.update(each["type"] for each in group["refusals"])
            for refusal in group["refusals"]:
                for reason in refusal.get("nodes") or ():
                    self._refusals[f"nodes: {_short(reason)}"] += 1
            self._verdicts.update(f"{each['action']} {each['rule']}" for each in group["verdicts"])

    def lines(self) -> list[str]:
        """The counts as text."""
        named = {
            "decisions": self._decisions,
            "evictions": self._evictions,
            "refusals": self._refusals,
            "no eviction": self._verdicts,
            "features": self._features,
            "writes": self._writes,
        }
        return [
            f"{word}: {', '.join(f'{name} {count}' for name, count in counts.most_common() if count)}"
            for word, counts in named.items()
            if any(counts.values())
        ]


def _short(reason: str) -> str:
    """A reason without names and figures."""
    return " ".join(word for word in reason.split()[:8] if not any(letter.isdigit() for letter in word))[:48]
