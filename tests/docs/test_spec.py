"""docs/spec and its citations: every id that is cited exists, and every statement is cited or listed as not built."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools.spec import DOCUMENTS, OURS, ROOT, SPEC, Specification, uncited

ADRS = {int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
LISTS = ("Not built", "Needs no code", "Cases without a test of ours")
#: Documents whose links must resolve.
PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")))


@cache
def specification() -> Specification:
    return Specification()


@cache
def waiting() -> dict[str, list[str]]:
    """List of not-built-yet.md -> the statements in it: the part before the first colon of each entry."""
    text = (ROOT / SPEC / "not-built-yet.md").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        entries = re.findall(r"^- (.+?): ", body.replace("\n  ", " "), flags=re.MULTILINE)
        found[title] = [name for entry in entries for name in specification().listed(entry)]
    return found


def test_anchors_are_unique() -> None:
    counts = Counter(statement.id for statement in specification().statements)
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_id_that_is_cited_exists() -> None:
    spec = specification()
    unknown = []
    for path in spec.files():
        for citation in spec.citations(path):
            decided = re.fullmatch(r"ADR-(\d+)", citation.id)
            if citation.id not in spec.ids and not (decided and int(decided[1]) in ADRS):
                unknown.append(f"{path.relative_to(ROOT)}:{citation.line}: {citation.id}")
    assert unknown == []


def test_every_decision_that_is_named_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: ADR {number}"
        for path in specification().files(("src", "tests", "docs", "mutants"))
        for number in re.findall(r"\bADR[ -](\d+)\b", specification().text(path))
        if int(number) not in ADRS
    ]
    assert wrong == []


def test_ids_have_the_prefix_of_their_document() -> None:
    """Several documents have statements of one name: without a prefix a reference leads nowhere."""
    bare = [
        f"{citation.file.relative_to(ROOT)}:{citation.line}: {citation.id}"
        for path in specification().files(("src", "tests", "docs"))
        for citation in specification().bare(path)
    ]
    assert bare == []


def test_every_statement_is_cited_or_listed() -> None:
    listed = {name for names in waiting().values() for name in names}
    missing = [statement.id for statement in uncited(specification()) if statement.id not in listed]
    assert missing == [], (
        "cite these where the rule lives (cases: in a test), or list them in docs/spec/not-built-yet.md"
    )


def test_what_is_cited_leaves_the_list() -> None:
    open_ids = {statement.id for statement in uncited(specification())}
    built = [name for names in waiting().values() for name in names if name not in open_ids]
    assert built == [], "src (cases: tests) cites these: take them out of docs/spec/not-built-yet.md"


def test_the_list_names_each_statement_once_under_its_heading() -> None:
    assert tuple(waiting()) == LISTS
    counts = Counter(name for names in waiting().values() for name in names)
    assert [name for name, count in counts.items() if count > 1] == []
    cases = {statement.id for statement in specification().statements if statement.is_case}
    assert {name for name in waiting()[LISTS[2]] if name not in cases} == set()
    assert cases.isdisjoint(waiting()[LISTS[0]] + waiting()[LISTS[1]])


@pytest.mark.parametrize("prefix", DOCUMENTS)
def test_the_figures_are_those_of_the_lists(prefix: str) -> None:
    text = (ROOT / SPEC / "not-built-yet.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{prefix}` \| (\d+) \| (\d+) \| (\d+) \|$", text, flags=re.MULTILINE)
    assert row is not None
    counts = tuple(sum(name.startswith(f"{prefix}:") for name in waiting()[title]) for title in LISTS)
    assert tuple(map(int, row.groups())) == counts


def test_what_is_ours_has_a_mutant() -> None:
    """The other documents have a list of the statements that must have one (mutants/required.txt)."""
    spec = specification()
    cited = {citation.id for path in spec.files(("mutants",)) for citation in spec.citations(path)}
    ours = [statement.id for statement in spec.statements if statement.prefix == OURS]
    assert [name for name in ours if name not in cited] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("(gpu:D-12, D-17).", ["gpu:D-12", "gpu:D-17"]),
        ("queues:Q-265 to Q-267)", ["queues:Q-265", "queues:Q-266", "queues:Q-267"]),
        ("queues:19.5 O2", ["queues:19.5", "queues:O2"]),
        ("cycle:8.3 to 8.5, 13.4).", ["cycle:8.3", "cycle:8.5", "cycle:13.4"]),
        (
            """cycle:STM-1,
            # STM-2; topo:T-5 and 3 pods""",
            ["cycle:STM-1", "cycle:STM-2", "topo:T-5"],
        ),
        ("workloads:WK-PT and WK-LWS", ["workloads:WK-PT", "workloads:WK-LWS"]),
        ("cycle:" + "PG-999", ["cycle:" + "PG-999"]),
        ("gpu: int, x.cycle:5, workloads:Pods, topo:T", []),
    ],
)
def test_how_citations_are_read(text: str, ids: list[str]) -> None:
    assert specification().listed(text) == ids


@cache
def _anchors(path: Path) -> frozenset[str]:
    """Where links into a page may lead: its anchors, and its headings as GitHub names them."""
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"<[^>]+>|[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = unquote(target).partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (fragment and file.suffix == ".md" and fragment not in _anchors(file)):
            broken.append(target)
    assert broken == []


def test_nothing_refers_to_documents_outside_the_repository() -> None:
    for path in (ROOT / SPEC).glob("*.md"):
        assert "../shared" not in path.read_text(encoding="utf-8")
