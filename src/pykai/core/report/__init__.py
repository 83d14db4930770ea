"""What a cycle decided, as data, and the sentences made of it."""
