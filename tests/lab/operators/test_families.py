"""Choosing families of kinds, and definitions that an API server accepts."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from pykai.cli import main
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.clock import Clock
from pykai.kube.errors import ApiError
from pykai.kube.flags import OptionError
from pykai.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from pykai.kube.runtime import Runtime
from pykai.lab.operators.families import ALL, FAMILIES, read_families
from pykai.lab.operators.service import DefinitionInstaller, from_flags
from pykai.podgrouper.kinds.table import WORKLOAD_KINDS
from tests.lab.operators.operatedcluster import EXAMPLES, example, resource_of
from tests.servers import api_server


def names(text: str) -> list[str]:
    return [family.name for family in read_families(text)]


def test_families_are_chosen_by_name_and_bring_those_that_they_need() -> None:
    assert names("") == []
    assert names("ray, kubeflow") == ["kubeflow", "ray"]
    assert names("trainer") == ["trainer", "jobset"]
    assert names("all") == list(FAMILIES)


def test_an_unknown_family_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"there is no family of kinds 'rray'; did you mean ray\? expected kubeflow, "):
        read_families("kubeflow,rray")


def test_an_unknown_family_ends_the_command_before_anything_starts() -> None:
    result = CliRunner().invoke(main, ["up", "--kinds", "kubflow"])
    assert result.exit_code == 2
    assert "--kinds: there is no family of kinds 'kubflow'; did you mean kubeflow?" in result.output
    assert "Nothing was started." in result.output


def test_every_kind_is_one_that_the_pod_grouper_may_read() -> None:
    """A SparkApplication is not: its driver is the top (workloads:WK-POD). Runtimes own no pods."""
    known = {(group, kind) for group, _, kind in WORKLOAD_KINDS}
    defined = {(kind.resource.group, kind.resource.kind) for row in FAMILIES.values() for kind in row.kinds}
    assert {kind for group, kind in defined if (group, kind) not in known} == {
        "SparkApplication",
        "TrainingRuntime",
        "ClusterTrainingRuntime",
    }


async def test_flags_that_choose_nothing_are_refused() -> None:
    async with api_server(Clock()) as server:
        client = Client(server.transport())
        runtime = Runtime(client, Caches(client), Clock())
        with pytest.raises(OptionError, match="--kinds: '': expected names of families, or all"):
            from_flags(runtime, {"kinds": ""}, CollectorRegistry())
        assert [each.name for each in from_flags(runtime, {"kinds": "jobset"}, CollectorRegistry())] == [
            "definitions",
            "jobset-operator",
        ]


async def test_the_definitions_are_accepted_and_so_is_every_example() -> None:
    async with api_server(Clock(), namespaces=["default"]) as server:
        client = Client(server.transport())
        wanted = [kind.definition() for family in read_families(ALL) for kind in family.kinds]
        for _ in range(2):
            # The second time all of them exist.
            installer = DefinitionInstaller(Runtime(client, Caches(client), Clock()), wanted)
            await installer.run(asyncio.Event())
            assert installer.ready()
        for each in wanted:
            await established(client, each["metadata"]["name"])
        for path in sorted(EXAMPLES.glob("*.yaml")):
            for document in example(path.stem):
                resource = resource_of(document)
                await create_when_served(client, resource, document)
                stored = await client.get_raw(resource, document["metadata"]["name"], "default")
                assert stored["spec"] == document["spec"], path.stem


async def established(client: Client, name: str) -> None:
    """Wait until a definition is served."""
    async with asyncio.timeout(30):
        while True:
            found = await client.get_raw(CUSTOM_RESOURCE_DEFINITIONS, name)
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
            assert conditions.get("NonStructuralSchema") is None, conditions["NonStructuralSchema"]
            if conditions.get("Established", {}).get("status") == "True":
                return
            await asyncio.sleep(0.05)


async def create_when_served(
    client: Client, resource: Resource, document: dict[str, object], namespace: str = "default"
) -> None:
    """A real server serves a new kind a moment after it says so."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.create(resource, document, namespace)
                return
            except ApiError as error:
                if error.code not in (404, 503):
                    raise
            await asyncio.sleep(0.05)
