"""Brings a cluster to what `operator.desired` says, and reports how far it is."""
