"""What is neither query nor definition: blocks, settings, cursors, roles, privileges, DO."""
