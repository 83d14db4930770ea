"""Removes impossible claims from objects before the engine sees them."""
