"""Built-in procedures. Each is registered under a stable name when its module is imported."""
