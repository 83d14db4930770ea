"""Discrete resources, granted one by one: devices of claims, NUMA zones, volumes."""
