"""The commands that go through the log: the table between requests and the verbs of kv.mvcc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kv.base.errors import TxnAborted
from kv.base.limits import RESOLVE_BYTES
from kv.base.methods import (
    ABORTED,
    CHECK,
    COMMIT,
    COMMITTED,
    DELETE,
    FINISH,
    HEARTBEAT,
    INGEST,
    OP_DELETE,
    OP_PUT,
    PREWRITE,
    PREWRITE_ROWS,
    PUT,
    RECOVER,
    RESOLVE,
    ROLLBACK,
    SETTLE,
    STAGING,
    WRITE,
    WRITE_ROWS,
)
from kv.base.ops import Op
from kv.base.options import Options, options_of
from kv.base.timestamps import MAX
from kv.mvcc.check import check
from kv.mvcc.commit import commit
from kv.mvcc.heartbeat import heartbeat
from kv.mvcc.ingest import ingest
from kv.mvcc.prewrite import Prewritten, prewrite
from kv.mvcc.prewrite_rows import prewrite_rows
from kv.mvcc.recover import recover, settle
from kv.mvcc.resolve import resolve
from kv.mvcc.rollback import rollback
from kv.mvcc.validate import Reads, guard, look, validate
from kv.mvcc.view import Mutations, View
from kv.mvcc.write import write
from kv.mvcc.write_rows import write_rows

Result = list[Any]
Handler = Callable[[View, list[Any], int, int, Mutations], Result]
"""(view, request, fresh timestamp or 0, now_ms, mutations) → the result fields of the reply."""


def _put(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    op = Op(OP_PUT, r[5], r[6], r[7], r[8])
    return [write(view, (op,), start_ts=0, flags=0, commit_ts=ts, now_ms=now_ms, m=m)]


def _delete(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    op = Op(OP_DELETE, r[5], None, r[6], 0)
    return [write(view, (op,), start_ts=0, flags=0, commit_ts=ts, now_ms=now_ms, m=m)]


def _write(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    version = write(
        view,
        r[5],
        start_ts=r[6],
        flags=r[7],
        commit_ts=ts,
        now_ms=now_ms,
        m=m,
        owner=options_of(r, 8).get("owner", "") if len(r) > 8 else "",
    )
    if len(r) > 8 and (reads := _reads(r[8])) is not None and not m.empty:  # no echo of a commit
        validate(view, reads, start_ts=r[6], commit_ts=ts, now_ms=now_ms)
    return [version]


def _write_rows(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    options = options_of(r, 9)
    return [
        write_rows(
            view,
            r[5],
            r[6],
            start_ts=r[7],
            flags=r[8],
            commit_ts=ts,
            now_ms=now_ms,
            m=m,
            absent="absent" in options,
            owner=options.get("owner", ""),
        )
    ]


def _ingest(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    return [ingest(view, r[5], r[6], at=r[7], unique=r[8], now_ms=now_ms, m=m)]


def _reads(options: Options | None) -> Reads | None:
    if not options or not ("reads" in options or "ranges" in options):
        return None
    return Reads(options.get("reads", ()), [(a, b) for a, b in options.get("ranges", ())])


def _prewrite(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    options = options_of(r, 10)
    reads = _reads(options)
    if reads is not None and not _ended(view, r):
        return _prewrite_guarded(view, r, options, reads, ts, now_ms, m)
    done = _intents(view, r, options, ts, now_ms, m, fence="fence" in options)
    if reads is not None:  # an echo: guards would be of nobody
        return [done.min_commit_ts, False, 0, 0]
    return [done.min_commit_ts, True] if done.exact else [done.min_commit_ts]


def _intents(
    view: View, r: list[Any], options: Options, ts: int, now_ms: int, m: Mutations, *, fence: bool
) -> Prewritten:
    return prewrite(
        view,
        r[8],
        start_ts=r[5],
        anchor=r[6],
        ttl_ms=r[7],
        flags=r[9],
        fresh_ts=ts,
        now_ms=now_ms,
        m=m,
        owner=options.get("owner", ""),
        fence=fence,
        stage=tuple(map(tuple, options["stage"])) if fence and "stage" in options else (),
    )


def _ended(view: View, r: list[Any]) -> bool:
    known = view.txn(r[6], r[5]) if view.holds(r[6]) else None
    return known is not None and known.status in (COMMITTED, ABORTED)


def _prewrite_guarded(
    view: View, r: list[Any], options: Options, reads: Reads, ts: int, now_ms: int, m: Mutations
) -> Result:
    """Intents and guards of a serializable transaction. They may commit it by themselves (a bound
    in each) only if they are whole, and hold at any timestamp.
    """
    checked = look(view, reads, start_ts=r[5], now_ms=now_ms)
    left, holds = checked.left(reads), checked.before_ts == MAX
    fence = "fence" in options and holds and not left
    done = _intents(view, r, options, ts, now_ms, m, fence=fence)
    held = guard(
        view,
        reads,
        checked,
        start_ts=r[5],
        anchor=r[6],
        ttl_ms=r[7],
        bound_ts=ts if fence else 0,
        now_ms=now_ms,
        m=m,
    )
    bound = max(done.min_commit_ts, held.min_commit_ts)
    return [bound, done.exact and held.exact, 0 if holds else checked.before_ts, left]


def _prewrite_rows(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    return [
        prewrite_rows(
            view,
            r[8],
            r[9],
            start_ts=r[5],
            anchor=r[6],
            ttl_ms=r[7],
            fresh_ts=ts,
            now_ms=now_ms,
            m=m,
            checked="checked" in options_of(r, 10),
            absent="absent" in options_of(r, 10),
        )
    ]


def _commit(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    record = commit(
        view,
        r[5],
        start_ts=r[6],
        commit_ts=r[7],
        now_ms=now_ms,
        m=m,
        beside=[(anchor, start) for anchor, start in options_of(r, 8).get("beside", ())],
    )
    return [record.status, record.commit_ts, record.min_commit_ts]


def _rollback(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    own = "own" in options_of(r, 7)
    record = rollback(view, r[5], start_ts=r[6], m=m, own=own)
    return [record.status, record.commit_ts]


def _check(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    found = check(view, r[5], start_ts=r[6], push_above=r[7], ttl_ms=r[8], now_ms=now_ms, m=m)
    record = found.record
    told = [record.status, record.commit_ts, record.min_commit_ts, found.age_ms, record.owner]
    return [*told, record.parts] if record.status == STAGING else told


def _resolve(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    return list(resolve(view, r[7], start_ts=r[5], commit_ts=r[6], m=m))


def _finish(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    """Verbs of several transactions on one `m`: each has its own record, and a key has one intent,
    so none of them reads what another one changed here.
    """
    told: list[list[int]] = []
    size = seen = 0
    for start_ts, anchor, commit_ts, keys in r[5]:
        for _, record, _, old in m.rows[seen:]:
            size += len(record or b"") + len(old or b"")
        seen = len(m.rows)
        if size >= RESOLVE_BYTES:
            told.append([0, len(keys)])
            continue
        if anchor is not None:
            try:
                found = commit(
                    view, anchor, start_ts=start_ts, commit_ts=commit_ts, now_ms=now_ms, m=m
                )
            except TxnAborted:  # nothing was added: the others must not suffer for it
                told.append([0, len(keys)])
                continue
            if found.status != COMMITTED or found.commit_ts != commit_ts:
                told.append([found.status, len(keys)])
                continue
        _, left = resolve(view, keys, start_ts=start_ts, commit_ts=commit_ts, m=m)
        told.append([COMMITTED, left])
    return [told]


def _heartbeat(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    options = options_of(r, 7)
    return [
        heartbeat(
            view,
            r[5],
            start_ts=r[6],
            now_ms=now_ms,
            m=m,
            ttl_ms=options.get("ttl_ms", 0),
            owner=options.get("owner", ""),
        )
    ]


def _recover(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    return list(recover(view, r[7], start_ts=r[5], anchor=r[6], fence=r[8], m=m))


def _settle(view: View, r: list[Any], ts: int, now_ms: int, m: Mutations) -> Result:
    record = settle(view, r[5], start_ts=r[6], commit_ts=r[7], m=m)
    return [record.status, record.commit_ts]


HANDLERS: Final[dict[Any, Handler]] = {
    PUT: _put,
    DELETE: _delete,
    WRITE: _write,
    WRITE_ROWS: _write_rows,
    INGEST: _ingest,
    PREWRITE: _prewrite,
    PREWRITE_ROWS: _prewrite_rows,
    COMMIT: _commit,
    ROLLBACK: _rollback,
    CHECK: _check,
    RESOLVE: _resolve,
    HEARTBEAT: _heartbeat,
    RECOVER: _recover,
    SETTLE: _settle,
    FINISH: _finish,
}
