"""The scheduler service around the engine."""
