"""Soak runs: kill processes under load and check invariants on a recording."""
