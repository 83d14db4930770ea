"""The state of one cycle: gangs, placements, the journal, and the decisions so far."""
