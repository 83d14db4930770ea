"""`kai manifests`: what has to be installed into a cluster, as YAML for `kubectl apply -f -`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from pykai.api import names
from pykai.api.guardedfields import DEFAULT_GUARD_SETTINGS, GuardSettings


@click.command()
@click.option("--crds-only", is_flag=True, help="The CustomResourceDefinitions, which are not printed otherwise.")
@click.option(
    "--admission",
    metavar="URL|service",
    default="",
    help="Only what makes the API server ask the admission service: at https://HOST:PORT, or through a Service.",
)
@click.option(
    "--admission-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate authority of the admission service, as PEM; without it the service makes one.",
)
@click.option(
    "--scheduler-name",
    default=names.SCHEDULER_NAME,
    help="Whose pods the admission service is asked about, and the policies.",
)
@click.option(
    "--namespace",
    default=names.DEFAULT_NAMESPACE,
    show_default=True,
    help="Where the services run (--namespace there).",
)
@click.option("--no-policies", is_flag=True, help="Leave out the ValidatingAdmissionPolicies.")
@click.option("--policies-only", is_flag=True, help="Only the ValidatingAdmissionPolicies and their bindings.")
@click.option("--monitoring", is_flag=True, help="Only alert rules for Prometheus and dashboards for Grafana.")
@click.option("--suspend-role", is_flag=True, help="Only the role with which the scheduler suspends evicted workloads.")
@click.option(
    "--closed-namespace",
    "closed_namespaces",
    metavar="NAME",
    multiple=True,
    default=DEFAULT_GUARD_SETTINGS.closed_namespaces,
    show_default=True,
    help="A namespace in which the services write nothing, instead of the default ones; can be repeated.",
)
def manifests(
    crds_only: bool,
    admission: str,
    admission_ca: Path | None,
    scheduler_name: str,
    namespace: str,
    no_policies: bool,
    policies_only: bool,
    monitoring: bool,
    suspend_role: bool,
    closed_namespaces: tuple[str, ...],
) -> None:
    """Print namespaces, accounts, roles, policies, priority classes and default queues as YAML, or definitions."""
    from pykai.api.crds import custom_resource_definitions
    from pykai.operator.install import installation, optional_role
    from pykai.operator.manifesttext import manifest
    from pykai.operator.monitoring.files import monitoring_objects
    from pykai.operator.policies import admission_policies
    from pykai.operator.webhooks import Registration, admission_objects
    from pykai.services.rights import Places

    if sum((crds_only, bool(admission), policies_only, no_policies, monitoring, suspend_role)) > 1:
        raise click.UsageError(
            "--crds-only, --admission, --policies-only, --no-policies, --monitoring and --suspend-role "
            "exclude each other"
        )
    settings = GuardSettings(scheduler_name, namespace, closed_namespaces=closed_namespaces)
    if admission:
        objects = admission_objects(
            Registration(namespace, scheduler_name, _https(admission), _authority(admission_ca))
        )
    elif monitoring:
        objects = monitoring_objects(namespace)
    elif suspend_role:
        objects = optional_role("suspend", namespace)
    elif policies_only:
        objects = admission_policies(settings)
    else:
        policies = None if no_policies else settings
        objects = custom_resource_definitions() if crds_only else installation(policies, Places(namespace))
        if not crds_only:
            # Deleting what is printed must not take every Queue and PodGroup along.
            objects = [each for each in objects if each["kind"] != "CustomResourceDefinition"]
    click.echo("---\n".join(manifest(each) for each in objects), nl=False)


def _https(address: str) -> str:
    """The address, if an API server would take it; empty for Services."""
    if address == "service":
        return ""
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise click.UsageError(f"--admission: expected https://HOST:PORT or service, not {address!r}")
    return address


def _authority(file: Path | None) -> bytes:
    if file is None:
        return b""
    content = file.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise click.UsageError(f"--admission-ca: there is no certificate in {file}")
    return content
