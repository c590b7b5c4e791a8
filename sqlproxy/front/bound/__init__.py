"""What statements and their expressions are once their names are known."""
