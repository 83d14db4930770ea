"""`kai conformance`: recorded decisions of KAI Scheduler against those of this engine, PodGroups of KAI's pod grouper
against ours.

Lines for people go to standard output; with `--json` they go to standard error, and the last line of standard output
is one JSON object for programs.  Exit status: 0 everything as recorded, 1 something differs, 2 nothing could be run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from pykai.dev.cases import Case, CaseError, case_files, read_cases
from pykai.dev.comparison import FIELDS, has_expectations
from pykai.dev.conformance import check_case
from pykai.dev.differences import compare_outcomes
from pykai.dev.groupingcases import (
    GROUPING_FIELDS,
    GroupingCase,
    check_grouping_case,
    is_grouping_file,
    read_grouping_cases,
)


class UnusableInput(click.ClickException):
    """Nothing can be run with this input."""

    exit_code = 2


class FileResult(NamedTuple):
    """What became of the cases of one file."""

    name: str
    passed: int
    #: id of a case -> where it differs
    failed: dict[str, list[str]]
    #: cases that expect nothing in the chosen fields
    left_out: int


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())


def _fields(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    chosen = _names(ctx, parameter, value)
    for name in chosen or ():
        if name not in FIELDS:
            raise click.BadParameter(f"unknown field {name!r}; there are {', '.join(FIELDS)}")
    return chosen or None


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--files", metavar="GLOB", callback=_names, help="Only files of this name; separate several by commas.")
@click.option(
    "--expect",
    "fields",
    metavar="FIELD,...",
    callback=_fields,
    help=f"Compare only these fields of the expectation: {', '.join(FIELDS)}.",
)
@click.option("--json", "as_json", is_flag=True, help='Last line of the output: {"<file>": {"passed", "failed"}}.')
@click.option(
    "--explain",
    "explained",
    is_flag=True,
    help="For cases that record how many pods run: both allocations, and whether ours is as good.",
)
@click.pass_context
def conformance(
    ctx: click.Context,
    folder: Path,
    files: tuple[str, ...] | None,
    fields: tuple[str, ...] | None,
    as_json: bool,
    explained: bool,
) -> None:
    """Run the recorded cases in DIR and compare the decisions, and the PodGroups in files of grouping cases.

    Prints a line for every file, and for every case that fails what is different. The exit status is 1 when a case
    fails, 2 when DIR, a file or a line cannot be used.
    """
    try:
        cases = {path.name: _read(path) for path in case_files(folder, files or ("*.jsonl",))}
    except CaseError as error:
        raise UnusableInput(str(error)) from error
    results: list[FileResult] = []
    with _progress(sum(map(len, cases.values()))) as advance:
        for name, listed in cases.items():
            results.append(_run_file(name, listed, fields, advance))
    _print(results, fields, err=as_json)
    if explained:
        _explain(cases, results, err=as_json)
    if as_json:
        summary = {result.name: {"passed": result.passed, "failed": list(result.failed)} for result in results}
        click.echo(msgspec.json.encode(summary))
    ctx.exit(1 if any(result.failed for result in results) else 0)


def _read(path: Path) -> list[Case] | list[GroupingCase]:
    """The cases of one file, which are of one sort."""
    return list(read_grouping_cases(path)) if is_grouping_file(path) else list(read_cases(path))


def _silent(file: str) -> None:
    """No progress to show."""


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error where that is a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(file: str) -> None:
            bar.update(task, advance=1, description=file)

        yield advance


def _run_file(
    name: str,
    cases: Sequence[Case | GroupingCase],
    fields: tuple[str, ...] | None,
    advance: Callable[[str], None],
) -> FileResult:
    passed = left_out = 0
    failed: dict[str, list[str]] = {}
    for case in cases:
        lines = _check(case, fields)
        if lines is None:
            left_out += 1
        elif lines:
            failed[case.id] = lines
        else:
            passed += 1
        advance(name)
    return FileResult(name, passed, failed, left_out)


def _check(case: Case | GroupingCase, fields: tuple[str, ...] | None) -> list[str] | None:
    """Where a case differs; None for one that expects nothing in the chosen fields."""
    if isinstance(case, GroupingCase):
        return None if fields and not {*fields} & {*GROUPING_FIELDS} else check_grouping_case(case, fields)
    return check_case(case, fields) if has_expectations(case, fields) else None


def _print(results: Sequence[FileResult], fields: tuple[str, ...] | None, *, err: bool) -> None:
    width = max(len(result.name) for result in results)
    for result in results:
        click.echo(f"{result.name:<{width}}  {_counts(result.passed, len(result.failed), result.left_out)}", err=err)
        for case_id, found in result.failed.items():
            click.echo(f"  {case_id}", err=err)
            for line in found:
                click.echo(f"    {line}", err=err)
    passed = sum(result.passed for result in results)
    failed = sum(len(result.failed) for result in results)
    left_out = sum(result.left_out for result in results)
    click.echo(f"{'total':<{width}}  {_counts(passed, failed, left_out)}", err=err)
    if left_out and fields:
        click.echo(f"{left_out} cases expect nothing of {', '.join(fields)} and were left out", err=err)


def _explain(cases: dict[str, list[Case] | list[GroupingCase]], results: Sequence[FileResult], *, err: bool) -> None:
    """What is behind the differences."""
    for result in results:
        for case in cases[result.name]:
            if isinstance(case, Case) and case.id in result.failed and "runningPods" in case.expect:
                click.echo("", err=err)
                for line in compare_outcomes(case).lines:
                    click.echo(line, err=err)


def _counts(passed: int, failed: int, left_out: int) -> str:
    return f"{passed:>4} passed {failed:>4} failed" + (f" {left_out:>4} left out" if left_out else "")
