"""Affinity of the pods of components (operations:O-17)."""

from __future__ import annotations

from typing import Any

from pykai.api.unstructured import JsonMapping


def merged_affinity(
    app: str, own: JsonMapping | None, shared: JsonMapping | None, *, replicas: int, apart: bool
) -> dict[str, Any] | None:
    """The affinity of a component; `apart` forbids two replicas on one node.

    Several replicas are kept apart where nothing else is said (operations:OD-5): KAI Scheduler does so only where both
    affinities are set.
    """
    affinity = dict(own or shared or {})
    if own is not None and shared is not None:
        affinity = {**shared, **own}
    if "podAntiAffinity" not in affinity and (replicas > 1 or (own is not None and shared is not None)):
        affinity["podAntiAffinity"] = _kept_apart(app, apart)
    return affinity or None


def _kept_apart(app: str, required: bool) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    rules: dict[str, Any] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]
    }
    if required:
        rules["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
    return rules
