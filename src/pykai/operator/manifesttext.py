"""Objects as YAML, as `kai manifests`, `kai install` and the files of the chart show them."""

from __future__ import annotations

from typing import Any


def manifest(document: Any) -> str:
    """A document as YAML."""
    # Imported here: commands that print nothing need it not.
    import yaml

    class Plain(yaml.SafeDumper):
        """Without anchors, which readers of manifests do not expect."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    return yaml.dump(document, Dumper=Plain, sort_keys=False, width=120)
