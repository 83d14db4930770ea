"""Which nodes a task fits, and which is best."""
