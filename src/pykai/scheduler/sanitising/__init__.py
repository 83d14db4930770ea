"""What objects claim and cannot be true is dropped before the engine sees it."""
