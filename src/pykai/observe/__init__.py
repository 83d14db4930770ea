"""What operators see of a running service: log lines, metrics, and the HTTP endpoint that serves both their health."""
