"""From the change feed of the caches to the tables of the engine."""
