"""Decisions become writes: binds, BindRequests, evictions, and the handling of failures."""
