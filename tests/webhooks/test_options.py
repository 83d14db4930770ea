"""Flags of the admission service: gpu:14, A-3, A-10."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykai.kube.flags import OptionError
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.options import read_admission, read_rules
from tests.webhooks.test_server import write_certificate


def test_defaults_are_upstreams() -> None:
    assert read_rules({}) == SharingRules(gpu_sharing_enabled=False)


def test_flags_are_read(tmp_path: Path) -> None:
    assert read_rules({"--gpu-sharing-enabled": True, "--hami-core-enabled": "true"}) == SharingRules(
        hami_core_enabled=True
    )
    write_certificate(tmp_path)
    assert read_admission({"cert-dir": tmp_path, "webhook-addr": ":7443"}).port == 7443


@pytest.mark.parametrize(
    ("flags", "runtime_class"),
    [
        ({"gpu-fraction-runtime-class-name": ""}, ""),
        ({"gpu-pod-runtime-class-name": "old"}, "old"),
        ({"gpu-pod-runtime-class-name": "old", "gpu-fraction-runtime-class-name": "new"}, "new"),
    ],
)
def test_the_deprecated_runtime_class_counts_only_where_the_new_one_is_not_given(
    flags: dict[str, object], runtime_class: str
) -> None:
    assert read_rules(flags).fraction_runtime_class == runtime_class


@pytest.mark.parametrize(
    "flags",
    [
        {"nonsense": "1"},
        {"gpu-sharing-enabled": "maybe"},
        {"webhook-addr": "https"},
        {"webhook-addr": "70000"},
        {"block-nvidia-visible-devices": "true"},
        {"cert-dir": "/nowhere"},
    ],
)
def test_a_wrong_flag_is_named(flags: dict[str, object]) -> None:
    (name,) = flags
    with pytest.raises(OptionError, match=f"--{name}: "):
        read_admission(flags)
