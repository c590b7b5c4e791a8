"""What all rooms use: ports, deadlines and background work, the sizes of messages, refusals."""
