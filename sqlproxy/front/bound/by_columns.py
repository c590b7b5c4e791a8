"""Rows that are known column by column, of which only some columns are wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class ByColumns(Sequence[Sequence[object]], ABC):
    """Rows of which each column can be had by itself."""

    @abstractmethod
    def column(self, place: int) -> Sequence[object]: ...
