"""Karta objects: an administrator describes a kind of workload by expressions, and its pods become gangs.

`definition` is the object as users write it, `compiled` checks it and compiles its expressions, `scale` counts the pods
of a component, `grouper` makes PodGroups of it, and `registry` keeps the groupers of the Kartas of a cluster.
"""
