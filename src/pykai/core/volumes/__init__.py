"""Persistent volumes: what claims ask for (`storage.py`), which nodes can serve them (`placing.py`), who has what in a
cycle (`books.py`)."""
