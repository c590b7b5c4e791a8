"""The commands that go through the log: the table between requests and the verbs of kv.mvcc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from kv.base import methods
from kv.base.errors import TxnAborted
from kv.base.limits import RESOLVE_BYTES, SCAN_PAGE_BYTES_MAX
from kv.base.methods import ABORTED, COMMITTED, OP_DELETE, OP_PUT, STAGING
from kv.base.ops import Op
from kv.base.options import NONE, Options
from kv.base.strengths import UPDATE, is_shared
from kv.base.timestamps import MAX, physical_ms
from kv.base.verbs import Request
from kv.base.wire_row import WireRow
from kv.mvcc.check import check
from kv.mvcc.commit import commit
from kv.mvcc.get import newest
from kv.mvcc.heartbeat import heartbeat
from kv.mvcc.ingest import ingest
from kv.mvcc.prewrite import Prewritten, prewrite, unlock
from kv.mvcc.prewrite_rows import prewrite_rows
from kv.mvcc.recover import recover, settle
from kv.mvcc.refusals import newest_version
from kv.mvcc.resolve import resolve
from kv.mvcc.rollback import rollback
from kv.mvcc.share import share
from kv.mvcc.validate import Reads, guard, look, validate
from kv.mvcc.view import Mutations, View
from kv.mvcc.write import write
from kv.mvcc.write_rows import write_rows

Result = WireRow
Handler = Callable[[View, Any, int, int, Mutations], Result]
"""(view, arguments, fresh timestamp or 0, now_ms, mutations) → the result fields of the reply."""


def _put(view: View, r: methods.Put, ts: int, now_ms: int, m: Mutations) -> Result:
    op = Op(OP_PUT, r.key, r.value, r.cond, r.ttl_ms)
    return [write(view, (op,), start_ts=0, flags=0, commit_ts=ts, now_ms=now_ms, m=m)]


def _delete(view: View, r: methods.Delete, ts: int, now_ms: int, m: Mutations) -> Result:
    op = Op(OP_DELETE, r.key, None, r.cond, 0)
    return [write(view, (op,), start_ts=0, flags=0, commit_ts=ts, now_ms=now_ms, m=m)]


def _write(view: View, r: methods.Write, ts: int, now_ms: int, m: Mutations) -> Result:
    version = write(
        view,
        r.ops,
        start_ts=r.start_ts,
        flags=r.flags,
        commit_ts=ts,
        now_ms=now_ms,
        m=m,
        owner=r.options.get("owner", "") if r.options else "",
    )
    if (reads := _reads(r.options)) is not None and not m.empty:  # no echo of a commit
        since = (r.options or NONE).get("since", 0)
        validate(
            *(view, reads),
            start_ts=r.start_ts,
            commit_ts=ts,
            now_ms=now_ms,
            user=m.user,
            since=since,
        )
    return [version]


def _write_rows(view: View, r: methods.WriteRows, ts: int, now_ms: int, m: Mutations) -> Result:
    options = r.options or NONE
    return [
        write_rows(
            view,
            r.keys,
            r.values,
            start_ts=r.start_ts,
            flags=r.flags,
            commit_ts=ts,
            now_ms=now_ms,
            m=m,
            absent="absent" in options,
            owner=options.get("owner", ""),
        )
    ]


def _ingest(view: View, r: methods.Ingest, ts: int, now_ms: int, m: Mutations) -> Result:
    return [ingest(view, r.keys, r.values, at=r.at, unique=r.unique, now_ms=now_ms, m=m)]


def _reads(options: Options | None) -> Reads | None:
    if not options or not ("reads" in options or "ranges" in options):
        return None
    return Reads(options.get("reads", ()), [(a, b) for a, b in options.get("ranges", ())])


def _prewrite(view: View, r: methods.Prewrite, ts: int, now_ms: int, m: Mutations) -> Result:
    options = r.options or NONE
    if "unlock" in options:
        unlock(view, r.ops, start_ts=r.start_ts, m=m)
        return [0]
    reads = _reads(options)
    if reads is not None and not _ended(view, r):
        return _prewrite_guarded(view, r, options, reads, ts, now_ms, m)
    if "lock" in options:
        return _lock(view, r, options, ts, now_ms, m)
    done = _intents(view, r, options, ts, now_ms, m, fence="fence" in options)
    if reads is not None:  # an echo: guards would be of nobody
        return [done.min_commit_ts, False, 0, 0]
    return [done.min_commit_ts, True] if done.exact else [done.min_commit_ts]


def _lock(
    view: View, r: methods.Prewrite, options: Options, ts: int, now_ms: int, m: Mutations
) -> Result:
    """Row locks, and what is newest under them."""
    at_ms = max(now_ms, physical_ms(r.start_ts))
    keys = [op[1] for op in r.ops]
    versions = [newest_version(view.cur(key), at_ms) for key in keys]
    bound = ts
    if "present" in options:
        there = [op for op, version in zip(r.ops, versions, strict=True) if version]
        r = replace(r, ops=there)
    strength = options.get("strength", UPDATE)
    if is_shared(strength):
        share(
            view,
            [op[1] for op in r.ops if op[1] != r.anchor],
            strength=strength,
            start_ts=r.start_ts,
            anchor=r.anchor,
            ttl_ms=r.ttl_ms,
            flags=r.flags,
            now_ms=now_ms,
            m=m,
        )
        strength, r = UPDATE, replace(r, ops=[op for op in r.ops if op[1] == r.anchor])
    if r.ops:
        done = _intents(view, r, options, ts, now_ms, m, fence=False, strength=strength)
        bound = done.min_commit_ts
    if "values" not in options:
        return [bound, versions]
    values: list[bytes | None] = []
    size = 0
    for key in keys:
        value, _ = newest(key, view.cur(key), at_ms)
        size += len(value or b"")
        if size > SCAN_PAGE_BYTES_MAX and values:
            break
        values.append(value)
    return [bound, versions, values]


def _intents(
    view: View,
    r: methods.Prewrite,
    options: Options,
    ts: int,
    now_ms: int,
    m: Mutations,
    *,
    fence: bool,
    strength: int | None = None,
) -> Prewritten:
    return prewrite(
        view,
        r.ops,
        start_ts=r.start_ts,
        anchor=r.anchor,
        ttl_ms=r.ttl_ms,
        flags=r.flags,
        fresh_ts=ts,
        now_ms=now_ms,
        m=m,
        owner=options.get("owner", ""),
        fence=fence,
        stage=tuple(map(tuple, options["stage"])) if fence and "stage" in options else (),
        locked="locked" in options,
        strength=strength,
        going="going" in options,
    )


def _ended(view: View, r: methods.Prewrite) -> bool:
    known = view.txn(r.anchor, r.start_ts) if view.holds(r.anchor) else None
    return known is not None and known.status in (COMMITTED, ABORTED)


def _prewrite_guarded(
    view: View,
    r: methods.Prewrite,
    options: Options,
    reads: Reads,
    ts: int,
    now_ms: int,
    m: Mutations,
) -> Result:
    """Intents and guards of a serializable transaction. They may commit it by themselves (a bound
    in each) only if they are whole, and hold at any timestamp.
    """
    shared = "shared" in options
    checked = look(
        *(view, reads),
        start_ts=r.start_ts,
        now_ms=now_ms,
        user=m.user,
        shared=shared,
        since=options.get("since", 0),
    )
    left, holds = checked.left(reads), checked.before_ts == MAX
    fence = "fence" in options and holds and not left
    done = _intents(view, r, options, ts, now_ms, m, fence=fence)
    held = guard(
        view,
        reads,
        checked,
        start_ts=r.start_ts,
        anchor=r.anchor,
        ttl_ms=r.ttl_ms,
        bound_ts=ts if fence else 0,
        now_ms=now_ms,
        m=m,
        shared=shared,
    )
    bound = max(done.min_commit_ts, held.min_commit_ts)
    return [bound, done.exact and held.exact, 0 if holds else checked.before_ts, left]


def _prewrite_rows(
    view: View, r: methods.PrewriteRows, ts: int, now_ms: int, m: Mutations
) -> Result:
    options = r.options or NONE
    return [
        prewrite_rows(
            view,
            r.keys,
            r.values,
            start_ts=r.start_ts,
            anchor=r.anchor,
            ttl_ms=r.ttl_ms,
            fresh_ts=ts,
            now_ms=now_ms,
            m=m,
            checked="checked" in options,
            absent="absent" in options,
        )
    ]


def _commit(view: View, r: methods.Commit, ts: int, now_ms: int, m: Mutations) -> Result:
    record = commit(
        view,
        r.anchor,
        start_ts=r.start_ts,
        commit_ts=r.commit_ts,
        now_ms=now_ms,
        m=m,
        beside=[(anchor, start) for anchor, start in (r.options or NONE).get("beside", ())],
    )
    return [record.status, record.commit_ts, record.min_commit_ts]


def _rollback(view: View, r: methods.Rollback, ts: int, now_ms: int, m: Mutations) -> Result:
    own = "own" in (r.options or NONE)
    record = rollback(view, r.anchor, start_ts=r.start_ts, m=m, own=own)
    return [record.status, record.commit_ts]


def _check(view: View, r: methods.Check, ts: int, now_ms: int, m: Mutations) -> Result:
    found = check(
        view,
        r.anchor,
        start_ts=r.start_ts,
        push_above=r.push_above,
        ttl_ms=r.ttl_ms,
        now_ms=now_ms,
        m=m,
        met=r.met != b"",
        user=r.user,
    )
    record = found.record
    statuses = [record.status, record.commit_ts, record.min_commit_ts, found.age_ms, record.owner]
    return [*statuses, record.parts, record.user] if record.status == STAGING else statuses


def _resolve(view: View, r: methods.Resolve, ts: int, now_ms: int, m: Mutations) -> Result:
    return list(
        resolve(
            view,
            r.keys,
            start_ts=r.start_ts,
            commit_ts=r.commit_ts,
            m=m,
            anchor=r.anchor,
            user=r.user,
        )
    )


def _finish(view: View, r: methods.Finish, ts: int, now_ms: int, m: Mutations) -> Result:
    """Verbs of several transactions on one `m`: each has its own record, and a key has one intent,
    so none of them reads what another one changed here.
    """
    statuses: list[list[int]] = []
    size = seen = 0
    for start_ts, anchor, commit_ts, keys in r.ends:
        for _, record, _, old in m.rows[seen:]:
            size += len(record or b"") + len(old or b"")
        seen = len(m.rows)
        if size >= RESOLVE_BYTES:
            statuses.append([0, len(keys)])
            continue
        whose = None
        if anchor is not None:
            try:
                found = commit(
                    view, anchor, start_ts=start_ts, commit_ts=commit_ts, now_ms=now_ms, m=m
                )
            except TxnAborted:  # nothing was added: the others must not suffer for it
                statuses.append([0, len(keys)])
                continue
            if found.status != COMMITTED or found.commit_ts != commit_ts:
                statuses.append([found.status, len(keys)])
                continue
            whose = found.user
        _, left = resolve(view, keys, start_ts=start_ts, commit_ts=commit_ts, m=m, user=whose)
        statuses.append([COMMITTED, left])
    return [statuses]


def _heartbeat(view: View, r: methods.Heartbeat, ts: int, now_ms: int, m: Mutations) -> Result:
    options = r.options or NONE
    return [
        heartbeat(
            view,
            r.anchor,
            start_ts=r.start_ts,
            now_ms=now_ms,
            m=m,
            ttl_ms=options.get("ttl_ms", 0),
            owner=options.get("owner", ""),
            user=options.get("user"),
        )
    ]


def _recover(view: View, r: methods.Recover, ts: int, now_ms: int, m: Mutations) -> Result:
    return list(
        recover(
            view,
            r.keys,
            start_ts=r.start_ts,
            anchor=r.anchor,
            fence=r.fence,
            m=m,
            user=r.user,
        )
    )


def _settle(view: View, r: methods.Settle, ts: int, now_ms: int, m: Mutations) -> Result:
    record = settle(view, r.anchor, start_ts=r.start_ts, commit_ts=r.commit_ts, m=m)
    return [record.status, record.commit_ts]


_HANDLERS: Final[Sequence[tuple[type[Request], Handler]]] = (
    (methods.Put, _put),
    (methods.Delete, _delete),
    (methods.Write, _write),
    (methods.WriteRows, _write_rows),
    (methods.Ingest, _ingest),
    (methods.Prewrite, _prewrite),
    (methods.PrewriteRows, _prewrite_rows),
    (methods.Commit, _commit),
    (methods.Rollback, _rollback),
    (methods.Check, _check),
    (methods.Resolve, _resolve),
    (methods.Heartbeat, _heartbeat),
    (methods.Recover, _recover),
    (methods.Settle, _settle),
    (methods.Finish, _finish),
)
HANDLERS: Final[dict[object, tuple[type[Request], Handler, tuple[int, ...]]]] = {
    request.number: (request, handler, request.verb.claims) for request, handler in _HANDLERS
}
"""And where a request has timestamps that it claims."""
