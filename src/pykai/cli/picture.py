"""What a console has printed, as an SVG file."""

from __future__ import annotations

import re
from pathlib import Path

import click
from rich.console import Console


def save_picture(console: Console, path: Path, title: str) -> None:
    """Write what a recording console has printed; the picture fetches nothing when it is displayed."""
    drawn = console.export_svg(title=title, unique_id="".join(filter(str.isalpha, title)))
    try:
        # Any monospaced font will do.
        path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the picture {path} cannot be written: {error.strerror or error}") from error
