"""PodDisruptionBudgets (policy/v1): how many of some pods may be unavailable at once."""

from msgspec import field

from pykai.api.meta import Int64, LabelSelector, ObjectMeta, Wire


class PodDisruptionBudgetMeta(ObjectMeta):
    """Metadata with the generation that the controller of budgets follows."""

    generation: Int64 = 0


class PodDisruptionBudgetSpec(Wire):
    min_available: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire):
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    disruptions_allowed: Int64 = 0
    expected_pods: Int64 = 0
    observed_generation: Int64 = 0


class PodDisruptionBudget(Wire):
    """How many of some pods may be unavailable at once (policy/v1)."""

    metadata: PodDisruptionBudgetMeta = field(default_factory=PodDisruptionBudgetMeta)
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)
