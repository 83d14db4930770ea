"""Flags and plugins of the binder: gpu:14, BI-7, T-76."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykai.binder.options import DEFAULT_PLUGINS, FLAGS, HAMI_CORE, BinderOptions, read_options
from pykai.binder.service import make_binder
from pykai.kube.flags import OptionError
from tests.webhooks.test_server import runtime_of_nothing


def test_defaults_are_those_of_the_table() -> None:
    assert read_options({flag.name: flag.default for flag in FLAGS if flag.default}) == BinderOptions()
    assert [plugin.name for plugin in BinderOptions().enabled_plugins()] == [
        "volumebinding",
        "dynamicresources",
        "gpusharing",
    ]


def test_flags_are_read() -> None:
    options = read_options(
        {
            "--resource-reservation-allocation-timeout": 7,
            "--leader-elect": True,
            "--resource-reservation-pod-resources": '{"requests": {"cpu": "1"}}',
            "--qps": None,
        }
    )
    assert (options.reservation_timeout_s, options.leader_elect) == (7, True)
    assert options.reservation_resources == {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"nonsense": 1}, "--nonsense: unknown flag"),
        ({"max-concurrent-reconciles": "0"}, "--max-concurrent-reconciles: '0': expected a whole number of at least 1"),
        ({"leader-elect": "maybe"}, "--leader-elect: 'maybe': expected true or false"),
        ({"plugins": "[]"}, "--plugins: '[]': expected a JSON object"),
        (
            {"plugins": '{"gpusharing": {"priority": "high"}}'},
            "--plugins: gpusharing.priority: expected a whole number",
        ),
        (
            {"plugins": '{"volumebinding": {"arguments": {}}}'},
            "--plugins: volumebinding.arguments.bindTimeoutSeconds is missing",
        ),
        ({"plugins": '{"mine": {}}'}, "failed to get binder plugin mine: there is no such plugin"),
        (
            {"plugins": '{"hamicore": {"enabled": true}, "gpusharing": {"enabled": false}}'},
            "binder plugin hamicore needs plugin gpusharing to be enabled",
        ),
        (
            {"plugins": '{"hamicore": {"enabled": true, "priority": 100}}'},
            "binder plugin gpusharing must have a higher priority than hamicore (100 against 100)",
        ),
    ],
)
def test_t76_a_wrong_setting_is_named_and_nothing_starts(flags: dict[str, object], text: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_options(flags)
    assert str(refused.value) == text


def test_options_made_without_flags_are_checked_too() -> None:
    hami = replace(DEFAULT_PLUGINS[HAMI_CORE], enabled=True, priority=100)
    options = replace(BinderOptions(), plugins={**DEFAULT_PLUGINS, HAMI_CORE: hami})
    with pytest.raises(OptionError, match="binder plugin gpusharing must have a higher priority than hamicore"):
        make_binder(runtime_of_nothing(), options)


def test_plugins_run_by_priority_then_name_and_arguments_replace_the_defaults() -> None:
    options = read_options(
        {
            "plugins": '{"gpusharing": {"priority": 300, "arguments": {"cdiEnabled": "true"}},'
            ' "dynamicresources": {"enabled": false}, "unknown": {"enabled": false}}'
        }
    )
    assert [plugin.name for plugin in options.enabled_plugins()] == ["gpusharing", "volumebinding"]
    assert options.cdi_enabled()
