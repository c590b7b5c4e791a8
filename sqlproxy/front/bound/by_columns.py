"""Rows that are known column by column, of which only some columns are wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class ByColumns(Sequence[Sequence[object]], ABC):
    """Rows of which each column can be had by itself. `made`: what a reader made of columns, to
    find it again as long as the rows are there.
    """

    def __init__(self) -> None:
        self.made: dict[object, Any] = {}

    @abstractmethod
    def column(self, place: int) -> Sequence[object]: ...
