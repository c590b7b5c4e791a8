"""What procedures wait for, as one source of the node's registry of waits (kv.base.waits)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kv.base.errors import KvorumError
from kv.base.ports import Clock
from kv.base.waits import PROCEDURE, HeldUp, Wait
from procedures.engine.locks import Link
from procedures.engine.procedure import said
from procedures.engine.roster import Live

NUMBER: Final = 0  # of this source: partitions have their ids
_CHILDREN_SHOWN: Final = 5


class ProcedureWaits:
    """kv.base.waits.Source. Waits of procedures hold no transaction up, so nobody pushes them."""

    def __init__(
        self,
        node: int,
        clock: Clock,
        live: Callable[[], Sequence[Live]],
        blocked: Callable[[Live], Sequence[Link]] = lambda _live: (),
    ) -> None:
        """`live`: the procedures that have not ended, of the node that runs them; `blocked`: which
        locks one of them waits for, and whose.
        """
        self._node, self._clock, self._live, self._blocked = node, clock, live, blocked

    def waits(self, *, older_ms: int = 0, holding: bool = False) -> Iterator[Wait]:
        if holding:
            return
        now_ms = self._clock.now_ms()
        everybody = self._live()
        owners: dict[int, str] = {}
        for live in everybody:
            links = self._blocked(live)
            # the lock that somebody has rather than one where others are merely before it
            link = min(links, key=lambda link: link.order) if links else None
            resource = _resource(live) if link is None else f"lock {link.resource}"
            if resource is None:
                continue
            if link is not None and not owners:
                owners = {one.id: one.record.owner for one in everybody if one.record is not None}
            record = live.record
            waited_ms = 0 if record is None else max(0, now_ms - record.updated_ms)
            if waited_ms >= older_ms:
                yield Wait(
                    node=self._node,
                    source=NUMBER,
                    id=live.id,
                    kind=PROCEDURE,
                    resource=resource,
                    waiter=live.id,
                    waiter_owner="" if record is None else record.owner,
                    holder=0 if link is None else link.blocker,
                    holder_owner="" if link is None else owners.get(link.blocker, ""),
                    held=b"",
                    anchor=b"",
                    ttl_ms=0,
                    waited_ms=waited_ms,
                    priority=0,
                    holding=False,
                )

    def held_up(self) -> Iterator[HeldUp]:
        yield from ()

    def refuse_wait(self, id: int, holder: int, error: KvorumError) -> bool:
        return False


def _resource(live: Live) -> str | None:
    """What it waits for; None if it runs, or waits for its turn or for time to pass."""
    if live.running or live.queued:
        return None
    if live.children:
        first = sorted(live.children)[:_CHILDREN_SHOWN]
        more = len(live.children) - len(first)
        return f"procedures {', '.join(map(str, first))}{f' and {more} more' if more else ''}"
    return f"event {said(live.event)}" if live.event else None
