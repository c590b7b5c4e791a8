"""Breaks of what computes long: between two pieces, each of some milliseconds at most, it calls
`pause`.

Who runs it (sqlproxy/loop/computing.py) says what a break is: others have the loop meanwhile, and
what was cancelled ends there. Where nobody does, there is none. Of each thread, task and greenlet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
Break = Callable[[], None]
_PIECE: Final = 1 << 8


class Breaks(Protocol):
    """How what computes takes its breaks."""

    def take(self) -> None:
        """Between two pieces."""
        ...

    def hasten(self) -> None:
        """Before a call that cannot be long."""
        ...


class _Taken:
    """The same for all."""

    __slots__ = ("hasten", "take")

    def __init__(self, take: Break) -> None:
        self.take = self.hasten = take


def no_break() -> None:
    """Nobody waits."""


NO_BREAKS: Final[Breaks] = _Taken(no_break)
BREAKS: Final[ContextVar[Breaks]] = ContextVar("breaks", default=NO_BREAKS)


def set_breaks(take: Break) -> None:
    """What computes here takes all its breaks so."""
    BREAKS.set(_Taken(take))


def pause() -> None:
    """Between two pieces."""
    BREAKS.get().take()


def paused(items: Iterable[T], piece: int = _PIECE) -> Iterator[T]:
    """The items, with a break after each `piece` of them."""
    for n, item in enumerate(items, 1):
        yield item
        if not n % piece:
            pause()


def pausing(call: Callable[..., T], *, short: bool = False) -> Callable[..., T]:
    """A function whose cost depends on what it is given: there is a break before each call."""

    def called(*args: object) -> T:
        breaks = BREAKS.get()
        if short:
            breaks.hasten()
        else:
            breaks.take()
        return call(*args)

    return called
