"""What statements are bound with: what a database declares, and how a process keeps knowing it."""
