"""Pods of our own Deployments, DaemonSets and Jobs as processes of this machine."""
