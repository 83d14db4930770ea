"""Keys of objects in caches, queues and tables: `namespace/name`, or `name` for cluster-wide objects."""

from __future__ import annotations


def object_key(namespace: str, name: str) -> str:
    """The key of an object in a namespace."""
    return f"{namespace}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a key; the namespace of a cluster-wide object is empty.

    The first slash separates: a name that a tenant wrote into a reference may contain more of them, a namespace may
    not.
    """
    namespace, slash, name = key.partition("/")
    return (namespace, name) if slash else ("", namespace)
