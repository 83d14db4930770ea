"""Upstream-style objects of each page have the effect that docs/migrate.md names, all in one cluster."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from pykai.kube import resources
from pykai.kube.caches import Caches
from pykai.kube.client import Client
from pykai.kube.resources import Resource
from pykai.lab.cluster import LabCluster, LabOptions
from pykai.lab.machines.nodes import MachineKind, TopologyLevelLabels, machine_objects
from pykai.lab.operators.families import read_families
from pykai.operator.install import installation
from tests.lab.operators.operatedcluster import KINDS, example
from tests.migration.features import FEATURES, RACK, ROW, WORKLOADS, Document, Seen

FOLDER = Path(__file__).parent
ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "migrate.md").read_text(encoding="utf-8")
TIMEOUT_S = 60.0
NOW = "2026-11-18T12:00:00Z"
#: the kinds of the files, besides those of other projects
CREATED: dict[str, Resource] = {
    each.kind: each
    for each in (
        resources.PODS,
        resources.JOBS,
        resources.DEPLOYMENTS,
        resources.QUEUES,
        resources.POD_GROUPS,
        resources.TOPOLOGIES,
        resources.RESOURCE_CLAIMS,
        resources.CONFIGS,
        resources.SCHEDULING_SHARDS,
    )
} | KINDS


def special(purpose: str, gpus: int = 1, **more: Any) -> MachineKind:
    """A node for one feature, so that features do not compete."""
    return MachineKind(name=purpose, gpus=gpus, labels={"for": purpose}, **more)


def machines() -> list[MachineKind]:
    levels = (TopologyLevelLabels(ROW, 4, "segments-row"), TopologyLevelLabels(RACK, 2, "segments-rack"))
    return [
        MachineKind(count=8, name="any-{}", gpus=8, labels={"for": "any"}),
        special("single"),
        special("elastic", 2),
        *(special(purpose) for purpose in ("fairness", "priority", "runtime", "delay", "nv-fraction", "background")),
        special("sharing", 2),
        special("elsewhere"),
        *(
            # By name, machines of the racks take turns: the first two, which pods get otherwise, are not of one rack.
            MachineKind(
                count=2,
                name=f"topology-{{}}-{rack}",
                gpus=2,
                labels={"for": "topology", ROW: "topology-row", RACK: f"rack-{rack}"},
            )
            for rack in ("left", "right")
        ),
        MachineKind(count=4, name="segments-{}", gpus=2, labels={"for": "segments"}, levels=levels),
        MachineKind(name="mig", gpus=1, mig={"1g.10gb": 7}),
        MachineKind(name="dra", gpus=2, dra=True),
    ]


def nodes() -> Iterator[Document]:
    for each in machine_objects(machines(), NOW):
        if each["metadata"]["name"] == "elsewhere":
            each["metadata"]["labels"]["kai.scheduler/node-pool"] = "elsewhere"
        yield each


class FeatureCluster:
    """The lab, and what is seen of it."""

    def __init__(self, lab: LabCluster) -> None:
        self.client = Client(lab.server.transport())
        self.caches = Caches(self.client)
        self.pods = self.caches.store(resources.PODS, dict)
        self.groups = self.caches.store(resources.POD_GROUPS, dict)
        self.nodes = self.caches.store(resources.NODES, dict)
        self.others = [self.caches.store(each, dict) for each in (resources.CONFIGS, resources.SCHEDULING_SHARDS)]

    def seen(self) -> Seen:
        pods, groups = (
            {each["metadata"]["name"]: each for each in store.values()} for store in (self.pods, self.groups)
        )
        labels = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in self.nodes.values()}
        kinds = ("Config", "SchedulingShard")
        others = {
            f"{kind}/{each['metadata']['name']}": each
            for kind, store in zip(kinds, self.others, strict=True)
            for each in store.values()
        }
        return Seen(pods, groups, labels, others)

    async def apply(self, documents: list[Document]) -> None:
        for each in documents:
            resource = CREATED[each["kind"]]
            await self.client.create(resource, each, "default" if resource.namespaced else "")

    async def until(self, holds: Callable[[Seen], bool]) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not holds(self.seen()):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return False
        return True

    def why_not(self, names: set[str]) -> dict[str, str]:
        """The pods of a feature that did not come true, for the message of the failed test."""
        return {
            name: f"{pod['status'].get('phase')} on {pod['spec'].get('nodeName')}: {pod['status'].get('conditions')}"
            for name, pod in self.seen().pods.items()
            if any(name.startswith(each) for each in names)
        }


@asynccontextmanager
async def feature_cluster() -> AsyncIterator[FeatureCluster]:
    families = read_families("kubeflow,ray,lws")
    objects = [*installation(), *nodes()]
    lab = await LabCluster.start(LabOptions(speed=20, objects=objects, families=families))
    stop = asyncio.Event()
    running = asyncio.create_task(lab.run(stop))
    cluster = FeatureCluster(lab)
    await cluster.caches.start()
    await cluster.caches.wait_for_sync()
    try:
        yield cluster
    finally:
        await cluster.caches.stop()
        stop.set()
        await running


def objects_of(name: str) -> list[Document]:
    return list(filter(None, yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))))


async def test_every_feature_has_its_effect() -> None:
    async with feature_cluster() as cluster:
        failed: dict[str, Any] = {}

        async def check(name: str, first: Callable[[Seen], bool] | None, holds: Callable[[Seen], bool]) -> None:
            await cluster.apply(objects_of(name))
            files = [name]
            if first is not None:
                files.append(f"{name}-then")
                if not await cluster.until(first):
                    failed[f"{name}, first part"] = ""
                await cluster.apply(objects_of(files[1]))
            if not await cluster.until(holds):
                made = {each["metadata"]["name"] for file in files for each in objects_of(file)}
                failed[name] = cluster.why_not(made)

        async def check_workload(name: str, minimum: int) -> None:
            await cluster.apply(list(example(name)))
            (top,) = [each["metadata"]["name"] for each in example(name) if each["kind"] in KINDS][-1:]

            def is_grouped(seen: Seen) -> bool:
                return any(
                    group.startswith(f"pg-{top}-") and each["spec"].get("minMember") == minimum
                    for group, each in seen.groups.items()
                )

            if not await cluster.until(is_grouped):
                failed[name] = {each: found["spec"] for each, found in cluster.seen().groups.items() if top in each}

        topology, others = [[row for row in FEATURES if (row.name == "topology") is chosen] for chosen in (True, False)]
        # Segments use the Topology of that feature.
        for row in topology:
            await check(row.name, row.first, row.holds)
        await asyncio.gather(*(check(row.name, row.first, row.holds) for row in others))
        # Their pods run on any node, also on those for one feature.
        await asyncio.gather(*(check_workload(name, minimum) for name, minimum in WORKLOADS.items()))
        assert failed == {}


def rows(heading: str) -> list[list[str]]:
    section = DOC.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]


def test_the_table_of_the_document_is_the_one_that_is_tested() -> None:
    listed = [
        (page.strip("`"), verdict, re.findall(r"`tests/migration/([\w-]+)\.yaml`", proof))
        for page, _, verdict, _, proof in rows("Feature by feature")
    ]
    tested = [(row.page, row.verdict, [row.name]) for row in FEATURES]
    assert sorted(each for each in listed if each[2]) == sorted(tested)
    assert {verdict for _, verdict, _ in listed} == {"same", "better", "different", "not there"}


def proofs() -> list[str]:
    return [each for *_, cell in rows("Feature by feature") for each in re.findall(r"`([^`]+)`", cell)]


def is_proof(text: str) -> bool:
    """Whether it names a test that there is, or a file of objects that is applied."""
    path, _, name = text.partition("::")
    file = ROOT / path
    if path.startswith("tests/migration/") and path.endswith(".yaml"):
        return file.stem in {row.name for row in FEATURES} and not name
    return file.suffix == ".py" and file.is_file() and name in defined_tests(file)


def defined_tests(file: Path) -> set[str]:
    """The tests of a module."""
    found = ast.parse(file.read_text(encoding="utf-8")).body
    functions = [each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {each for each in functions if each.startswith("test_")}


def test_every_proof_exists() -> None:
    assert len(proofs()) > len(FEATURES)
    assert [each for each in proofs() if not is_proof(each)] == []
    assert [page for page, *_, cell in rows("Feature by feature") if "`" not in cell] == []


@pytest.mark.parametrize(
    "text",
    [
        "docs/spec/not-built-yet.md",
        "tests/migration/features.py",
        "tests/migration/gone.yaml",
        "tests/migration/priority-then.yaml",
        "tests/services/scheduler/test_binds.py",
        "tests/services/scheduler/test_binds.py::test_that_is_gone",
        "tests/services/scheduler/test_gone.py::test_names",
    ],
)
def test_a_page_a_file_or_a_name_that_is_gone_is_no_proof(text: str) -> None:
    assert not is_proof(text)


def test_every_kind_that_is_named_is_tested() -> None:
    (named,) = (feature for page, feature, *_ in rows("Feature by feature") if "PyTorchJob" in feature)
    assert {each.lower() for each in re.findall(r"[A-Z]\w+", named)} == WORKLOADS.keys()


def test_every_file_belongs_to_a_feature() -> None:
    names = {row.name for row in FEATURES} | {f"{row.name}-then" for row in FEATURES if row.first is not None}
    assert {path.stem for path in FOLDER.glob("*.yaml")} == names
