"""The cluster as tables that follow every change, and the snapshot a cycle reads."""
