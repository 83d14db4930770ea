"""What an installation would do, said before it is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner, Result

from pykai.api import names
from pykai.cli.install import install, upgrade
from pykai.kube import resources
from pykai.kube.client import Client, PatchKind
from pykai.kube.clock import Clock
from pykai.kube.transport import Request, Response
from pykai.lab.apiserver.server import ApiServer
from pykai.operator.hooks.steps import StepFailure
from pykai.operator.installing import cluster
from pykai.operator.installing.previewing import PreviewOutcome
from pykai.operator.installing.release import Release, key_of, release_objects
from pykai.operator.installing.shadow import SHADOW_NAMESPACE
from tests.operator.installations import kueue_topologies


class RefusingTransport:
    """Lets no write through that would be stored."""

    def __init__(self, server: ApiServer) -> None:
        self._inner = server.transport()

    async def send(self, request: Request) -> Response:
        assert request.method == "GET" or request.query.get("dryRun") == "All", f"{request.method} {request.path}"
        return await self._inner.send(request)

    def stream(self, request: Request) -> Any:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


async def installed(client: Client, **values: Any) -> None:
    async for _ in cluster.install(client, Release(values), Clock()):
        pass


async def previewed(server: ApiServer, **values: Any) -> dict[tuple[str, str], str]:
    """PreviewOutcome and note by kind and name; an outcome of its own for each."""
    found = [each async for each in cluster.preview(Client(RefusingTransport(server)), Release(values))]
    listed = {(each.kind, each.name): f"{each.outcome.value}{each.note}" for each in found}
    # A role and a binding of the reservations and of the services have the same name.
    assert {kind for kind, _ in listed} >= {each.kind for each in found}
    return listed


async def test_all_is_made_in_an_empty_cluster_and_what_stays_is_marked(server: ApiServer, client: Client) -> None:
    """install:dry-run."""
    await client.create(resources.QUEUES, {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {"priority": 7}})
    found = await previewed(server)
    assert found.pop(("Queue", names.DEFAULT_QUEUE)) == "keep: it is there already"
    # The embedded server has them from the start.
    definitions = {key: found.pop(key) for key in list(found) if key[0] == "CustomResourceDefinition"}
    assert len(definitions) == 6
    assert set(definitions.values()) == {"unchanged"}
    wanted = {key_of(each)[1::2] for each in release_objects(Release())}
    assert found.keys() == wanted - {("Queue", names.DEFAULT_QUEUE)}
    kept = {key for key, text in found.items() if text == "create, which an uninstallation keeps"}
    assert {kind for kind, _ in kept} == {"Namespace", "ServiceAccount", "Queue", "SchedulingShard"}
    assert {text for key, text in found.items() if key not in kept} == {"create"}


async def test_each_object_has_the_outcome_that_an_installation_has(server: ApiServer, client: Client) -> None:
    """install:dry-run."""
    await installed(client)
    assert set((await previewed(server)).values()) == {"unchanged", "keep: it is there already"}
    await client.delete(resources.PRIORITY_CLASSES, "train")
    await client.create(resources.PRIORITY_CLASSES, {"metadata": {"name": "train"}, "value": 51})
    await client.delete(resources.QUEUES, names.DEFAULT_QUEUE)
    await client.delete(resources.CONFIGS, "kai-config")
    await kueue_topologies(client, good=["zone"], bad=["zone", "zone"], there=["rack"])
    await client.create(resources.TOPOLOGIES, {"metadata": {"name": "there"}, "spec": {"levels": [{"nodeLabel": "a"}]}})
    values = {"operator": {"replicaCount": 2}, "defaultPriorityClasses": {"enabled": False}}
    found = await previewed(server, **values)
    assert found["Config", "kai-config"] == "create"
    assert found["Deployment", "kai-operator"].startswith("change: ")
    assert "spec.replicas" in found["Deployment", "kai-operator"]
    assert found["PriorityClass", "inference"] == "delete"
    assert found["PriorityClass", "train"] == "keep: it was made by others"
    # Queues are the user's from the start.
    assert "Queue" not in {kind for kind, _ in found}
    assert found["Topology", "good"] == "create, copied from Kueue"
    assert found["Topology", "there"] == "keep: it is there already"
    assert found["Topology", "bad"].startswith("refused, copied from Kueue: ")
    assert found["ClusterRole", "kai-kai-operator"] == "unchanged"
    external = await previewed(server, kaiConfigDeployer={"enabled": False})
    assert external["Config", "kai-config"] == "keep: these values leave it to you"
    assert external["PriorityClass", "train"].startswith("refused: ")


async def test_shadows_are_looked_at_before_they_are_made(server: ApiServer, client: Client) -> None:
    """install:dry-run."""
    release = Release(namespace=SHADOW_NAMESPACE)

    async def outcomes() -> set[PreviewOutcome]:
        looked = cluster.preview_shadow(Client(RefusingTransport(server)), release)
        return {each.outcome async for each in looked}

    assert await outcomes() == {PreviewOutcome.CREATE}
    async for _ in cluster.install_shadow(client, release):
        pass
    assert await outcomes() == {PreviewOutcome.KEEP, PreviewOutcome.UNCHANGED}


async def test_the_commands_say_it_and_end_with_a_code(server: ApiServer, client: Client, tmp_path: Path) -> None:
    """install:dry-run."""
    await server.serve()
    server.kubeconfig(tmp_path / "config")

    async def run(command: Command, *arguments: str) -> Result:
        given = [*arguments, "--kubeconfig", str(tmp_path / "config")]
        return await asyncio.to_thread(CliRunner().invoke, command, given)

    fresh = await run(install, "--dry-run=server")
    assert fresh.exit_code == 3, fresh.output
    assert "create Deployment kai-operator\n" in fresh.output
    assert fresh.output.endswith("create, 6 unchanged; nothing was written\n")
    assert await client.list_raw(resources.DEPLOYMENTS) == []
    await installed(client)
    settled = await run(install, "--dry-run=server")
    assert settled.exit_code == 0, settled.output
    assert "unchanged Deployment kai-operator\n" in settled.output
    checked = await run(upgrade, "--check")
    assert (checked.exit_code, checked.output) == (0, "nothing would change\n")
    checked = await run(upgrade, "--check", "--set", "operator.replicaCount=2")
    assert checked.exit_code == 3
    assert {line.split()[0] for line in checked.output.splitlines()} == {"change"}
    shadow = await run(install, "--dry-run=server", "--shadow")
    assert shadow.exit_code == 3
    assert "create Deployment kai-shadow-default\n" in shadow.output
    assert (
        "--include-crds: goes with --dry-run=client"
        in (await run(install, "--dry-run=server", "--include-crds")).output
    )


async def test_what_would_be_refused_is_refused(server: ApiServer, client: Client) -> None:
    """install:dry-run: an installation of Helm, as in an installation."""
    await installed(client)
    mark = {"metadata": {"annotations": {"meta.helm.sh/release-name": "kai"}}}
    await client.patch(resources.DEPLOYMENTS, "kai-operator", mark, names.DEFAULT_NAMESPACE, kind=PatchKind.MERGE)
    with pytest.raises(StepFailure, match="helm upgrade kai"):
        await previewed(server)
