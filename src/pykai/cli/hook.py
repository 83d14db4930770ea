"""`kai hook`: what the Jobs of the Helm chart run; `kai install` and `kai uninstall` do the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pykai.kube.client import Client

_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or the own pod's."
)


@click.group()
def hook() -> None:
    """Run one step of an installation, an upgrade or a deletion, as the Helm chart does."""


@hook.command("crd-upgrader")
@_KUBECONFIG
def upgrade(kubeconfig: Path | None) -> None:
    """Bring the definitions of KAI's kinds up to date."""
    from pykai.operator.hooks.steps import upgrade_definitions

    run_step(kubeconfig, upgrade_definitions)


@hook.command("topology-migration")
@_KUBECONFIG
def migrate(kubeconfig: Path | None) -> None:
    """Copy Kueue's Topologies that are not there yet."""
    from pykai.operator.hooks.steps import migrate_topologies

    run_step(kubeconfig, migrate_topologies)


@hook.command("kai-config-deployer")
@click.option("--file", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The Config.")
@_KUBECONFIG
def deploy(file: Path, kubeconfig: Path | None) -> None:
    """Apply the Config."""
    import yaml

    from pykai.operator.hooks.steps import deploy_config

    try:
        # JSON is YAML.
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise click.ClickException(f"cannot read the Config in {file}: {error}") from error
    run_step(kubeconfig, lambda client: deploy_config(client, config))


@hook.command("post-delete-cleanup")
@click.option("--namespace", required=True, help="Where the components are.")
@click.option("--delete-config", type=bool, default=True, show_default=True, help="Delete the Config as well.")
@_KUBECONFIG
def cleanup(namespace: str, delete_config: bool, kubeconfig: Path | None) -> None:
    """Delete what the operator has made; queues, PodGroups and running pods stay."""
    from pykai.operator.hooks.steps import clean_up

    run_step(kubeconfig, lambda client: clean_up(client, namespace, deletes_config=delete_config))


def run_step(kubeconfig: Path | None, step: Callable[[Client], AsyncIterator[str]]) -> None:
    """Say what a step does, line by line."""
    import asyncio

    from pykai.kube.client import Client
    from pykai.kube.credentials import connect
    from pykai.kube.errors import KubeError
    from pykai.operator.hooks.steps import StepFailure

    async def main() -> None:
        transport = connect(kubeconfig)
        try:
            async for line in step(Client(transport)):
                click.echo(line)
        finally:
            await transport.close()

    try:
        asyncio.run(main())
    except (KubeError, StepFailure) as error:
        raise click.ClickException(str(error)) from error
