"""What can be set about the operator (operations:9), under the names of KAI's flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pykai.api import names
from pykai.kube.flags import (
    BURST,
    HEALTH_ADDRESS,
    LEADER_ELECT,
    METRICS_ADDRESS,
    NAMESPACE,
    QPS,
    Flag,
    read_text,
    settle_seconds,
)
from pykai.services.rights import Places


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The settings of the operator."""

    #: where components run
    namespace: str = names.DEFAULT_NAMESPACE
    #: ours: where the roles of the installation let it keep accounts of pods that reserve GPUs and of scaling pods
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    scaling_namespace: str = names.SCALE_ADJUST_NAMESPACE
    #: where images are, and their tag, unless a Config says otherwise (operations:O-5)
    image_repository: str = ""
    image_tag: str = "latest"
    #: ours: wall seconds in which changes are gathered
    settle_s: float = 0.05
    #: ours: wall seconds until a kind that the cluster lacked is looked for again
    absent_pause_s: float = 5.0

    @property
    def places(self) -> Places:
        """The namespaces in which it has rights."""
        return Places(self.namespace, self.reservation_namespace, self.scaling_namespace)


FLAGS: Final[tuple[Flag, ...]] = (
    replace(NAMESPACE, meaning="where components run, and the lease is", field="namespace"),
    Flag(
        "resource-reservation-namespace",
        names.RESERVATION_NAMESPACE,
        read_text,
        "where it has the right to keep the account of pods that reserve GPUs (not in KAI)",
        field="reservation_namespace",
    ),
    Flag(
        "scale-adjust-namespace",
        names.SCALE_ADJUST_NAMESPACE,
        read_text,
        "where it has the right to keep the account of scaling pods (not in KAI)",
        field="scaling_namespace",
    ),
    Flag(
        "image-repository",
        "",
        read_text,
        "where images are unless a Config says; otherwise MS_REPOSITORY of the environment (not in KAI)",
        field="image_repository",
    ),
    Flag(
        "image-tag",
        "latest",
        read_text,
        "tag of images unless a Config says; otherwise MS_TAG of the environment (not in KAI)",
        field="image_tag",
    ),
    Flag("image-pull-secret", "", read_text, "a setting of KAI's operator", no_effect=True),
    QPS,
    BURST,
    LEADER_ELECT,
    METRICS_ADDRESS,
    HEALTH_ADDRESS,
    settle_seconds(0.05),
)
