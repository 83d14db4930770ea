"""Wire types of Kubernetes and KAI, and readers of their values.

Objects are msgspec Structs pruned to the fields a scheduler reads (`meta`, `core`, `scheduling`, `topology`,
`resource`, `numa`); `decode` turns bytes or parsed documents into them and explains what is wrong with a bad one.
Values that are text in the objects are read by `quantity`, `duration` and `timestamp`. `names` holds every label,
annotation, reason and default once.

This is the lowest layer: it imports nothing else of the project, reads no clock and does no I/O.

Statements: cycle:SNP-2.
"""
