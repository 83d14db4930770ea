"""`kai manifests`: what has to be installed into a cluster, as YAML for `kubectl apply -f -`."""

from __future__ import annotations

import click


@click.command()
@click.option("--crds-only", is_flag=True, help="Only the CustomResourceDefinitions.")
def manifests(crds_only: bool) -> None:
    """Print definitions, namespaces, accounts, roles, priority classes and default queues as YAML."""
    import yaml

    from pykai.api.crds import custom_resource_definitions
    from pykai.operator.install import installation

    class Plain(yaml.SafeDumper):
        """Without anchors, which readers of manifests do not expect."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    objects = custom_resource_definitions() if crds_only else installation()
    click.echo(yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=120), nl=False)
