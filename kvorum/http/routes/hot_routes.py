"""What is said of the hot routes, which are served beside FastAPI (server/hot_app.py): records and
transactions.
"""

from __future__ import annotations

from typing import Final

from kv.base import limits
from kv.base.rights import Action, Kind
from kvorum.http.routes.rights import SELF, TABLE, Right
from kvorum.http.routes.route import ERROR, TS, D, Route, items_of, object_of
from kvorum.http.wire import fields
from kvorum.http.wire.fields import AT, BOOL, TEXT, VERSION, Field, integer

_READ = Right(Action.READ, Kind.TABLE, TABLE)
_WRITE = Right(Action.WRITE, Kind.TABLE, TABLE)
_READ_SOME, _WRITE_SOME = Right(Action.READ, Kind.TABLE), Right(Action.WRITE, Kind.TABLE)
_VERSIONED = object_of(version=TS)
_ROW = object_of(key=D, value=D, version=TS)
_ENC = Field(
    "enc", fields.one_of("b64"), "`b64`: keys are base64url instead of %-encoded text.", False
)
_IF_VERSION = Field("if_version", VERSION, "Only if this is the version now.", False)
_LIMIT = integer(1, limits.SCAN_ROWS_MAX)

_DATA_ROUTES = (
    Route(
        "GET",
        "/v1/kv/{ns}/{table}/{key}",
        _READ,
        "data",
        "Read a value",
        "The raw bytes of the value; the header `ETag` has its version in quotes.",
        query=(AT, _ENC),
        raw_answer="application/octet-stream",
        errors=(404, 410),
    ),
    Route(
        "PUT",
        "/v1/kv/{ns}/{table}/{key}",
        _WRITE,
        "data",
        "Write a value",
        "The body is the value, whatever its Content-Type. With a condition that does not hold: "
        "412 `CONDITION_FAILED`, `details.version` has the version that is there (null: none). "
        "409 `TABLE_RULED`: it has indexes or constraints, which only SQL keeps; write by SQL.",
        query=(
            Field("if_absent", BOOL, "Only if the key does not exist.", False),
            _IF_VERSION,
            Field("ttl_ms", integer(1, limits.TTL_MS_MAX), "Milliseconds to live.", False),
            _ENC,
        ),
        raw_body=True,
        answer=_VERSIONED,
        errors=(404, 409, 412, 413),
    ),
    Route(
        "DELETE",
        "/v1/kv/{ns}/{table}/{key}",
        _WRITE,
        "data",
        "Remove a record",
        "Also succeeds for a key that does not exist, unless `if_version` is given.",
        query=(_IF_VERSION, _ENC),
        answer=_VERSIONED,
        errors=(404, 409, 412),
    ),
    Route(
        "GET",
        "/v1/kv/{ns}/{table}",
        _READ,
        "data",
        "Scan a range",
        "Records in bytewise key order, at one snapshot. `cursor` in the answer continues there.",
        query=(
            Field("prefix", TEXT, "Only keys that begin with this.", False),
            Field("start", TEXT, "First key, inclusive.", False),
            Field("end", TEXT, "Last key, exclusive.", False),
            Field("reverse", BOOL, "From the end.", False),
            Field("limit", _LIMIT, "Records of this page; 1000 if left out.", False),
            Field("cursor", TEXT, "Go on where that page ended, at its snapshot.", False),
            AT,
            _ENC,
        ),
        answer=items_of(_ROW, cursor={"type": "string"}, at=TS),
        errors=(404, 410),
    ),
    Route(
        "POST",
        "/v1/batch",
        _WRITE_SOME,
        "data",
        "Write many records at once",
        "All ops or none, in any tables, also across partitions. One condition that does not hold "
        "refuses all: 412, `details` name the key and the index of the op.",
        body=fields.OPS,
        answer=_VERSIONED,
        errors=(404, 409, 412, 413),
    ),
    Route(
        "POST",
        "/v1/multi-get",
        _READ_SOME,
        "data",
        "Read many records",
        "All at one snapshot, in the order of `keys`; null where there is no record.",
        body=fields.MULTI_GET,
        answer=items_of(object_of(value=D, version=TS), at=TS),
        errors=(404, 410, 413),
    ),
    Route(
        "POST",
        "/v1/multi-write",
        _WRITE_SOME,
        "data",
        "Write many records, each on its own",
        "Not atomic: a result per op, `version` or `error`.",
        body=fields.OPS,
        answer=object_of(results={"type": "array", "items": {"oneOf": [_VERSIONED, ERROR]}}),
        errors=(413,),
    ),
    Route(
        "GET",
        "/v1/watch/{ns}/{table}",
        _READ,
        "data",
        "Watch a table",
        "Server-sent events, until you hang up: the committed transactions that change the table, "
        'whole and in commit order. `event: changes`, `id:` the version, `data:` `{"version", '
        '"part", "last", "changes": [{"key", "value" | null = deleted, '
        '"expires_ms"?}]}`; a large transaction comes in parts, only the last has an `id`. '
        "`event: resolved` every few seconds without: all up to its version was sent. "
        "`event: error`: the body of an error, the last event. Go on with `from` = the last `id`; "
        "`Last-Event-ID` does the same. 410: that is too long ago, read the table or begin at 0.",
        query=(
            Field(
                "from",
                VERSION,
                "Changes above this version; 0: all records first, as `event: snapshot`; from now "
                "on if left out.",
                False,
            ),
            Field("prefix", TEXT, "Only keys that begin with this.", False),
            _ENC,
        ),
        headers=(Field("Last-Event-ID", VERSION, "Instead of `from`.", False),),
        raw_answer="text/event-stream",
        errors=(404, 410, 429),
    ),
)

