"""What a node does while it is the master: it runs procedures, balances, splits and merges, and
serves the bus."""
