"""Each field of Config and SchedulingShard, changed: `changes.txt` says which objects follow."""

from __future__ import annotations

import pytest

from pykai.api.crds import custom_resource_definitions
from tests.operator.fieldchanges import NOTHING, table, written

TABLE = table()
#: KAI's fields that change nothing in KAI either, or that another part of ours reads, or that have no meaning here
WITHOUT_OBJECTS = {
    "binder.resourceReservation.image.pullPolicy": "the image is a flag of the binder, without a policy",
    "nodeScaleAdjuster.args.scalingPodImage.pullPolicy": "the image is a flag of the adjuster, without a policy",
    "numaPlacementExporter.service.k8sClientConfig": "a request for each pod whose placement changes",
    "podGroupController.controllerService": "the admission service answers the webhooks",
    "prometheus.externalPrometheusHealthProbe": "the operator checks it itself",
    "queueController.controllerService.webhook": "the admission service answers the webhooks",
    "scheduler.GOGC": "a setting of the Go runtime",
    "scheduler.schedulerService.name": "the Services are named after the shards",
    "scheduler.service.k8sClientConfig": "shards set the flags --qps and --burst",
    "goMemLimit": "a setting of the Go runtime",
}


@pytest.mark.parametrize("change", TABLE)
def test_a_change_of_a_field_changes_what_the_table_says(change: str) -> None:
    """operations:2, 3."""
    assert TABLE[change] == written().get(change), "python -m tests.operator.fieldchanges rewrites the table"


def test_the_table_has_no_other_rows() -> None:
    assert written().keys() == TABLE.keys()


def test_only_fields_with_a_reason_change_nothing() -> None:
    """operations:O-16, OC-4: budgets are made for three components only."""
    found = {change.split()[1] for change, lines in TABLE.items() if lines == [NOTHING]}
    assert {each for each in found if ".podDisruptionBudget." not in each and not _has_reason(each)} == set()
    assert {path for path in WITHOUT_OBJECTS if not any(each.startswith(path) for each in found)} == set()
    budgets = {each.split(".")[0] for each in found if ".podDisruptionBudget." in each}
    others = {"binder", "queueController", "podGroupController", "nodeScaleAdjuster", "numaPlacementExporter"}
    assert budgets == others


def _has_reason(path: str) -> bool:
    return any(path.startswith(each) for each in WITHOUT_OBJECTS)


@pytest.mark.parametrize("kind", ["Config", "SchedulingShard"])
def test_the_definitions_fill_in_nothing_and_describe_everything(kind: str) -> None:
    """operations:O-2."""
    (definition,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == kind)
    (version,) = definition["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    undescribed = []

    def look(schema: dict[str, object], path: str) -> None:
        assert "default" not in schema, path
        if path and not schema.get("description"):
            undescribed.append(path)
        below = schema.get("properties")
        for name, each in (below if isinstance(below, dict) else {}).items():
            look(each, f"{path}.{name}")

    look(properties["spec"], "spec")
    assert undescribed == []
