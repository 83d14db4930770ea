"""Carries out BindRequests: reserves GPUs, writes config maps, allocates claims and volumes, binds pods."""
