"""Simulated autoscalers: nodes that come for unschedulable pods, and go when idle (docs/autoscaling.md)."""
