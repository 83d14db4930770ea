"""Where a task can go, and where it goes best."""
