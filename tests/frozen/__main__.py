"""Prints what differs between the frozen lists and the program, or writes the lists again."""

from __future__ import annotations

import argparse
import sys

from tests.frozen.topics import TOPICS, check, write

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"of {', '.join(TOPICS)}; all when left out")
    parser.add_argument("--write", action="store_true", help="write the lists instead of comparing them")
    options = parser.parse_args()
    chosen = options.topics or list(TOPICS)
    if unknown := [topic for topic in chosen if topic not in TOPICS]:
        parser.error(f"no such topic: {', '.join(unknown)}")
    differences = []
    for topic in chosen:
        if options.write:
            write(topic)
        elif text := check(topic):
            differences.append(text)
    sys.stdout.write("\n".join(differences))
    sys.exit(1 if differences else 0)
