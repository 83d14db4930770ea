"""The same installation as a base for kustomize, rendered with the default values.

Three folders, so that deleting one takes nothing else along: definitions, what users work in, and the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykai.api.crds import custom_resource_definitions
from pykai.operator.installing.release import Release, is_kept, release_objects
from pykai.operator.manifesttext import manifest

_KUSTOMIZATION = "kustomization.yaml"


def kustomize_files() -> dict[str, str]:
    """Path below the folder of the bases -> text."""
    objects = release_objects(Release())
    folders = {
        "crds": custom_resource_definitions(),
        "kept": [each for each in objects if is_kept(each)],
        "base": [each for each in objects if not is_kept(each)],
    }
    return {path: text for folder, listed in folders.items() for path, text in _files(folder, listed).items()}


def _files(folder: str, objects: Sequence[dict[str, Any]]) -> dict[str, str]:
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["objects.yaml"],
    }
    return {
        f"{folder}/{_KUSTOMIZATION}": manifest(kustomization),
        f"{folder}/objects.yaml": "---\n".join(manifest(each) for each in objects),
    }
