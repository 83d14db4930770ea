"""The engine: pure functions from the state of a cluster to a plan.

Nothing here reads a clock, draws a random number, logs or talks to a network; time and seed come in with the
snapshot.  Read `schedule.py` first: it is one scheduling cycle from top to bottom.
"""
