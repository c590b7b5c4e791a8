"""Bound expressions → Python functions of a row, and whether they can raise."""
