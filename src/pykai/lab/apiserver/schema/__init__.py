"""Schemas of objects: fields, list keys, defaults, protobuf numbers; validation, defaulting and pruning."""
