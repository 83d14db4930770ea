"""Which mutants a run with `--changed` is about (`tools/choosing.py`)."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tools.choosing import TENTHS, NoRevision, changed_and_a_tenth, tenth_of
from tools.listing import Mutant, as_toml

FILES = {"a": "src/shop/a.py", "b": "src/shop/b.py"}


def mutant(number: int, *, of: str = "b", tests: tuple[str, ...] = ("tests/test_b.py",)) -> Mutant:
    return Mutant("shop.toml", 1, f"shop:{number}", "a rule", "old", "new", tests, where=f"{of}:rule")


MUTANTS = [mutant(number) for number in range(100)]


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=jane", "-c", "user.email=jane@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, **texts: str) -> str:
    """Write files, by their path, and commit them; the hash."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-q", "--allow-empty", "-m", "change")
    return git(root, "rev-parse", "HEAD")


def as_list(mutants: list[Mutant]) -> str:
    fields = ("id", "title", "where", "old", "new")
    return "\n".join(
        "\n".join(
            [
                "[[mutant]]",
                *(f"{name} = {as_toml(getattr(each, name))}" for name in fields),
                f"tests = {json.dumps(each.tests)}",
            ]
        )
        for each in mutants
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two modules and a hundred listed mutants, all of it committed."""
    git(tmp_path, "init", "-q", "-b", "main")
    commit(
        tmp_path,
        **dict.fromkeys((*FILES.values(), "tests/test_a.py", "tests/test_b.py", "tests/b/test_more.py"), ""),
        **{"mutants/shop.toml": as_list(MUTANTS)},
    )
    return tmp_path


def chosen(root: Path, mutants: list[Mutant], base: str = "main") -> list[Mutant]:
    files = {each: FILES[each.where.partition(":")[0]] for each in mutants}
    return changed_and_a_tenth(root, mutants, files, base).mutants


def tenth(root: Path, mutants: list[Mutant]) -> list[Mutant]:
    number = int(git(root, "rev-parse", "HEAD"), 16) % TENTHS
    return [each for each in mutants if tenth_of(each) == number]


def test_without_a_change_a_tenth_is_chosen_by_the_commit(root: Path) -> None:
    commit(root, README="text")
    first = chosen(root, MUTANTS)
    assert first == tenth(root, MUTANTS)
    assert first == chosen(root, MUTANTS)
    assert 0 < len(first) < 30
    seen = set(first)
    for number in range(100):
        commit(root, README=f"text {number}")
        seen.update(chosen(root, MUTANTS))
        if len(seen) == len(MUTANTS):
            break
    assert seen == set(MUTANTS)


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("src/shop/a.py", ("tests/test_b.py",)),
        ("tests/test_a.py", ("tests/test_b.py", "tests/test_a.py::test_rule")),
        ("tests/b/test_more.py", ("tests/b",)),
    ],
)
def test_mutants_of_changed_code_and_of_changed_tests_are_chosen(root: Path, path: str, tests: tuple[str, ...]) -> None:
    listed = [*MUTANTS, *(mutant(number, of="a", tests=tests) for number in range(100, 120))]
    commit(root, **{"mutants/shop.toml": as_list(listed)})
    commit(root, **{path: "# changed\n"})
    assert chosen(root, listed) == [*tenth(root, MUTANTS), *listed[100:]]


def test_mutants_whose_table_is_new_or_has_changed_are_chosen(root: Path) -> None:
    listed = [replace(MUTANTS[0], new="newer"), *MUTANTS[1:], mutant(100)]
    commit(root, **{"mutants/shop.toml": as_list(listed)})
    found = chosen(root, listed)
    assert {listed[0], listed[-1]} <= set(found)
    assert set(found) == {listed[0], listed[-1], *tenth(root, MUTANTS[1:])}


def test_all_that_differs_from_the_base_counts(root: Path) -> None:
    """Also what is not committed yet."""
    git(root, "checkout", "-q", "-b", "work")
    listed = [mutant(number, of="a" if number < 10 else "b") for number in range(20)]
    commit(root, **{"mutants/shop.toml": as_list(listed)})
    commit(root, **{"src/shop/a.py": "# changed\n"})
    commit(root, README="text")
    assert set(listed[:10]) <= set(chosen(root, listed, base="main"))
    git(root, "checkout", "-q", "main")
    commit(root, **{"mutants/shop.toml": as_list(listed)})
    commit(root)
    assert chosen(root, listed) == tenth(root, listed)
    (root / "src/shop/a.py").write_text("# being changed\n")
    assert set(listed[:10]) <= set(chosen(root, listed))


def test_an_unknown_base_is_the_last_commit_but_one(root: Path) -> None:
    listed = [*MUTANTS, mutant(100, of="a")]
    commit(root, **{"mutants/shop.toml": as_list(listed)})
    commit(root, **{"src/shop/a.py": "# changed\n"})
    assert chosen(root, listed, base="origin/main") == [*tenth(root, MUTANTS), listed[-1]]


def test_what_git_does_not_know_is_said(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(NoRevision, match="HEAD~1"):
        chosen(root, MUTANTS, base="gone")
    with pytest.raises(NoRevision, match="not a git repository"):
        chosen(tmp_path_factory.mktemp("bare"), MUTANTS)
