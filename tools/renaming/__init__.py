"""Renames modules, packages and identifiers across the repository; see `tools/rename.py`."""
