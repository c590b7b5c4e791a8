"""Who asked for what: the log of every request with its timestamps."""
