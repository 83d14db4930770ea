"""Logs, metrics and the HTTP endpoint that every service has."""
