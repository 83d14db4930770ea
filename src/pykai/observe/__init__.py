"""What operators see of a running service: logs, metrics, and the HTTP endpoint for metrics and health."""
