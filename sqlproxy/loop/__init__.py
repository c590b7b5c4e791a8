"""How long work shares the event loop: threads beside it, and turns on it."""
