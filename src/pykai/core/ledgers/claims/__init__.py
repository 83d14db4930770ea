"""Which pod holds which device of dynamic resource allocation."""
