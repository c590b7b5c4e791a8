"""Rows of declared tables as keys and values, one by one and as columns of Arrow; clients use it,
too."""
