"""Whose turn is it: the queue tree, fair shares, quotas, and the order in which groups are served."""
