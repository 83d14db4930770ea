"""The services that exist, as one table; the command line, manifests, roles and docs are read from it."""
