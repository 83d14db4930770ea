"""`tools/patches.py`: functions that live become those of the changed text, or the change is refused."""

import gc
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tools.patches import Functions, Unpatchable, Watch

SOURCE = '''"""Prices."""

from dataclasses import dataclass
from functools import partial

RATE = 2


def total(net: int, tax: int = 1) -> int:
    return net + tax


def doubled(net: int) -> int:
    return RATE * net


PRICE = doubled(10)


@dataclass(slots=True)
class Basket:
    nets: list[int]

    @property
    def sum(self) -> int:
        def add(left: int, right: int) -> int:
            return left + right

        found = 0
        for net in self.nets:
            found = add(found, net)
        return found

    @staticmethod
    def empty() -> "Basket":
        return Basket([])


smaller, larger = (lambda net: net - 1), (lambda net: net + 1)
with_tax = partial(total, tax=5)
'''

Change = Callable[[str, str], ModuleType]


@pytest.fixture
def change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """Imports the source, then changes one place of it in the living module."""
    path = tmp_path / "prices_to_patch.py"
    path.write_text(SOURCE)
    watch = Watch(tmp_path)

    def changed(old: str, new: str) -> ModuleType:
        assert SOURCE.count(old) == 1
        spec = importlib.util.spec_from_file_location("prices_to_patch", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        watch.start()
        spec.loader.exec_module(module)
        watch.stop()
        # As `tests/conftest.py` does with all that is imported.
        gc.freeze()
        for replacement in Functions(tmp_path, watch.called).replacements(path, SOURCE, SOURCE.replace(old, new)):
            replacement.make()
        return module

    return changed


def test_functions_get_the_new_code_wherever_they_are_held(change: Change) -> None:
    changed = change("return net + tax", "less = 1\n    return net * tax - less")
    assert changed.total(3, tax=4) == 11
    assert changed.with_tax(3) == 14


def test_what_a_function_defines_changes_with_it(change: Change) -> None:
    assert change("return left + right", "return left - right").Basket([3, 4]).sum == -7


def test_methods_and_functions_without_a_name_change_too(change: Change) -> None:
    assert change("return Basket([])", "return Basket([7])").Basket.empty().nets == [7]
    changed = change("net: net - 1", "net: net - 2")
    assert (changed.smaller(5), changed.larger(5)) == (3, 6)


def test_lines_may_move(change: Change) -> None:
    changed = change("    return net + tax", "    # a reason\n\n    return net - tax")
    assert (changed.total(5), changed.Basket([1, 2]).sum) == (4, 3)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("RATE = 2", "RATE = 3", "what runs at import is changed"),
        ("tax: int = 1", "tax: int = 2", "what runs at import is changed"),
        ("slots=True", "frozen=True", "what runs at import is changed"),
        ("@staticmethod", "@classmethod", "what runs at import is changed"),
        ("def empty() -> ", "def none() -> ", "what runs at import is changed"),
        ("return RATE * net", "return RATE + net", "doubled was called before the tests began"),
        ("sum(self)", "sum(this)", "Basket.sum has a twin or other parameters"),
    ],
)
def test_what_only_an_import_does_right_is_refused(change: Change, old: str, new: str, why: str) -> None:
    with pytest.raises(Unpatchable, match=why):
        change(old, new)


def test_a_file_that_is_not_imported_needs_no_patch(tmp_path: Path) -> None:
    assert Functions(tmp_path, set()).replacements(tmp_path / "other.py", "a = 1", "a = 2") == []
