"""What objects look like: fields, list keys, defaults, protobuf numbers; checks, defaults and pruning by it."""
