"""The node methods of snapshots and of the safepoint (SNAPSHOT_*, COLLECT_BELOW): the doors to
tso/safepoint.py. What changes something is answered when it is durable.
"""

from __future__ import annotations

from kv.base.errors import Forbidden
from kv.base.node_methods import Caller, Handler
from kv.base.wire_row import WireRow
from kvorum.storage.called_back import called_back
from tso.safepoint import SafepointService
from tso.verbs import COLLECT_BELOW, SNAPSHOT_LIST, SNAPSHOT_OPEN, SNAPSHOT_RELEASE, SNAPSHOT_RENEW


class RetentionMethods:
    """Handlers for `Dispatcher.register`; only the meta partition's leader serves them."""

    def __init__(self, service: SafepointService) -> None:
        self._service = service

    def handlers(self) -> dict[int, Handler]:
        """By method."""
        return {
            SNAPSHOT_OPEN: self._open,
            SNAPSHOT_RENEW: self._renew,
            SNAPSHOT_RELEASE: self._release,
            SNAPSHOT_LIST: self._list,
            COLLECT_BELOW: self._collect_below,
        }

    async def _open(self, caller: Caller, args: WireRow) -> list[object]:
        at, owner, ttl_ms, *user = args
        lease = self._service.open(at, owner, ttl_ms, caller.user or "".join(user))
        await self._durable()
        return [lease.id, lease.at]

    def _check(self, caller: Caller, id: int, user: str = "") -> None:
        """What a node asks for a user is about that one's."""
        if user and not caller.user and self._service.user_of(id) not in (user, None):
            raise Forbidden(
                f"snapshot {id} is not one that {user!r} holds: it needs operate on the cluster",
                details={"user": user, "missing": ["operate"], "resource": "the cluster"},
            )

    def _renew(self, caller: Caller, args: WireRow) -> list[object]:
        self._check(caller, *args)
        return [self._service.renew(args[0]).at]

    async def _release(self, caller: Caller, args: WireRow) -> list[object]:
        self._check(caller, *args)
        held = self._service.release(args[0])
        await self._durable()
        return [held]

    def _list(self, _context: object, _args: list[object]) -> list[object]:
        return [self._service.rows(), self._service.safepoint]

    async def _collect_below(self, _context: object, _args: list[object]) -> list[object]:
        self._service.look()
        await self._durable()
        return [self._service.safepoint]

    async def _durable(self) -> None:
        """Everything that was done so far. Raises NotLeader: ask the next leader."""
        await called_back(self._service.when_durable)
