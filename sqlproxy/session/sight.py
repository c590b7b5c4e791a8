"""What a portal reads of its transaction: as it was when the portal was made, what was written
until then included, and nothing later. PostgreSQL's cursors are insensitive in this way, and so are
the portals of its protocol from their Bind on, and the subqueries of rows that a statement writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txn.transaction import View

if TYPE_CHECKING:
    from sqlproxy.session.session import SqlSession


class Sight:
    """See the module. `at`: the moment of the past that is read instead, 0 = none; None: the
    statement says it when it runs.
    """

    __slots__ = ("_session", "_view", "at")

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        t = session.block.transaction
        self._view = None if t is None else t.view()  # None: nothing was written before
        self.at: int | None = None

    async def view(self) -> View:
        """Begins the transaction if it has not begun."""
        if self._view is None:
            block = self._session.block
            self._view = (await block.work(self._session.modes())).view(bare=True)
        return self._view

    def end(self) -> None:
        """Nothing more is read; fine twice."""
        if self._view is not None:
            self._view.end()
