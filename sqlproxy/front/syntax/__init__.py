"""Text → the tree that PostgreSQL's parser makes of it, and what MySQL's users add to it."""
