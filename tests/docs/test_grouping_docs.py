"""The pages about groups and statuses name every flag, condition, metric and key that the code has."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from pykai.api import names
from pykai.api.decode import decode_as
from pykai.api.workloadapi import KubernetesWorkload
from pykai.kube.flags import Flag
from pykai.podgrouper import options as grouper
from pykai.podgrouper.declaredkinds import read_declared_kinds
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from pykai.podgroups import options as podgroups
from pykai.queues import gauges
from pykai.queues import options as queues

DOCS = Path(__file__).parents[2] / "docs"
GROUPER = (DOCS / "podgrouper.md").read_text(encoding="utf-8")
STATUSES = (DOCS / "statuses.md").read_text(encoding="utf-8")


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"`--([a-z-]+)`", text))


def flag_names(flags: Iterable[Flag]) -> set[str]:
    return {flag.name for flag in flags}


def test_every_flag_is_listed_and_no_other() -> None:
    assert flags_in(GROUPER.partition("## Flags")[2]) == flag_names(grouper.FLAGS)
    assert flags_in(STATUSES.partition("## Flags")[2]) == flag_names(podgroups.FLAGS) | flag_names(queues.FLAGS)


def test_every_option_has_a_flag() -> None:
    for options, flags in (
        (grouper.PodGrouperOptions, grouper.FLAGS),
        (podgroups.PodGroupsOptions, podgroups.FLAGS),
        (queues.QueuesOptions, queues.FLAGS),
    ):
        assert {field.name for field in dataclasses.fields(options)} == {flag.field for flag in flags} - {""}


def unlisted_kinds(doc: str) -> set[str]:
    """Kinds of the table without their grouping on the page, or not listed as read."""
    grouped_rows, read_rows = (
        doc.partition(f"| {heading} |")[2].partition("\n\n")[0] for heading in ("kind", "API group")
    )
    grouped = set(re.findall(r"\w+", " ".join(row.split("|")[1] for row in grouped_rows.splitlines()[2:])))
    read = {
        (group, kind)
        for group, kinds in re.findall(r"^\| `(.*?)` \| (.*) \|$", read_rows, re.MULTILINE)
        for kind in kinds.split(", ")
    }
    return {
        row.resource.kind
        for row in WORKLOAD_KINDS.values()
        if (row.resource.kind not in grouped if row.grouper else (row.resource.group, row.resource.kind) not in read)
    }


def test_every_kind_is_listed() -> None:
    assert unlisted_kinds(GROUPER) == set()


def test_every_suspend_path_is_listed() -> None:
    rows = GROUPER.partition("| kind | field |")[2].partition("\n\n")[0]
    listed = {
        kind: path for kinds, path in re.findall(r"^\| (\w.*) \| `(.*)` \|$", rows, re.M) for kind in kinds.split(", ")
    }
    suspended = [row for row in WORKLOAD_KINDS.values() if row.suspend_path is not None]
    assert listed == {row.resource.kind: ".".join(row.suspend_path or ()) for row in suspended}


def block(language: str, heading: str = "") -> str:
    """The first block of code in a language, below a heading."""
    found = re.search(rf"```{language}\n(.*?)```", GROUPER.partition(heading)[2] if heading else GROUPER, re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_gang_of_the_page_is_one() -> None:
    gang, job = yaml.safe_load_all(block("yaml", "## Gangs of Kubernetes"))
    (group,) = decode_as(KubernetesWorkload, gang).spec.pod_groups
    assert job["spec"]["template"]["spec"]["workloadRef"] == {"name": gang["metadata"]["name"], "podGroup": group.name}
    assert group.policy.gang is not None
    assert group.policy.gang.min_count == job["spec"]["parallelism"]


def test_the_declared_kinds_of_the_page_are_valid() -> None:
    found = read_declared_kinds(yaml.safe_load(block("yaml", "### Declare a kind"))["data"]["kinds"])
    assert (list(found.kinds), found.problems) == ([("example.com", "v1", "Sweep")], ())


def test_the_grouper_of_the_page_is_the_example() -> None:
    example = DOCS.parent / "examples" / "groupers" / "sweep"
    assert block("python").strip() in (example / "sweep.py").read_text(encoding="utf-8")
    assert block("toml").strip() in (example / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "condition",
    [
        names.CONDITION_GROUP_READY,
        names.CONDITION_GROUP_SCHEDULED,
        names.CONDITION_GROUP_RUNNING,
        names.CONDITION_VALID,
        names.CONDITION_ORPHAN,
        names.CONDITION_CYCLIC,
        names.CONDITION_OVER_QUOTA,
    ],
)
def test_every_condition_is_listed(condition: str) -> None:
    assert f"| `{condition}` |" in STATUSES


def test_every_metric_is_listed() -> None:
    assert set(re.findall(r"`kai_([a-z_]+)`", STATUSES)) == gauges.HELP.keys()


@pytest.mark.parametrize(
    "key",
    [
        names.QUEUE_LABEL,
        names.PROJECT_LABEL,
        names.PRIORITY_CLASS_LABEL,
        names.PREEMPTIBILITY_LABEL,
        names.USER_LABEL,
        names.PREEMPTION_DELAY_ANNOTATION,
        names.STALENESS_GRACE_PERIOD_ANNOTATION,
        names.TOPOLOGY_ANNOTATION,
        names.TOPOLOGY_REQUIRED_ANNOTATION,
        names.TOPOLOGY_PREFERRED_ANNOTATION,
        names.BATCH_MIN_MEMBER_ANNOTATION,
        names.POD_GROUP_ANNOTATION,
        names.SUBGROUP_LABEL,
        names.SPARK_APP_SELECTOR_LABEL,
        names.LAST_APPLIED_ANNOTATION,
        names.EVENT_POD_GROUPER_WARNING,
        names.EVENT_INVALID_WORKLOAD,
    ],
)
def test_every_key_is_listed(key: str) -> None:
    assert f"`{key}`" in GROUPER


def test_every_reason_is_listed() -> None:
    """Reasons of the condition `Valid` are what a user searches for."""
    source = Path(__file__).parents[2] / "src" / "pykai"
    found = set()
    for path in ("podgroups/status.py", "queues/status.py"):
        text = (source / path).read_text(encoding="utf-8").partition("def _invalid")[2]
        found |= set(re.findall(r'^\s+(?:return )?"([A-Z][A-Za-z]+)",', text, re.MULTILINE))
    assert found >= {"InvalidSubGroups", "NoResources"}
    assert {reason for reason in found if f"`{reason}`" not in STATUSES} == set()
