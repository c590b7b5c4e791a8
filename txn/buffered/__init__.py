"""What a transaction keeps until its commit: its writes (memory, file), and what it read."""
