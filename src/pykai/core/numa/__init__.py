"""NUMA: a node's zones, what a pod needs of them, and which of them it gets (gpu:12)."""
