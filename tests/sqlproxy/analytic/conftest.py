"""The node of tests/sql."""

from tests.sql.conftest import node

__all__ = ["node"]
