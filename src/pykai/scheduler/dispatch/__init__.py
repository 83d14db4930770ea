"""Decisions become writes: binds, BindRequests, evictions, and what happens when one fails."""