_TXN_NOTE = (
    "409 `TXN_ABORTED`: it has ended or expired; run the work in a new one. 503 `REROUTE`: it is "
    "open at the node in `details.address`."
)

_TXN_ROUTES = (
    Route(
        "POST",
        "/v1/txn",
        SELF,
        "transactions",
        "Begin a transaction",
        "It reads the snapshot of its `start_ts` and is rolled back after `ttl_ms` of silence.",
        body=fields.BEGIN,
        answer=object_of(txn=TS, start_ts=TS),
        errors=(429,),
    ),
    Route(
        "GET",
        "/v1/txn/{id}",
        SELF,
        "transactions",
        "What became of a transaction",
        "Always answers, also after every node was restarted. `pending`: it is open over HTTP, or "
        "its commit is under way. `committed`, `aborted`: for good. `unknown`: it has written "
        "nothing yet, or never was, or the table of its first write was dropped. 400: an id that "
        "was not given out yet. 404 `TXN_NOT_FOUND`: nothing is known, and it would have begun "
        "more than a day ago; for so long outcomes are kept.",
        answer=object_of(
            status={"type": "string", "enum": ["pending", "committed", "aborted", "unknown"]},
            commit_ts=TS,
        ),
        errors=(404,),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/get",
        _READ_SOME,
        "transactions",
        "Read in a transaction",
        "Its own writes included, those with version null. " + _TXN_NOTE,
        body=fields.KEY,
        answer=object_of(value=D, version=TS),
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/multi-get",
        _READ_SOME,
        "transactions",
        "Read many records in a transaction",
        "In the order of `keys`; null where there is no record, own writes with version null. "
        + _TXN_NOTE,
        body=fields.TXN_MULTI_GET,
        answer=items_of(object_of(value=D, version=TS)),
        errors=(404, 409, 413),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/put",
        _WRITE_SOME,
        "transactions",
        "Write in a transaction",
        "Seen by others when it commits, and a condition is checked then, against the store before "
        "the transaction: the commit answers 412 `CONDITION_FAILED`. " + _TXN_NOTE,
        body=fields.TXN_PUT,
        errors=(404, 409, 412, 413),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/delete",
        _WRITE_SOME,
        "transactions",
        "Remove in a transaction",
        _TXN_NOTE,
        body=fields.TXN_DELETE,
        errors=(404, 409, 412),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/scan",
        _READ_SOME,
        "transactions",
        "Scan in a transaction",
        "Own writes included. `cursor` in the answer: there is more. " + _TXN_NOTE,
        body=fields.SCAN,
        answer=items_of(_ROW, cursor={"type": "string"}),
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/lock",
        _WRITE_SOME,
        "transactions",
        "Lock a record in a transaction",
        "Others who would write it wait until the transaction ends; readers do not. The answer is "
        "the record as it is by then, null if there is none: its key is locked, too. 409 "
        "`KEY_LOCKED`: somebody else has it; `WRITE_CONFLICT`: it is newer than the transaction's "
        "snapshot (not at read_committed); `TXN_ABORTED`: a deadlock. Needs the rights read and "
        "update. " + _TXN_NOTE,
        body=fields.TXN_LOCK,
        answer=object_of(value=D, version=TS),
        errors=(404, 409, 413),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/commit",
        SELF,
        "transactions",
        "Commit",
        "Asked again it answers the same. 409 `WRITE_CONFLICT`: nothing was written, run it again. "
        "412: a condition of one of its writes does not hold. 504 `UNKNOWN_OUTCOME`: ask "
        "`GET /v1/txn/{id}`.",
        body=(),
        answer=_VERSIONED,
        errors=(404, 409, 412, 504),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/abort",
        SELF,
        "transactions",
        "Abort",
        "Forgets all writes; fine for a transaction that was aborted already. Any transaction of "
        "the cluster, at any node: one that stands in the way, by the id in `KEY_LOCKED` or "
        "`/v1/locks`. 409 `TXN_COMMITTED`: too late. 404 `TXN_NOT_FOUND`: it holds nothing, and "
        "only its client knows it.",
        body=(),
        errors=(404, 409),
    ),
    Route(
        "POST",
        "/v1/txn/{id}/heartbeat",
        SELF,
        "transactions",
        "Keep alive",
        "Renews the time after which silence aborts it.",
        body=(),
        errors=(404, 409),
    ),
)

HOT_ROUTES: Final = (*_DATA_ROUTES, *_TXN_ROUTES)
