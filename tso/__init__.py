"""The timestamp oracle: strictly increasing 64-bit timestamps with a durable bound."""
