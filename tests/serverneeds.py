"""Which test modules can ask for a server: those that import `tests.servers`, themselves or through other modules.

Only these say anything new on a real control plane.  What can reach no server runs the same code on the same data, and
`make test` has run it already.  The imports are read from the text, so nothing is run to find out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_SERVERS = Path(__file__).parent / "servers.py"
#: what it imports for all tests, the servers among it, is no need of a test
_FOR_ALL = Path(__file__).parent / "conftest.py"
_IMPORT = re.compile(r"^\s*(?:from\s+(tests[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+(tests[\w.]*))", re.MULTILINE)


def can_ask_for_a_server(module: Path) -> bool:
    """Whether a test module, or a conftest.py that holds for it, leads to a server."""
    beside = (folder / "conftest.py" for folder in module.parents if folder.is_relative_to(_FOR_ALL.parent))
    return any(_SERVERS in _reached(each) for each in (module, *beside) if each != _FOR_ALL and each.exists())


@cache
def _reached(module: Path) -> frozenset[Path]:
    """A module and all modules below tests that it imports, directly or not."""
    found: set[Path] = set()
    new = [module]
    while new:
        found.add(each := new.pop())
        new += [path for path in _imports(each) if path not in found]
    return frozenset(found)


@cache
def _imports(module: Path) -> frozenset[Path]:
    names: set[str] = set()
    for package, imported, whole in _IMPORT.findall(module.read_text(encoding="utf-8")):
        names.add(package or whole)
        names.update(f"{package}.{each}" for each in _names(imported))
    paths = (_ROOT / f"{name.replace('.', '/')}.py" for name in names)
    return frozenset(path for path in paths if path.exists())


def _names(imported: str) -> Iterator[str]:
    for each in imported.strip("()").split(","):
        if words := each.partition("#")[0].split():
            yield words[0]
