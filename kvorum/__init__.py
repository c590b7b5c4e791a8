"""What users touch: the SDK, the command, node wiring, the HTTP API and the console."""
