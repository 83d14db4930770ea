"""Updates `mutants/*.toml` after code has moved or been renamed.

In: the lists, the tree as it is, and the revision that the lists fit (HEAD, as long as a renaming is not committed).
Out: the lists with the present `where`, `old`, `new`, `nth` and paths of tests; the changes; the fragments that were
not found.

A fragment alone is often too small to be recognised in another place. The function it stands in is not: that of the
revision is looked for in the tree by its whole shape, and what its identifiers have become is applied to the fragment
and to its replacement. Only where no function has the same shape any more is the fragment itself looked for.

Subtle: a replacement may use names that its function does not. They get the name that most other functions that use
them have now.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.anchors import (
    DEFINITIONS,
    Binding,
    Fragment,
    Freedom,
    Identifier,
    Source,
    Sources,
    Unanchored,
    find,
    position,
    same,
)
from tools.listing import Checker, Mutant, rewrite

_WHOLE = (Freedom(names=True, texts=False, bodies=False), Freedom(names=True, texts=True, bodies=False))
Scope = tuple[Source, str]


def repair(root: Path, mutants: Sequence[Mutant], since: str) -> tuple[list[str], list[str]]:
    """Rewrite the lists; what was rewritten, and what could not be found, one line each."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        before = Path(temporary)
        _unpack(root, since, before)
        return _Repair(root, before).run(mutants)


def _unpack(root: Path, revision: str, target: Path) -> None:
    """The sources of a revision; none where there is no such thing."""
    done = subprocess.run(["git", "archive", revision, "src"], cwd=root, capture_output=True, check=False)
    if done.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(target, filter="data")


