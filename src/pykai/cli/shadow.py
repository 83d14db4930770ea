"""`kai shadow report`: how far a shadow agrees with the scheduler beside it."""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

_WIDTH = 80


@click.group()
def shadow() -> None:
    """A scheduler that decides beside another one and writes nothing (`kai run scheduler --shadow`)."""


@shadow.command()
@click.option(
    "--url",
    default="http://127.0.0.1:8081",
    show_default=True,
    help="Where the shadow serves its pages; in a cluster: kubectl port-forward deployment/NAME 8081.",
)
@click.option(
    "--output",
    "-o",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Text for people, or JSON for programs.",
)
@click.option("--last", default=20, show_default=True, help="How many differences are listed, the newest.")
def report(url: str, output: str, last: int) -> None:
    """Say how many decisions of the other scheduler the shadow would have made, too, and list the others."""
    try:
        document = asyncio.run(_fetch(f"{url.rstrip('/')}/get-shadow-report"))
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{url}: {error}. Is a scheduler with --shadow running there?") from None
    click.echo(json.dumps(document, indent=2) if output == "json" else "\n".join(report_lines(document, last)))


async def _fetch(url: str) -> dict[str, Any]:
    import aiohttp

    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as http, http.get(url) as answer:
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}: {(await answer.text())[:200]}")
            document = await answer.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error) or "no answer within 30 s") from None
    if not isinstance(document, dict) or "differences" not in document:
        raise ValueError("the answer is not the report of a shadow")
    return document


def report_lines(document: Mapping[str, Any], last: int) -> Iterator[str]:
    """The report as text that fits 80 columns."""
    binds, evictions = document["binds"], document["evictions"]
    yield f"Since {document['since']} agreed with the other scheduler"
    yield f"on {binds['agreed']} of {binds['compared']} binds,"
    yield f"on {evictions['agreed']} of {evictions['compared']} evictions."
    for name, kind in (("binds", binds), ("evictions", evictions)):
        if kind["outcomes"]:
            yield ""
            yield f"{name.capitalize()}:"
            for outcome, number in sorted(kind["outcomes"].items(), key=lambda each: (-each[1], each[0])):
                yield f"  {number:>7}  {outcome}"
    shown = document["differences"][-last:] if last > 0 else []
    if shown:
        yield ""
        yield f"The last {len(shown)} of {len(document['differences'])} differences that are kept:"
    for each in shown:
        places = f"theirs {each['theirs'] or '-'}, ours {each['ours'] or '-'}"
        text = f"{each['at']} {each['kind']} {each['pod']} (queue {each['queue'] or '-'}): {each['outcome']}; {places}"
        text += f"; {each['why']}" if each["why"] else ""
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    if document.get("dropped"):
        yield ""
        kept = (
            f"{document['dropped']} older differences were dropped: a shadow keeps the newest {document['keptAtMost']},"
        )
        yield from textwrap.wrap(f"{kept} so that it does not grow; all are in the counts above.", _WIDTH)
