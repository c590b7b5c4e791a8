"""The portals of a session by name, cursors of DECLARE among them, and what ends them: savepoints,
the end of the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlproxy.session.state.activity import Activity, moment
from sqlproxy.session.state.block import Block
from sqlproxy.session.state.portals import Portal as CursorPortal
from sqlproxy.wire.seam import Portal


class Cursors:
    """Of one session. `portals`: those of the wire, too, "" is the one without a name."""

    def __init__(self, block: Block, activity: Activity) -> None:
        self._block, self._activity = block, activity
        self.portals: dict[str, Portal] = {}
        self.held: set[str] = set()  # those WITH HOLD …
        self.held_now: set[str] = set()  # … that were declared in this transaction

    def mark(self, portal: CursorPortal, text: str) -> None:
        """Say of a portal where it was made, and by what."""
        portal.text, portal.made_us = text, self._activity.statement_us
        portal.depth = self._block.depth

    def declare(self, name: str, portal: CursorPortal, text: str, *, hold: bool) -> None:
        """DECLARE CURSOR, which is in this text."""
        self.mark(portal, text)
        self.portals[name] = portal
        if hold:
            self.held.add(name)
            self.held_now.add(name)

    def _cursors(self) -> Iterator[tuple[str, CursorPortal]]:
        for name, portal in list(self.portals.items()):
            if isinstance(portal, CursorPortal):
                yield name, portal

    async def drop(self, name: str) -> None:
        """CLOSE, and the end of a savepoint after which it was declared."""
        portal = self.portals.pop(name)
        self.held.discard(name)
        self.held_now.discard(name)
        await portal.close()

    async def drop_deeper(self) -> None:
        """Those that were made after a savepoint that is gone back to."""
        depth = self._block.depth
        for name, portal in self._cursors():
            if portal.depth >= depth:
                await self.drop(name)

    def lift(self) -> None:
        """A savepoint is released: what was made after it belongs to the one before."""
        for _, portal in self._cursors():
            portal.depth = min(portal.depth, self._block.depth)

    async def hold(self) -> None:
        """Cursors WITH HOLD keep their rows beyond the transaction: all are read now. Raises
        SqlError.
        """
        for name in self.held_now:
            portal = self.portals.get(name)
            if isinstance(portal, CursorPortal):
                await portal.keep()

    def settle(self, *, committed: bool) -> None:
        """Those WITH HOLD of a transaction that failed go with it; older ones stay."""
        if not committed:
            self.held -= self.held_now
        for name in self.held_now & self.held:
            portal = self.portals[name]
            assert isinstance(portal, CursorPortal)
            portal.depth = 0  # no savepoint of a later transaction takes it back
        self.held_now.clear()

    async def close_transaction(self) -> None:
        """The transaction is over: only cursors WITH HOLD stay."""
        await self._close(self.held)

    async def close_all(self) -> None:
        """CLOSE ALL, and the end of the session."""
        self.held.clear()
        self.held_now.clear()
        await self._close()

    async def _close(self, kept: Collection[str] = ()) -> None:
        for name in [name for name in self.portals if name not in kept]:
            await self.portals.pop(name).close()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of pg_cursors: portals of the client, too."""
        for name, portal in self._cursors():
            yield {
                "name": name,
                "statement": portal.text,
                "is_holdable": name in self.held,
                "is_binary": portal.binary,
                "is_scrollable": portal.scrolls,
                "creation_time": moment(portal.made_us),
            }
