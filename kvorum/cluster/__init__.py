"""A node among others: links, who is a member, how one joins, and what nodes tell each other about
once a second."""
