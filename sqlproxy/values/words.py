"""Long lists of PostgreSQL's own words, written as text: functions, units, options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Key = TypeVar("_Key")


def words(text: str) -> frozenset[str]:
    """What stands between the spaces."""
    return frozenset(text.split())


def by_word(texts: Mapping[_Key, str]) -> dict[str, _Key]:
    """Each word of the texts → the key of its text."""
    return {word: key for key, text in texts.items() for word in text.split()}
