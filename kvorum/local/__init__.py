"""What a process takes from its machine: ports, identity, settings, memory, clocks of its own,
logs."""
