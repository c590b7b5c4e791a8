"""Who ends transactions for clients that are not believed (kv/server/connection_rights.py): the
node looks at their records itself, as the sweeper does, and ends a parallel commit that is whole
(or that its coordinator has left). What is answered says how a transaction ended, and no keys of
it; what is not decided stays so: nothing here commits or aborts one because a client says so. Of
one that nobody has met an intent of, and that has no record, nothing is written down: its id may be
a guess.
"""

from __future__ import annotations

from kv.base.errors import Forbidden
from kv.base.limits import FEW_KEYS, TXN_TTL_MS_MAX
from kv.base.methods import (
    CHECK,
    COMMIT,
    COMMITTED,
    FINISH,
    HEARTBEAT,
    HELD,
    PENDING,
    RESOLVE,
    ROLLBACK,
    Check,
)
from kv.base.verbs import VERBS
from kv.base.wire_row import WireRow
from kv.partition.requests import check_request
from procedures.engine.store import NOT_HELD
from txn.client import TxnClient
from txn.intents.resolver import Outcome
from txn.shared.ports import Kv

_BUDGET_MS = 2_000


class Deputy:
    """kv.server.connection_rights.Deputy of one node."""

    def __init__(self, kv: Kv, txn: TxnClient) -> None:
        self._kv, self._txn = kv, txn

    async def __call__(self, row: WireRow) -> WireRow:
        """Raises KvorumError. Keys that are named are read, which ends what is met there as its own
        record says: whose it is, and what became of it, nobody is believed.
        """
        verb = VERBS[row[1]]
        check_request(row)
        args = row[verb.args_at :]
        match verb.number:
            case method if method == RESOLVE:
                await self._read(args[2])
                return [0, 0]
            case method if method == FINISH:
                return [[await self._finish(*end) for end in args[0]]]
            case method if method == CHECK:
                found, age_ms = await self._check(Check(*args))
                return [found.status, found.commit_ts, found.min_commit_ts, age_ms, ""]
        found = await self._outcome(args[0], args[1])
        if verb.number in (COMMIT, ROLLBACK, HEARTBEAT) and found.status == PENDING:
            raise Forbidden(
                f"transaction {args[1]} is not decided, and it is not yours (any more)",
                code=NOT_HELD,
            )
        answer = [found.status, found.commit_ts, found.min_commit_ts]
        return answer[: {COMMIT: 3, HEARTBEAT: 1}.get(verb.number, 2)]

    async def _check(self, asked: Check) -> tuple[Outcome, int]:
        """What a reader or writer is told of a transaction whose intent it has met."""
        held: WireRow | None = None
        if asked.met:
            (held,) = await self._kv.call(
                HELD, asked.met, asked.met, asked.start_ts, asked.anchor, budget_ms=_BUDGET_MS
            )
        if held is None:  # not any more, or never
            return await self._look(asked.anchor, asked.start_ts)
        ttl_ms, user = held
        return await self._txn.resolver.check(
            asked.start_ts,
            asked.anchor,
            ttl_ms=ttl_ms,
            budget_ms=_BUDGET_MS,
            push_above=asked.push_above,
            met=asked.met,
            user=user,
        )

    async def _look(self, anchor: bytes, start_ts: int) -> tuple[Outcome, int]:
        return await self._txn.resolver.check(
            start_ts, anchor, ttl_ms=TXN_TTL_MS_MAX, budget_ms=_BUDGET_MS, met=b""
        )

    async def _outcome(self, anchor: bytes, start_ts: int) -> Outcome:
        found, _ = await self._look(anchor, start_ts)
        return found

    async def _finish(
        self, start_ts: int, anchor: bytes | None, commit_ts: int, keys: list[bytes]
    ) -> list[int]:
        """[status, keys that are left] of one that its caller says is committed."""
        if anchor is None:
            return [0, len(keys)]  # it is asked for by RESOLVE
        found = await self._outcome(anchor, start_ts)
        if (found.status, found.commit_ts) != (COMMITTED, commit_ts):
            return [found.status, len(keys)]
        await self._read(keys)
        return [COMMITTED, 0]

    async def _read(self, keys: list[bytes]) -> None:
        """Few at once: nobody wants the values, and each may be as large as values are."""
        for at in range(0, len(keys), FEW_KEYS):
            await self._txn.multi_get(keys[at : at + FEW_KEYS], budget_ms=_BUDGET_MS)
