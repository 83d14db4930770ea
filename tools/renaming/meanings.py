"""Renames things by what they are: globals, members of classes, parameters, local variables.

Flows in: the targets of a mapping, the names of all files (`scopes`), and what mypy knows (`typed`, only when a member
or a parameter is renamed). Flows out: changes in the sources; `problems`, which stop the run; `doubts`, places that
may mean a renamed thing and could not be decided; `notes`, what was renamed besides.

Subtle: a member belongs to all classes that define it by inheritance, so their members are renamed together. A new name
must be free in every scope in which the old one stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.renaming.mapping import Mapping, Target
from tools.renaming.scopes import CLASS, FUNCTION, Names, Occurrence, Program, Scope
from tools.renaming.sources import Source
from tools.renaming.typed import UNKNOWN, Types

#: functions that take a name as their second argument
BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr"})
#: assigned strings that are names
LISTS_OF_NAMES = frozenset({"__slots__", "__match_args__", "__all__"})


@dataclass
class Report:
    """Messages of a run."""

    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Meanings:
    """The things to rename, found in the program."""

    def __init__(self, mapping: Mapping, program: Program, report: Report) -> None:
        self._mapping = mapping
        self._program = program
        self._report = report
        #: things of modules and members of classes by full name
        self.things: dict[str, str] = {}
        #: parameters as `typed` names them
        self._parameters: dict[str, str] = {}
        #: local names, parameters included, by module
        self._locals: dict[tuple[str, int, str], tuple[Scope, str]] = {}
        #: members whose owners only mypy can tell
        self._members: dict[str, Target] = {}
        self.types: Types | None = None
        for target in mapping.targets:
            self._resolve(target)

    @property
    def needs_types(self) -> bool:
        """Whether mypy has to be asked."""
        return bool(self._members or self._parameters)

    @property
    def words(self) -> set[str]:
        """The old names that mypy is asked about."""
        return {name.rpartition(".")[2] for name in self._members} | {
            name.rpartition("(")[2].rstrip(")") for name in self._parameters
        }

    def _resolve(self, target: Target) -> None:
        names = self._program.files.get(target.module)
        if names is None:
            self._report.problems.append(f"members: there is no module {target.module}")
            return
        if target.inner:
            self._resolve_local(target, names)
            return
        parent, _, name = target.qualified.rpartition(".")
        if not parent:
            if name not in names.top.plain:
                self._report.problems.append(f"members: {target.module} defines no {name}")
                return
            self.things[target.fullname] = target.new
            self._check_tag(target, names)
            self._resolve_fixture(target, names)
        elif _class_of(names, parent) is None:
            self._report.problems.append(f"members: {target.module} has no class {parent}")
        else:
            self.things[target.fullname] = target.new
            self._members[target.fullname] = target

    def _resolve_local(self, target: Target, names: Names) -> None:
        found = [
            (line, scope)
            for (line, _), scope in names.functions.items()
            if scope.qualified.replace(".<locals>", "") == target.qualified and target.inner in scope.bound
        ]
        if not found:
            self._report.problems.append(f"members: {target.fullname} has no {target.inner}")
        for line, scope in found:
            self._add_local(names, scope, target.inner, target.new)
            if target.inner in _arguments(names, line):
                nested = "<locals>" in scope.qualified
                function = (
                    f"{names.source.path}:{line}:{scope.qualified.rpartition('.')[2]}" if nested else target.fullname
                )
                self._parameters[f"{function}({target.inner})"] = target.new

    def _add_local(self, names: Names, scope: Scope, old: str, new: str) -> None:
        self._locals[names.module, id(scope), old] = (scope, new)

    def _check_tag(self, target: Target, names: Names) -> None:
        """The name of a class that is its tag on the wire stays there."""
        node = _class_of(names, target.qualified)
        tag = next((each for each in node.keywords if each.arg == "tag"), None) if node is not None else None
        if tag is None or not (isinstance(tag.value, ast.Constant) and tag.value.value is True):
            return
        if target.wire is None:
            self._report.problems.append(f'members: {target.fullname} is a tag on the wire: give wire = "{target.old}"')
        elif isinstance(target.wire, str):
            names.source.replace(*names.source.span(tag.value), f'"{target.wire}"')

    def _resolve_fixture(self, target: Target, names: Names) -> None:
        """A fixture is asked for by parameters of its name, in its file or below its conftest.py."""
        node = next((n for n in names.source.tree.body if getattr(n, "name", "") == target.old), None)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if not any("fixture" in ast.unparse(each) for each in node.decorator_list):
            return
        folder = names.source.path.removesuffix("conftest.py")
        for other in self._program.files.values():
            if other is not names and not (folder.endswith("/") and other.source.path.startswith(folder)):
                continue
            for (line, _), scope in other.functions.items():
                if target.old in _arguments(other, line):
                    self._add_local(other, scope, target.old, target.new)
            for call in ast.walk(other.source.tree):
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(("usefixtures", "getfixturevalue")):
                    rename_constants(other.source, call.args, target.old, target.new)

    def ask(self, types: Types) -> None:
        """Take over what mypy knows of the classes; widen members to those that inherit or are inherited."""
        self.types = types
        for fullname, target in list(self._members.items()):
            owner = fullname.rpartition(".")[0]
            if not types.has_member(owner, target.old):
                self._report.problems.append(f"members: {owner} has no {target.old}")
                continue
            group, foreign = types.family(owner, target.old)
            if foreign:
                self._report.problems.append(f"members: {fullname} is also defined by {', '.join(foreign)}")
            for each in sorted(group):
                if self.things.setdefault(f"{each}.{target.old}", target.new) != target.new:
                    self._report.problems.append(f"members: {each}.{target.old} would get two names")
                if f"{each}.{target.old}" not in self._members:
                    self._members[f"{each}.{target.old}"] = target
                    self._report.notes.append(f"{each}.{target.old} is renamed as well")
                if types.has_member(each, target.new) and f"{each}.{target.new}" not in self.things:
                    self._report.problems.append(f"members: {each} has a member {target.new} already")
                if types.is_struct(each):
                    self._keep_wire_name(each, target)
        for fullname, target in self._members.items():
            owner = fullname.rpartition(".")[0]
            for other in types.protocols(owner, target.old):
                if f"{other}.{target.old}" not in self.things:
                    self._report.notes.append(
                        f"{other} may stand for {owner}, or the reverse; {target.old} is kept there"
                    )
        self._widen_parameters(types)

    def _widen_parameters(self, types: Types) -> None:
        """A parameter has the same name in all methods that override each other."""
        for taken, new in list(self._parameters.items()):
            function, _, old = taken.rstrip(")").rpartition("(")
            owner, _, method = function.rpartition(".")
            if owner not in types.classes:
                continue
            for other in types.family(owner, method)[0] - {owner}:
                names, node = self._class(other)
                for (line, _), scope in names.functions.items():
                    if scope.parent is names.classes[node] and scope.qualified.endswith(f".{method}"):
                        if old in _arguments(names, line):
                            self._add_local(names, scope, old, new)
                            self._parameters[f"{other}.{method}({old})"] = new
                            self._report.notes.append(f"{other}.{method}({old}) is renamed as well")

    def _class(self, fullname: str) -> tuple[Names, ast.ClassDef]:
        """Where a class of the project is defined."""
        for names in self._program.files.values():
            if fullname.startswith(names.module + "."):
                for node, scope in names.classes.items():
                    if f"{names.module}.{scope.typed}" == fullname:
                        return names, node
        raise LookupError(fullname)

    def _keep_wire_name(self, owner: str, target: Target) -> None:
        names, node = self._class(owner)
        statement = next(
            (s for s in node.body if isinstance(s, ast.AnnAssign) and ast.unparse(s.target) == target.old), None
        )
        if statement is None or target.wire is False:
            return
        value = ast.unparse(statement.value) if statement.value is not None else ""
        if re.match(r"(msgspec\.)?field\(.*\bname=", value):
            return
        if target.wire is None:
            self._report.problems.append(
                f'members: {owner}.{target.old} is a msgspec field: give wire = "...", or wire = false'
            )
            return
        wire = f'name="{target.wire}"'
        if statement.value is None:
            end = names.source.span(statement)[1]
            names.source.replace(end, end, f" = msgspec.field({wire})")
        elif value.startswith(("msgspec.field(", "field(")):
            end = names.source.span(statement.value)[1]
            names.source.replace(end - 1, end - 1, f", {wire}")
        else:
            start, end = names.source.span(statement.value)
            names.source.replace(start, end, f"msgspec.field(default={names.source.text[start:end]}, {wire})")

    def apply(self, names: Names) -> None:
        """Note the changes of one file."""
        for occurrence in names.occurrences:
            self._apply_name(names, occurrence)
        words = self.words
        for node in ast.walk(names.source.tree):
            match node:
                case ast.Attribute():
                    self._apply_attribute(names, node, words)
                case ast.Call():
                    self._apply_call(names, node, words)
                case ast.MatchClass() if self.types is not None:
                    self._apply_pattern(names, node, words)
                case ast.Assign(targets=[ast.Name(id=listed)]) | ast.AnnAssign(target=ast.Name(id=listed)):
                    if listed in LISTS_OF_NAMES and node.value is not None:
                        self._apply_listed(names, node, node.value)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._apply_parametrized(names, node)

    def _apply_name(self, names: Names, occurrence: Occurrence) -> None:
        meaning = self._program.meaning(names, occurrence)
        if isinstance(meaning, Scope):
            found = self._locals.get((names.module, id(meaning), occurrence.name))
            if found is not None:
                self._rename(names, occurrence, found[1], meaning)
        elif meaning is not None and meaning in self.things and meaning.rpartition(".")[2] == occurrence.name:
            self._rename(names, occurrence, self.things[meaning], None)

    def _rename(self, names: Names, occurrence: Occurrence, new: str, local: Scope | None) -> None:
        source = names.source
        where = f"{source.path}:{source.line_of(occurrence.start)}"
        if not source.rename(occurrence.start, occurrence.name, new):
            self._report.doubts.append(f"{where}: {occurrence.name} is not where Python says")
        if self._mapping.force:
            return
        owner = occurrence.scope.owner(new)
        if owner is not None and not (owner.kind == CLASS and local is None) and not self._leaves(names, new, owner):
            self._report.problems.append(f"{where}: {occurrence.name} becomes {new}, which means something else there")

    def _leaves(self, names: Names, name: str, owner: Scope) -> bool:
        """Whether a name that is bound already is renamed itself, or means the renamed thing."""
        if (names.module, id(owner), name) in self._locals:
            return True
        meaning = self._program.lookup(names, name, owner)
        return isinstance(meaning, str) and meaning in self.things

    def captured(self, names: Names) -> Iterator[str]:
        """Names of a file that would mean a renamed thing although they mean something else."""
        if self._mapping.force:
            return
        inner = {
            (id(scope), new): scope for (module, _, _), (scope, new) in self._locals.items() if module == names.module
        }
        new_things = {
            self.things[f"{names.module}.{name}"] for name in names.top.plain if f"{names.module}.{name}" in self.things
        }
        for occurrence in names.occurrences:
            owner = occurrence.scope.owner(occurrence.name)
            where = f"{names.source.path}:{names.source.line_of(occurrence.start)}"
            if owner is None and occurrence.name in new_things and occurrence.imported is None:
                yield f"{where}: {occurrence.name} would mean the renamed thing"
            scope: Scope | None = occurrence.scope
            while scope is not None and scope is not owner:
                if (id(scope), occurrence.name) in inner and scope.kind == FUNCTION:
                    yield f"{where}: {occurrence.name} would mean the renamed variable"
                scope = scope.parent

    def _decide(self, found: set[str], name: str, where: str) -> str | None:
        """The new name, when what was found is renamed."""
        new = {self.things.get(each) or self._parameters.get(each) for each in found if not each.startswith(UNKNOWN)}
        if len(new) == 1 and None not in new and UNKNOWN not in found:
            return new.pop()
        if new - {None}:
            self._report.problems.append(f"{where}: {name} is renamed for some of {', '.join(sorted(found))} only")
        elif UNKNOWN in found or not new:
            self._report.doubts.append(f"{where}: whose {name}? mypy has no type here")
        return None

    def _apply_attribute(self, names: Names, node: ast.Attribute, words: set[str]) -> None:
        source = names.source
        start = source.span(node)[1] - len(node.attr)
        dotted = self._program.dotted(names, node)
        if dotted is not None:
            if dotted in self.things:
                source.rename(start, node.attr, self.things[dotted])
            return
        if self.types is None or node.attr not in words:
            return
        where = f"{source.path}:{node.end_lineno}"
        new = self._decide(self.types.attribute(source.path, node), node.attr, where)
        if new is not None and not source.rename(start, node.attr, new):
            self._report.doubts.append(f"{where}: {node.attr} is not where Python says")

    def _apply_call(self, names: Names, node: ast.Call, words: set[str]) -> None:
        source = names.source
        name = called(node)
        where = f"{source.path}:{node.lineno}"
        if name in BY_NAME and len(node.args) > 1:
            self._apply_by_name(names, node, words)
        if self.types is None:
            return
        if name in ("attrgetter", "methodcaller"):
            for each in node.args:
                if isinstance(each, ast.Constant) and each.value in words:
                    self._report.doubts.append(f"{where}: {name}({each.value!r})")
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in words:
                continue
            new = self._decide(self.types.keyword(source.path, node, keyword.arg), keyword.arg, where)
            if new is not None:
                source.rename(source.span(keyword)[0], keyword.arg, new)

    def _apply_by_name(self, names: Names, node: ast.Call, words: set[str]) -> None:
        second = node.args[1]
        if not (isinstance(second, ast.Constant) and isinstance(second.value, str)):
            self._doubt_strings(names, node, words)
            return
        module = self._program.dotted(names, node.args[0])
        if module is not None and self._program.is_module(module):
            new = self.things.get(self._program.defined(module, second.value))
        elif self.types is not None and second.value in words:
            where = f"{names.source.path}:{node.lineno}"
            new = self._decide(self.types.argument(names.source.path, node, 0, second.value), second.value, where)
        else:
            return
        if new is not None:
            rename_constants(names.source, [second], second.value, new)

    def _doubt_strings(self, names: Names, node: ast.Call, words: set[str]) -> None:
        """`setattr(gang, name, 1)`: the name may come from any string of the file."""
        source = names.source
        if self.types is None:
            return
        for word in sorted(words):
            if not self.types.argument(source.path, node, 0, word) & self.things.keys():
                continue
            for each in ast.walk(source.tree):
                if isinstance(each, ast.Constant) and each.value == word:
                    told = f"{source.path}:{each.lineno}: is {word!r} a name for {called(node)} in line {node.lineno}?"
                    self._report.doubts.append(told)

    def _apply_pattern(self, names: Names, node: ast.MatchClass, words: set[str]) -> None:
        assert self.types is not None
        source = names.source
        at = source.span(node)[0]
        for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            start = source.span(pattern)[0]
            matches = list(re.finditer(rf"\b({name})\s*=\s*\(*$", source.text[at:start]))
            if name in words and matches:
                new = self._decide(self.types.pattern(source.path, node, name), name, f"{source.path}:{node.lineno}")
                if new is not None:
                    source.rename(at + matches[-1].start(1), name, new)

    def _apply_listed(self, names: Names, node: ast.AST, value: ast.expr) -> None:
        owner = next((c for c in ast.walk(names.source.tree) if isinstance(c, ast.ClassDef) and node in c.body), None)
        for each in ast.walk(value):
            if not (isinstance(each, ast.Constant) and isinstance(each.value, str)):
                continue
            if owner is None:
                new = self.things.get(self._program.defined(names.module, each.value))
            else:
                new = self.things.get(f"{names.module}.{names.classes[owner].typed}.{each.value}")
            if new is not None:
                rename_constants(names.source, [each], each.value, new)

    def _apply_parametrized(self, names: Names, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        scope = names.functions.get((node.lineno, node.name))
        for argument in _arguments(names, node.lineno):
            found = self._locals.get((names.module, id(scope), argument))
            if found is None:
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
                    rename_constants(names.source, decorator.args[:1], argument, found[1])


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def rename_constants(source: Source, nodes: list[ast.expr], old: str, new: str) -> None:
    """Rename a word in strings."""
    for each in (part for node in nodes for part in ast.walk(node)):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            start, end = source.span(each)
            for match in re.finditer(rf"\b{old}\b", source.text[start:end]):
                source.rename(start + match.start(), old, new)


def _arguments(names: Names, line: int) -> set[str]:
    """The parameters of the function defined in a line."""
    return names.arguments.get(line, set())


def _class_of(names: Names, qualified: str) -> ast.ClassDef | None:
    body: list[ast.stmt] = names.source.tree.body
    found = None
    for part in qualified.split("."):
        found = next((n for n in body if isinstance(n, ast.ClassDef) and n.name == part), None)
        if found is None:
            return None
        body = found.body
    return found
