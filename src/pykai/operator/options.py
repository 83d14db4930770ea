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


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The settings of the operator."""

    #: where components run
    namespace: str = names.DEFAULT_NAMESPACE
    #: where images are, and their tag, unless a Config says otherwise (operations:O-5)
    image_repository: str = ""
    image_tag: str = "latest"
    #: ours: wall seconds in which changes are gathered
    settle_s: float = 0.05
    #: ours: wall seconds until a kind that the cluster lacked is looked for again
    absent_pause_s: float = 5.0


FLAGS: Final[tuple[Flag, ...]] = (
    replace(NAMESPACE, meaning="where components run, and the lease is", field="namespace"),
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
