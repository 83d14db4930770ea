"""What to rename, read from a TOML file.

    [modules]                              # modules, packages (with all below), files and folders
    "pykai.core.census" = "pykai.core.cluster.groupindex"
    "pykai.core.place" = "pykai.core.placing"
    "tests/core/test_census.py" = "tests/core/cluster/test_groupindex.py"
    "pykai.core.memo" = { to = "pykai.core.cycle.reuse", as = "cycle_reuse" }  # the local name of `from x import memo`

    [packages]                             # docstrings of packages that come into being
    "pykai.core.cluster" = "What the engine knows of the cluster."

    [names]                                # distinctive words, wherever they stand as a name
    first_open = "first_unplaced"

    [members]                              # everything else, by module and qualified name as they are now
    "pykai.core.place.task:Manner" = "PlacementMode"
    "pykai.core.gangs:Gang.open, pykai.core.gangs:LeafRun.open" = "unplaced"
    "pykai.core.gangs:Gang.select(is_open)" = "is_unplaced"     # a parameter
    "pykai.core.gangs:_pick/back" = "returning"                 # a local variable
    "pykai.core.decisions:Bind.gpus" = { to = "devices", wire = "gpus" }   # wire = false: is never written

`force = true` at the top accepts a new name that a file has already.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: folders with Python files, and what is cut off to get the name of a module
ROOTS = {"src/": "", "tests/": "tests/", "tools/": "tools/", "bench/": "bench/", "examples/": "examples/"}
_MEMBER = re.compile(r"([\w.]+):([\w.]+)(?:\((\w+)\)|/(\w+))?")


class BadMapping(Exception):
    """A mapping that cannot be applied."""


@dataclass(frozen=True)
class Target:
    """One thing to rename."""

    module: str
    #: of the thing, or of the function that has the parameter or variable
    qualified: str
    #: a parameter or local variable of it
    inner: str
    new: str
    #: the name a msgspec field keeps on the wire; False when it is never written
    wire: str | bool | None = None

    @property
    def old(self) -> str:
        """The name to replace."""
        return self.inner or self.qualified.rpartition(".")[2]

    @property
    def fullname(self) -> str:
        """Module and qualified name."""
        return f"{self.module}.{self.qualified}"


@dataclass
class Mapping:
    """All that one run renames."""

    names: dict[str, str] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    #: files that move: old to new path
    moves: dict[str, str] = field(default_factory=dict)
    #: folders that move as a whole
    folders: dict[str, str] = field(default_factory=dict)
    #: modules and packages that move
    modules: dict[str, str] = field(default_factory=dict)
    #: local names of moved modules, by old name of the module
    aliases: dict[str, str] = field(default_factory=dict)
    docstrings: dict[str, str] = field(default_factory=dict)
    force: bool = False

    def moved_module(self, name: str) -> str:
        """The new name of a module."""
        return self.modules.get(name, name)

    def moved_path(self, path: str) -> str:
        """The new path of a file."""
        return self.moves.get(path, path)


def module_of(path: str) -> str | None:
    """The name under which a file is imported."""
    for root, prefix in ROOTS.items():
        if path.startswith(root) and path.endswith(".py"):
            parts = (prefix + path.removeprefix(root)).removesuffix(".py").split("/")
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def read_mapping(path: Path, files: Iterable[str]) -> Mapping:
    """The mapping of a file, over the files of the repository."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    if unknown := sorted(set(content) - {"modules", "packages", "names", "members", "force"}):
        raise BadMapping(f"unknown table {', '.join(unknown)}")
    mapping = Mapping(docstrings=dict(content.get("packages", {})), force=bool(content.get("force", False)))
    mapping.names = dict(content.get("names", {}))
    for old, new in mapping.names.items():
        if not (old.isidentifier() and new.isidentifier()):
            raise BadMapping(f"names: {old} = {new}: not a name")
    for key, value in content.get("members", {}).items():
        mapping.targets += _targets(key, value)
    _read_moves(mapping, content.get("modules", {}), sorted(files))
    return mapping


def _targets(key: str, value: Any) -> list[Target]:
    given = {"to": value} if isinstance(value, str) else dict(value)
    new, wire = given.pop("to", ""), given.pop("wire", None)
    if given or not str(new).isidentifier():
        raise BadMapping(f"members: {key}: expected a name, or to and wire")
    targets = []
    for part in key.split(","):
        match = _MEMBER.fullmatch(part.strip())
        if match is None:
            raise BadMapping(
                f"members: {part.strip()}: expected module:name, module:name(parameter) or module:name/local"
            )
        module, qualified, parameter, local = match.groups()
        targets.append(Target(module, qualified, parameter or local or "", new, wire))
    return targets


def _read_moves(mapping: Mapping, table: dict[str, Any], files: list[str]) -> None:
    places: dict[str, str] = {}
    modules = {module_of(path): path for path in files if path.endswith(".py")}
    for old, value in table.items():
        new = value if isinstance(value, str) else value["to"]
        if "/" in old:
            places[old.rstrip("/")] = new.rstrip("/")
            continue
        path = modules.get(old)
        folder = "src/" + old.replace(".", "/")
        if path is None and not any(each.startswith(folder + "/") for each in files):
            raise BadMapping(f"modules: {old} does not exist")
        is_package = path is None or path.endswith("/__init__.py")
        suffix = "" if is_package else ".py"
        old_place = folder if is_package else str(path)
        places[old_place] = "src/" + new.replace(".", "/") + suffix
        if not isinstance(value, str) and "as" in value:
            mapping.aliases[old] = value["as"]
    # The more special entry wins.
    for old in sorted(places, key=len, reverse=True):
        new = places[old]
        if old in files:
            mapping.moves.setdefault(old, new)
            continue
        below = [path for path in files if path.startswith(old + "/")]
        if not below:
            raise BadMapping(f"modules: {old} does not exist")
        mapping.folders[old] = new
        for path in below:
            mapping.moves.setdefault(path, new + path.removeprefix(old))
    _check_moves(mapping, files)
    for old, new in mapping.moves.items():
        before, after = module_of(old), module_of(new)
        if before is not None and after is not None and before != after:
            mapping.modules[before] = after
    for old, new in mapping.folders.items():
        before, after = module_of(old + "/__init__.py"), module_of(new + "/__init__.py")
        if before is not None and after is not None:
            mapping.modules.setdefault(before, after)


def _check_moves(mapping: Mapping, files: list[str]) -> None:
    staying = set(files) - set(mapping.moves)
    seen: dict[str, str] = {}
    for old, new in mapping.moves.items():
        if new in staying:
            raise BadMapping(f"modules: {old}: {new} exists already")
        if new in seen:
            raise BadMapping(f"modules: {old} and {seen[new]} both become {new}")
        seen[new] = old
