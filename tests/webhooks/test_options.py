"""Flags of the admission service: gpu:14, A-3, A-10."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from pykai.kube.flags import OptionError
from pykai.webhooks.gpusharing import SharingRules
from pykai.webhooks.options import make_admission, read_options
from pykai.webhooks.rotator import RotatorOptions
from tests.webhooks.test_server import runtime_of_nothing, write_certificate


def read_rules(given: Mapping[str, object]) -> SharingRules:
    return read_options(given).rules


def test_defaults_are_upstreams() -> None:
    assert read_rules({}) == SharingRules(gpu_sharing_enabled=False)
    found = read_options({})
    assert (found.certificates, found.folder, found.host, found.port) == (RotatorOptions(), None, "127.0.0.1", 9443)
    assert found.quotas_checked
    assert not found.children_refused


async def test_flags_are_read(tmp_path: Path) -> None:
    assert read_rules({"--gpu-sharing-enabled": True, "--hami-core-enabled": "true"}) == SharingRules(
        hami_core_enabled=True
    )
    assert read_rules({"block-nvidia-visible-devices": "true"}).visible_devices_blocked
    write_certificate(tmp_path)
    found = read_options({"cert-dir": tmp_path, "webhook-addr": ":7443", "refuse-queues-with-children": "true"})
    assert (found.folder, found.port, found.children_refused) == (tmp_path, 7443, True)
    (server,) = make_admission(runtime_of_nothing(), found)
    assert server.name == "admission"


def test_flags_of_certificates_are_read() -> None:
    flags = {
        "certificate-secret": "mine",
        "certificate-hosts": "10.0.0.5, kai.example.com",
        "certificate-lifetime": "24h",
        "certificate-overlap": "30s",
        "leader-elect": "true",
        "namespace": "elsewhere",
    }
    assert read_options(flags).certificates == RotatorOptions(
        "elsewhere", "mine", ("10.0.0.5", "kai.example.com"), timedelta(days=1), 30.0, leader_elect=True
    )


def test_in_a_pod_every_address_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert read_options({}).host is None
    assert read_options({"host": "10.0.0.5"}).host == "10.0.0.5"


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
        {"certificate-lifetime": "1m"},
        {"certificate-overlap": "-1s"},
        {"cert-dir": "/nowhere"},
    ],
)
async def test_a_wrong_flag_is_named(flags: dict[str, object]) -> None:
    (name,) = flags
    with pytest.raises(OptionError, match=f"--{name}: "):
        make_admission(runtime_of_nothing(), read_options(flags))
