"""The pod grouper: which PodGroup and which of its subgroups a pod belongs to.

So far its pure parts: `segments` divides workloads into subgroups, `constraints` reads what they ask of the topology.
"""
