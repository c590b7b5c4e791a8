"""The version of the product; pyproject.toml has the same (a test compares them)."""

from typing import Final

VERSION: Final = "0.2.0"
