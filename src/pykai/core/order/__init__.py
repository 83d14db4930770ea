"""In which order queues, groups and tasks are served."""
