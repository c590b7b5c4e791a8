"""Bound queries taken apart: what must be computed before the rest can run."""
