"""What a portal reads of its transaction: as it was when the portal was made, what was written
until then included, and nothing later. PostgreSQL's cursors are insensitive in this way, and so are
the portals of its protocol from their Bind on, and the subqueries of rows that a statement writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlproxy.session.state.block import Block
from txn.private import PrivateWrites
from txn.transaction import Transaction, View


async def _begun() -> Transaction:
    raise AssertionError("there is a view already")


class Sight:
    """See the module. `at`: the moment of the past that is read instead, 0 = none; None: the
    statement says it when it runs.
    """

    __slots__ = ("_beside", "_view", "_work", "at")

    def __init__(
        self,
        t: Transaction | None,
        work: Callable[[], Awaitable[Transaction]],
        beside: PrivateWrites | None = None,
    ) -> None:
        """`t`: the transaction, if it has begun; `work`: begins it. `beside`: what the session has
        for itself may have been written before it begins.
        """
        self._work = work
        self._beside = None if t is not None or beside is None else beside.lent()
        self._view = None if t is None else t.view()  # None: nothing was written before
        self.at: int | None = None

    async def view(self) -> View:
        """Begins the transaction if it has not begun."""
        if self._view is None:
            self._view = (await self._work()).view(bare=True)
            if self._beside is not None:
                self._view.beside = self._beside
        return self._view

    @classmethod
    def now(cls, block: Block, work: Callable[[], Awaitable[Transaction]]) -> Sight:
        """Of a block as it is."""
        return cls(block.transaction, work, block.beside)

    @classmethod
    def until(cls, t: Transaction) -> Sight:
        """All that the transaction sees, until it is to `part`."""
        found = cls(None, _begun)
        found._view = t.look()
        return found

    def part(self) -> None:
        """What the transaction writes from now on is not seen."""
        assert self._view is not None, "it is one of `until`"
        self._view.part()

    def end(self) -> None:
        """Nothing more is read; fine twice."""
        if self._view is not None:
            self._view.end()
