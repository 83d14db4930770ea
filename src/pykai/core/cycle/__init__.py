"""The state of one cycle: gangs, placements, the journal, and what was decided so far."""
