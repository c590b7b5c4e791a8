"""Breaks of what computes long: between two pieces, each of a millisecond or so, it calls `pause`.

Who runs it (sqlproxy/loop/computing.py) says what a break is: others have the loop meanwhile, and
what was cancelled ends here. Where nobody does, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
_PIECE: Final = 1 << 8


def _none() -> None:
    """Nobody waits."""


class Breaks:
    """Of a process: `take` is that of what computes now."""

    __slots__ = ("take",)

    def __init__(self) -> None:
        self.take: Callable[[], None] = _none

    def none(self) -> None:
        """Nothing computes now."""
        self.take = _none


BREAKS: Final = Breaks()


def pause() -> None:
    """Between two pieces."""
    BREAKS.take()


def paused(items: Iterable[T], piece: int = _PIECE) -> Iterator[T]:
    """The items, with a break after each `piece` of them."""
    for n, item in enumerate(items, 1):
        yield item
        if not n % piece:
            BREAKS.take()
