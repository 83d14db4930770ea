"""Writes the status of Queues and their metrics."""
