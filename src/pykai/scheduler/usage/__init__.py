"""Historical usage for time-based fair share (queues:14): where it comes from, and how the cycles get it."""
