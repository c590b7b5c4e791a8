"""Breaks of what computes long: between two pieces, each of some milliseconds at most, it calls
`pause`.

Who runs it (sqlproxy/loop/computing.py) says what a break is: others have the loop meanwhile, and
what was cancelled ends there. Where nobody does, there is none. Of each thread, task and greenlet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")
Break = Callable[[], None]
_PIECE: Final = 1 << 8


def no_break() -> None:
    """Nobody waits."""


_TAKE: Final[ContextVar[Break]] = ContextVar("take", default=no_break)
_SHORT: Final[ContextVar[Break]] = ContextVar("short", default=no_break)


def set_breaks(take: Break, short: Break | None = None) -> None:
    """What computes here takes its breaks so. `short`: before a call that cannot be long."""
    _TAKE.set(take)
    _SHORT.set(short or take)


def pause() -> None:
    """Between two pieces."""
    _TAKE.get()()


def paused(items: Iterable[T], piece: int = _PIECE) -> Iterator[T]:
    """The items, with a break after each `piece` of them."""
    for n, item in enumerate(items, 1):
        yield item
        if not n % piece:
            _TAKE.get()()


def pausing(call: Callable[..., T], *, short: bool = False) -> Callable[..., T]:
    """A function whose cost depends on what it is given: there is a break before each call."""
    taken = _SHORT if short else _TAKE

    def called(*args: object) -> T:
        taken.get()()
        return call(*args)

    return called
