"""What one session is and has; nothing here runs a statement."""
