"""Dashboards for Grafana and alert rules for Prometheus: tables, and the files and objects that follow from them."""
