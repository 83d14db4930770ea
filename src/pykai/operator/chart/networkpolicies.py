"""NetworkPolicies of pods that the operator does not make: its own, and those that reserve GPUs (operations:OD-22)."""

from __future__ import annotations

from pykai.operator.chart.language import Choice, IsSet, PortOf, ReleaseNamespace, TemplateNode, Value
from pykai.operator.desired.objects import OPERATOR


def network_policies() -> list[TemplateNode]:
    """As far as they are wanted."""
    place = "global.resourceReservation"
    ports = [PortOf("operator.metricsBindAddress"), PortOf("operator.probeBindAddress")]
    served: list[TemplateNode] = [{"ports": [{"port": each, "protocol": "TCP"} for each in ports]}]
    listed = [
        _policy(OPERATOR, ReleaseNamespace(), OPERATOR, served),
        # They serve nothing.
        _policy("resource-reservation", Value(f"{place}.namespace"), Value(f"{place}.appLabel"), []),
    ]
    return [Choice(IsSet(Value("networkPolicies.enabled")), listed)]


def _policy(
    name: str, namespace: TemplateNode, app: TemplateNode, ingress: list[TemplateNode]
) -> dict[str, TemplateNode]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app": app}},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
