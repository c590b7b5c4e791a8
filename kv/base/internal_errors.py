"""What breaks inside, and what is made of it.

An exception that nobody expected is the answer of the request that met it, or nobody's; it never
ends a pass over the others. Whoever runs other people's work in a pass (the scheduler of
partitions, the dispatcher, consensus, the feed) catches it there and gives it to `Faults`: it is
counted, written to the log with its traceback the first time that this place breaks, and made an
answer that carries the id under which the log has it. No traceback leaves the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Final

from kv.base.errors import KvorumError, UnknownOutcome

log = logging.getLogger(__name__)

_PLACES_MAX: Final = 256  # whose traceback is remembered as written
_ID_BYTES: Final = 6


class Faults:
    """One of each node. `count`: unexpected exceptions since the start."""

    def __init__(self, node: int = 0, token: Callable[[int], bytes] | None = None) -> None:
        """`token(n)`: n random bytes for ids (`Rng.token`); without it they are 1, 2, …"""
        self.count = 0
        self._node, self._token = node, token
        self._ids = count(1)
        self._written: set[tuple[type[BaseException], str, int]] = set()

    def note(self, error: BaseException, where: str) -> str:
        """Count it and write it to the log; the id under which it is there."""
        self.count += 1
        found = str(next(self._ids)) if self._token is None else self._token(_ID_BYTES).hex()
        place = (type(error), *_innermost(error))
        if place in self._written:
            log.error("internal error %s in %s: %r at %s:%d again", found, where, error, *place[1:])
            return found
        if len(self._written) < _PLACES_MAX:
            self._written.add(place)
        log.error("internal error %s in %s", found, where, exc_info=error)
        return found

    def answer(self, error: BaseException, where: str, *, unknown: bool = False) -> KvorumError:
        """The answer to the caller. `unknown`: it may have been done."""
        found = self.note(error, where)
        what = f"internal error {found} at node {self._node}: the node's log has the rest"
        details: dict[str, object] = {"id": found}
        if unknown:
            return UnknownOutcome(f"it may or may not have been done: {what}", details=details)
        return KvorumError(what, details=details)


def _innermost(error: BaseException) -> tuple[str, int]:
    """File and line that raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return ("?", 0) if at is None else (at.tb_frame.f_code.co_filename, at.tb_lineno)
