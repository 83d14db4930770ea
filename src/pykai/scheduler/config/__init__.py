"""The configuration of a scheduler: read, checked, and read again when it changes."""
