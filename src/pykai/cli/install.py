"""`kai install`, `kai upgrade` and `kai uninstall`: the Helm chart without Helm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pykai.api import names

if TYPE_CHECKING:
    from pykai.kube.client import Client
    from pykai.operator.installing.previewing import Preview
    from pykai.operator.installing.release import Release

#: exit code of `kai upgrade --check` and `kai install --dry-run=server` where something would change
CHANGES_WAIT = 3

_KUBECONFIG = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Which cluster; else $KUBECONFIG, or ~/.kube/config."
)
_NAMESPACE = click.option(
    "--namespace", default="", help=f"Where components run; {names.DEFAULT_NAMESPACE} without it."
)
_VALUES = click.option(
    "-f",
    "--values",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A file with values of the chart; a later one wins.",
)
_SET = click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="One value, as in global.tag=v1.")


@click.command()
@_VALUES
@_SET
@_NAMESPACE
@_KUBECONFIG
@click.option(
    "--dry-run",
    is_flag=False,
    flag_value="client",
    type=click.Choice(["client", "server"]),
    help="Change nothing. client, or nothing: print the objects as YAML, without a cluster. server: say what would"
    " become of each object of the cluster; exit code 3 if any would change.",
)
@click.option("--include-crds", is_flag=True, help="With --dry-run: print the definitions, too.")
@click.option("--shadow", is_flag=True, help="Install only schedulers that decide beside others and write nothing.")
@click.option(
    "--shard", "shards", multiple=True, help="With --shadow: the SchedulingShard beside which it decides; else all."
)
def install(
    files: tuple[Path, ...],
    assignments: tuple[str, ...],
    namespace: str,
    kubeconfig: Path | None,
    dry_run: str | None,
    include_crds: bool,
    shadow: bool,
    shards: tuple[str, ...],
) -> None:
    """Install PyKAI with the values of the Helm chart, or bring an installation up to date.

    Values that an earlier run was given hold only if they are given again; `kai upgrade` keeps them.
    """
    from pykai.operator.installing import cluster
    from pykai.operator.installing.release import Release, release_objects
    from pykai.operator.installing.shadow import SHADOW_NAMESPACE

    if shards and not shadow:
        raise click.UsageError("--shard: goes with --shadow")
    if include_crds and (shadow or dry_run != "client"):
        raise click.UsageError("--include-crds: goes with --dry-run=client, and not with --shadow")
    release = Release(
        _given_values(files, assignments),
        namespace or (SHADOW_NAMESPACE if shadow else names.DEFAULT_NAMESPACE),
        is_install=dry_run == "client",
    )
    _checked(release)
    if dry_run == "server":
        _preview(
            kubeconfig,
            lambda client: (
                cluster.preview_shadow(client, release, shards) if shadow else cluster.preview(client, release)
            ),
        )
    elif dry_run:
        objects = _shadows(release, shards) if shadow else release_objects(release)
        _print(objects, include_crds=include_crds)
    elif shadow:
        _run(kubeconfig, lambda client: cluster.install_shadow(client, release, shards))
    else:
        _run(kubeconfig, lambda client: cluster.install(client, release))


@click.command()
@_VALUES
@_SET
@_NAMESPACE
@_KUBECONFIG
@click.option("--check", is_flag=True, help="Say what would change, and change nothing; exit code 3 if anything would.")
def upgrade(
    files: tuple[Path, ...], assignments: tuple[str, ...], namespace: str, kubeconfig: Path | None, check: bool
) -> None:
    """Bring an installation by `kai install` up to date, with the values it was given and further ones."""
    from pykai.operator.installing import cluster
    from pykai.operator.installing.release import Release

    release = Release(_given_values(files, assignments), namespace or names.DEFAULT_NAMESPACE, is_install=False)
    _checked(release)

    async def checked(client: Client) -> AsyncIterator[Preview]:
        wanted = await cluster.with_earlier_values(client, release, needs_record=False)
        async for each in cluster.preview(client, wanted):
            yield each

    async def upgraded(client: Client) -> AsyncIterator[str]:
        async for line in cluster.install(client, await cluster.with_earlier_values(client, release)):
            yield line

    if check:
        _preview(kubeconfig, checked, only_changes=True)
    else:
        _run(kubeconfig, upgraded)


@click.command()
@_NAMESPACE
@_KUBECONFIG
@click.option("--shadow", is_flag=True, help="The scheduler that `kai install --shadow` has installed.")
def uninstall(namespace: str, kubeconfig: Path | None, shadow: bool) -> None:
    """Delete what `kai install` has installed; definitions, queues, PodGroups and running pods stay."""
    from pykai.operator.installing import cluster
    from pykai.operator.installing.shadow import SHADOW_NAMESPACE

    place = namespace or (SHADOW_NAMESPACE if shadow else names.DEFAULT_NAMESPACE)
    _run(kubeconfig, lambda client: cluster.uninstall(client, place))


def _given_values(files: tuple[Path, ...], assignments: tuple[str, ...]) -> dict[str, Any]:
    """The values of files and of `--set`, the later ones over the earlier ones."""
    import yaml

    from pykai.operator.chart.values import merged_values
    from pykai.operator.installing.givenvalues import ValueProblem, read_set

    listed: list[Mapping[str, Any]] = []
    for file in files:
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise click.ClickException(f"cannot read {file}: {error}") from error
        if not isinstance(content, dict | type(None)):
            raise click.ClickException(f"{file}: expected a map of values")
        listed.append(content or {})
    try:
        listed += [read_set(each) for each in assignments]
    except ValueProblem as error:
        raise click.UsageError(str(error)) from error
    return merged_values({}, *listed, keeps_nulls=True)


def _shadows(release: Release, shards: tuple[str, ...]) -> list[dict[str, Any]]:
    """The objects of shadows beside what the chart installs: without a cluster no other shards are known."""
    from pykai.operator.desired.refusals import Refused
    from pykai.operator.installing.givenvalues import ValueProblem
    from pykai.operator.installing.shadow import expected, shadow_objects

    try:
        return shadow_objects(release.scope(), expected(release).only(shards))
    except (ValueProblem, Refused) as error:
        raise click.ClickException(f"{error} (--dry-run does not look at the cluster)") from None


def _checked(release: Release) -> None:
    """Fail if the chart does not take the values."""
    from pykai.operator.chart.language import TemplateFailure
    from pykai.operator.installing.givenvalues import ValueProblem
    from pykai.operator.installing.release import release_objects

    try:
        release_objects(release)
    except (ValueProblem, TemplateFailure) as error:
        raise click.ClickException(str(error)) from error


def _print(objects: list[dict[str, Any]], *, include_crds: bool) -> None:
    from pykai.api.crds import custom_resource_definitions
    from pykai.operator.manifesttext import manifest

    listed = [*(custom_resource_definitions() if include_crds else ()), *objects]
    click.echo("---\n".join(manifest(each) for each in listed), nl=False)


def _preview(
    kubeconfig: Path | None, look: Callable[[Client], AsyncIterator[Preview]], *, only_changes: bool = False
) -> None:
    """Say what would become of objects; exit code 3 if any would change."""
    from pykai.operator.installing.previewing import CHANGES, summary

    found: list[Preview] = []

    async def said(client: Client) -> AsyncIterator[str]:
        async for each in look(client):
            found.append(each)
            if not only_changes or each.outcome in CHANGES:
                yield str(each)

    _run(kubeconfig, said)
    has_changes = any(each.outcome in CHANGES for each in found)
    if not only_changes:
        click.echo(summary(found))
    elif not has_changes:
        click.echo("nothing would change")
    if has_changes:
        click.get_current_context().exit(CHANGES_WAIT)


def _run(kubeconfig: Path | None, step: Callable[[Client], AsyncIterator[str]]) -> None:
    """Say what is done, line by line."""
    from pykai.cli.hook import run_step

    run_step(kubeconfig, step)
