"""Kubernetes' own controllers, as far as users of a simulated cluster see them.

A real cluster has kube-controller-manager; the embedded one has these. Each module is one controller; `controller`
holds what they share.
"""