class _Repair:
    def __init__(self, root: Path, before: Path) -> None:
        self._root = root
        self._checker = Checker(root)
        self._now, self._before = self._checker.sources, Sources(before)
        self._found: dict[str, tuple[Scope, Binding] | None] = {}
        self._votes: dict[Identifier, Counter[str]] = defaultdict(Counter)
        self._by_size: dict[tuple[object, ...], list[Scope]] | None = None

    def run(self, mutants: Sequence[Mutant]) -> tuple[list[str], list[str]]:
        """All mutants: first where their functions are now, then what the names have become."""
        stale = [mutant for mutant in mutants if mutant.where and not self._fits(mutant)]
        for mutant in stale:
            self._whole(mutant.where)
        lines, errors = [], []
        changes: dict[str, dict[int, dict[str, str | int | None]]] = defaultdict(dict)
        for mutant in mutants:
            change: dict[str, str | int | None] = {}
            if mutant in stale:
                try:
                    change = self._repaired(mutant)
                except Unanchored as error:
                    errors.append(f"{mutant.name}: {error}")
                    continue
                lines.append(f"{mutant.name}: {mutant.where} -> {change['where']}")
            if change:
                changes[mutant.source][mutant.number] = change
        for name, tables in changes.items():
            rewrite(self._root / "mutants" / name, "mutant", tables)
        return lines, errors

    def _fits(self, mutant: Mutant) -> bool:
        """Whether the entry is up to date."""
        module, _, qualname = mutant.where.partition(":")
        source = self._now.get(module)
        if source is None or (qualname and qualname not in source.scopes):
            return False
        try:
            place, fragment, _ = self._checker.applied(mutant.where, mutant.old, mutant.new, mutant.nth)
        except Unanchored:
            return False
        return (
            place.where == mutant.where
            and not place.binding.renamed
            and not self._checker.unknown(fragment, place)
            and position(place, fragment) == mutant.nth
        )

    def _repaired(self, mutant: Mutant) -> dict[str, str | int | None]:
        """The fields of a mutant as they should be."""
        if (whole := self._whole(mutant.where)) is not None:
            (source, qualname), binding = whole
            try:
                return self._tried(mutant, f"{source.module}:{qualname}", binding.renamed, mutant.nth)
            except Unanchored:
                pass
        # Looks through the whole project, so it comes last.
        fragment = Fragment.parse(mutant.old, mutant.new)
        place = find(self._now, mutant.where, fragment, mutant.nth)
        return self._tried(mutant, place.where, place.binding.renamed, position(place, fragment))

    def _tried(
        self, mutant: Mutant, where: str, names: dict[Identifier, str], nth: int | None
    ) -> dict[str, str | int | None]:
        """The fields of a mutant in another place, under other names."""
        old, new = mutant.old, mutant.new
        if names:
            old, new = Fragment.parse(old, new).renamed(names)
        place, fragment, _ = self._checker.applied(where, old, new, nth)
        if unknown := self._checker.unknown(fragment, place):
            voted = {key: votes.most_common(1)[0][0] for key, votes in self._votes.items() if key[1] in unknown}
            if voted.items() <= names.items():
                raise Unanchored(f"`new` uses what is not there: {', '.join(unknown)}")
            return self._tried(mutant, where, voted | names, nth)
        return {"where": where, "old": old, "new": new, "nth": position(place, fragment)}

    def _whole(self, where: str) -> tuple[Scope, Binding] | None:
        """The function of the tree that has the shape of the revision's, and what its names have become."""
        module, _, qualname = where.partition(":")
        if where not in self._found:
            source = self._before.get(module)
            found = None
            if source is not None and (not qualname or qualname in source.scopes):
                found = self._best(source, qualname, _WHOLE[0]) or self._best(source, qualname, _WHOLE[1])
            self._found[where] = found
            for key, name in found[1].renamed.items() if found else ():
                self._votes[key][name] += 1
        return self._found[where]

    def _best(self, source: Source, qualname: str, freedom: Freedom) -> tuple[Scope, Binding] | None:
        """The likeliest of those with the same shape: the same name counts most, then the names within."""
        pattern = _bodies(source, qualname)
        ranked: list[tuple[tuple[int, ...], Scope, Binding]] = []
        for other, name in self._scopes().get(_size(pattern), ()):
            binding = Binding()
            if same(pattern, _bodies(other, name), freedom, binding):
                kept = len(binding.forward) - len(binding.renamed)
                leaf = name.rpartition(".")[2] == qualname.rpartition(".")[2]
                rank = (name == qualname and other.module == source.module, kept, leaf, other.module == source.module)
                ranked.append((tuple(map(int, rank)), (other, name), binding))
        ranked.sort(key=lambda each: each[0])
        if not ranked or (len(ranked) > 1 and ranked[-1][0] == ranked[-2][0]):
            return None
        return ranked[-1][1:]

    def _scopes(self) -> dict[tuple[object, ...], list[Scope]]:
        """All functions, classes and modules of the tree by what is quick to compare."""
        if self._by_size is None:
            self._by_size = defaultdict(list)
            for source in filter(None, map(self._now.get, self._now.modules)):
                for qualname in ("", *source.scopes):
                    self._by_size[_size(_bodies(source, qualname))].append((source, qualname))
        return self._by_size


def _bodies(source: Source, qualname: str) -> list[ast.stmt]:
    """What a function or class is; of a class and a module without the functions and classes defined there."""
    if not qualname:
        return [each for each in source.tree.body if not isinstance(each, DEFINITIONS)]
    found: list[ast.stmt] = []
    for steps in source.scopes[qualname]:
        parent, name, index = steps[-1]
        node = getattr(parent, name)[index]
        if isinstance(node, ast.ClassDef):
            body = [each for each in node.body if not isinstance(each, DEFINITIONS) and not _is_text(each)]
            node = ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)
        else:
            node = type(node)(**{**vars(node), "body": [each for each in node.body if not _is_text(each)]})
        found.append(node)
    return found


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _size(nodes: Sequence[ast.AST]) -> tuple[object, ...]:
    """Equal for equal shapes."""
    counts = Counter(type(node).__name__ for each in nodes for node in ast.walk(each))
    return tuple(sorted(counts.items()))
