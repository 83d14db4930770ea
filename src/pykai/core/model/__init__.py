"""Immutable records of one object each: pods, nodes, groups, shapes and what they request."""
