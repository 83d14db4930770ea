"""pykai.plugin: all that a plugin needs to write down the types of its hooks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pykai import plugin

#: Of the standard library, and a shorthand for the signature of one hook, whose parts are public.
NOT_OURS = {"Any", "Callable", "Hashable", "Iterable", "None", "Sequence", "NodeSetMaker"}


@pytest.mark.parametrize(
    "hook_type",
    [
        plugin.Hooks,
        plugin.NodeCheck,
        plugin.NodeScore,
        plugin.NodeSet,
        plugin.NoNodeSets,
        plugin.EvictionProposal,
        plugin.Loss,
    ],
)
def test_every_type_of_a_hook_can_be_imported(hook_type: Any) -> None:
    annotations = [getattr(each, "__forward_arg__", each) for each in hook_type.__annotations__.values()]
    named = {name for text in annotations for name in re.findall(r"\b[A-Z]\w+", text)}
    assert named
    assert {"Refusal" if name == "Refused" else name for name in named - NOT_OURS} <= set(plugin.__all__)


def test_nothing_else_can_be_imported() -> None:
    public = {name for name in vars(plugin) if not name.startswith("_")} - {"annotations"}
    assert sorted(public) == sorted(plugin.__all__)
