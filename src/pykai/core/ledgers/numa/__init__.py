"""Which pod holds what of which NUMA zone."""
