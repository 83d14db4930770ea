"""Devices of ResourceSlices and the claims of pods, kept current object by object."""
