"""A hint for an unknown word: the known word that was probably meant.

Flags, actions, plugins and arguments are typed by people; an error that names the right spelling saves a look into the
documentation.  The text follows the sentence that refuses the word and is empty where no known word is close.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """`; did you mean NAME?` with the closest known word, or an empty text; `prefix` precedes it, such as dashes."""
    found = get_close_matches(word.lower(), sorted(candidates), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{found[0]}?" if found else ""
