"""What all sessions of a process share: services, plans of statements, the list of sessions."""
