"""Killing processes under load and proving, from a recording alone, that nothing was broken by it."""
