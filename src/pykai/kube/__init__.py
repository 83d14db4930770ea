"""Talking to a Kubernetes API server: client, watches, caches, work queues, leases, events.

Knows nothing of scheduling.
"""
