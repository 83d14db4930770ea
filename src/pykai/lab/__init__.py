"""Clusters that exist only in memory: recorded cases, benchmarks, the demo."""
