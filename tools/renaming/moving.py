"""Imports of modules that move, and uses of such modules by name.

`from package import module` binds a name that changes when the module's last part does; its uses follow, unless the new
name is taken in that file: then the import says `as` with the old one, and a note says so. Where names of one statement
go to different packages the statement is split; ruff sorts imports afterwards. Relative imports become absolute when
something about them moves.
"""

from __future__ import annotations

import ast
import re

from tools.renaming.mapping import Mapping
from tools.renaming.meanings import Meanings, Report
from tools.renaming.scopes import Names, Program, Scope


class Moving:
    """The moves of a mapping, applied to imports."""

    def __init__(self, mapping: Mapping, program: Program, meanings: Meanings, report: Report) -> None:
        self._mapping = mapping
        self._program = program
        self._meanings = meanings
        self._report = report

    def apply(self, names: Names) -> None:
        """Note the changes of one file."""
        if not self._mapping.modules:
            return
        #: new local names of modules, by scope and old one
        renamed: dict[tuple[int, str], str] = {}
        for node in ast.walk(names.source.tree):
            if isinstance(node, ast.Import):
                self._import(names, node)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(names, node, names.import_scopes[node], renamed)
        for node in ast.walk(names.source.tree):
            if isinstance(node, ast.Attribute):
                self._chain(names, node)
        for occurrence in names.occurrences:
            if occurrence.imported is None:
                owner = occurrence.scope.owner(occurrence.name)
                new = renamed.get((id(owner), occurrence.name))
                if new is not None:
                    names.source.rename(occurrence.start, occurrence.name, new)
        self._file_paths(names)

    def _import(self, names: Names, node: ast.Import) -> None:
        for alias in node.names:
            new = self._mapping.moved_module(alias.name)
            if new != alias.name:
                names.source.rename(names.source.span(alias)[0], alias.name, new)

    def _import_from(
        self, names: Names, node: ast.ImportFrom, scope: Scope, renamed: dict[tuple[int, str], str]
    ) -> None:
        module = names.absolute(node)
        moved = self._mapping.moved_module(module)
        #: new package or module, new name, local name; None where nothing changes
        parts: list[tuple[str, str, str]] = []
        for alias in node.names:
            whole = f"{module}.{alias.name}"
            local = alias.asname or alias.name
            if whole in self._mapping.modules and self._program.is_module(whole):
                parent, _, name = self._mapping.modules[whole].rpartition(".")
                if alias.asname is None:
                    local = self._local_name(names, scope, whole, alias.name, name)
                    renamed[id(scope), alias.name] = local
                parts.append((parent, name, local))
            else:
                name = self._meanings.things.get(self._program.defined(module, alias.name), alias.name)
                name = self._mapping.names.get(name, name)
                local = name if alias.asname is None else self._mapping.names.get(alias.asname, alias.asname)
                parts.append((moved, name, local))
        source = names.source
        start, end = source.span(node)
        own_moves = names.module in self._mapping.modules
        untouched = all(
            parent == module and name == alias.name for (parent, name, _), alias in zip(parts, node.names, strict=True)
        )
        if untouched and not (node.level and own_moves):
            return
        parents = {parent for parent, _, _ in parts}
        same_locals = all(
            name == local or alias.asname for (_, name, local), alias in zip(parts, node.names, strict=True)
        )
        if len(parents) == 1 and same_locals and not node.level:
            at = re.compile(r"from\s+([\w.]+)").match(source.text, start)
            assert at is not None
            source.replace(at.start(1), at.end(1), parents.pop())
            for (_, name, _), alias in zip(parts, node.names, strict=True):
                source.rename(source.span(alias)[0], alias.name, name)
            return
        lines = []
        for parent in sorted(parents):
            imported = [f"{n} as {local}" if n != local else n for p, n, local in parts if p == parent]
            lines.append(f"from {parent} import {', '.join(imported)}")
        indent = source.text[source.text.rfind("\n", 0, start) + 1 : start]
        source.replace(start, end, f"\n{indent}".join(lines))
        if "#" in source.text[start:end]:
            self._report.doubts.append(f"{source.path}:{node.lineno}: a comment inside this import is lost")

    def _local_name(self, names: Names, scope: Scope, module: str, old: str, new: str) -> str:
        new = self._mapping.aliases.get(module, new)
        if new == old:
            return old
        taken = scope.owner(new) is not None or any(
            each.name == new and each.imported is None for each in names.occurrences
        )
        if taken or any(each.owner(new) not in (None, names.top) for each in names.functions.values()):
            self._report.notes.append(f"{names.source.path}: {new} is taken; {module} is still called {old} there")
            return old
        return new

    def _chain(self, names: Names, node: ast.Attribute) -> None:
        """`a.b.c` where `a.b.c` is a module that moves."""
        dotted = self._program.dotted(names, node)
        if dotted is None or dotted not in self._mapping.modules:
            return
        start, end = names.source.span(node)
        if names.source.text[start:end] == dotted:
            names.source.replace(start, end, self._mapping.modules[dotted])
        else:
            self._report.problems.append(
                f"{names.source.path}:{node.lineno}: {names.source.text[start:end]} is {dotted} by way of its package"
            )

    def _file_paths(self, names: Names) -> None:
        """`Path(__file__).parents[2]` of a file that gets deeper or less deep."""
        old, new = names.source.path, self._mapping.moved_path(names.source.path)
        if old == new or "__file__" not in names.source.text:
            return
        deeper = new.count("/") - old.count("/")
        text = names.source.text
        found = list(re.finditer(r"__file__\)(?:\.resolve\(\))?\.parents\[(\d+)\]", text))
        for match in found:
            names.source.replace(match.start(1), match.end(1), str(int(match[1]) + deeper))
        if len(found) != text.count("__file__"):
            self._report.doubts.append(f"{new}: `__file__` of a file that moved")
