"""One node, put together: its store, its doors, its upkeep, and the procedures that it offers."""
