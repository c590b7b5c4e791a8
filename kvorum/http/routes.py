"""Every route of the API in one table: what it does, takes and answers. The OpenAPI schema, /docs
and the reference in docs/reference/http.md are made of it, for the bare-ASGI routes as for those of
FastAPI.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kv.base import limits
from kvorum.http import fields
from kvorum.http.fields import AT, BOOL, DATA, TEXT, VERSION, Field, Fields, Schema, integer

_OBJECT: Final[Schema] = {"type": "object"}


class Route(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    tag: str
    summary: str
    description: str
    query: Fields = ()
    body: Fields | None = None
    raw_body: bool = False
    ok: int = 200
    answer: Schema = _OBJECT
    raw_answer: bool = False
    errors: tuple[int, ...] = ()
    headers: Fields = ()


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _items(item: Schema, **more: Schema) -> Schema:
    return _object(items={"type": "array", "items": item}, **more)


_TS: Final[Schema] = VERSION.schema
_RAW: Final[Schema] = {"type": "string", "format": "binary"}
_D: Final[Schema] = DATA.schema
_VERSIONED = _object(version=_TS)
_ROW = _object(key=_D, value=_D, version=_TS)
_ERROR: Final[Schema] = _object(
    error=_object(
        code={"type": "string"},
        message={"type": "string"},
        retry={
            "type": "string",
            "enum": ["no", "retry", "restart_txn", "reroute", "unknown_outcome"],
        },
        details={"type": "object"},
    )
)
_ID: Final[Schema] = _object(id={"type": "string"})
_STATUS: Final[Schema] = _object(status={"type": "string"})
_TABLE_INFO = _object(
    namespace={"type": "string"},
    name={"type": "string"},
    id={"type": "integer"},
    columns={"type": "array", "items": fields.object_schema(fields.COLUMN)},
    primary_key={"type": "array", "items": {"type": "string"}},
    replicas={"type": ["integer", "null"]},
    tags={"type": "array", "items": {"type": "string"}},
    state={"type": "string", "enum": ["public", "disabled"]},
)
_SURGERY = _object(
    id={"type": "string"},
    what={"type": "string"},
    dry_run={"type": "boolean"},
    changed={"type": "boolean"},
    count={"type": "integer"},
    procedures={"type": "array", "items": {"type": "object"}},
)
_PROCEDURE = _object(
    id={"type": "string"},
    name={"type": "string"},
    state={"type": "string"},
    step={"type": ["string", "null"]},
    steps={"type": "array", "items": {"type": "object"}},
    locks={"type": "array", "items": {}},
    result={},
    error={"type": "object"},
)
_SNAPSHOT = _object(
    id=_TS,
    at=_TS,
    owner={"type": "string"},
    ttl_ms={"type": "integer"},
    age_ms={"type": "integer"},
    left_ms={"type": "integer"},
)
_NAME: Final[Schema] = {"type": ["string", "null"]}  # null: not a user's table
_COUNT: Final[Schema] = {"type": "integer"}
_PLACE: Final[dict[str, Schema]] = {"ns": _NAME, "table": _NAME, "key": _D}
_LOCK = _object(
    kind={"type": "string", "enum": ["intent", "guard"]},
    **_PLACE,
    end=_D,
    keys=_COUNT,
    txn=_TS,
    owner={"type": "string"},
    age_ms=_COUNT,
    ttl_ms=_COUNT,
    partition=_COUNT,
    node=_COUNT,
    waiting=_COUNT,
)
_WAITING = _object(
    kind={"type": "string", "enum": ["intent", "guard", "procedure"]},
    **_PLACE,
    txn={"type": ["string", "null"]},
    owner={"type": "string"},
    priority={"type": "string", "enum": ["low", "normal", "high"]},
    waited_ms=_COUNT,
    holder={"type": ["string", "null"]},
    holder_owner={"type": "string"},
    holder_age_ms=_COUNT,
    partition=_COUNT,
    node=_COUNT,
    procedure={"type": "string"},
    resource={"type": "string"},
)
_ENC = Field(
    "enc", fields.one_of("b64"), "`b64`: keys are base64url instead of %-encoded text.", False
)
_IF_VERSION = Field("if_version", VERSION, "Only if this is the version now.", False)
_LIMIT = integer(1, limits.SCAN_ROWS_MAX)

_DATA_ROUTES = (
    Route(
        "GET", "/v1/kv/{ns}/{table}/{key}", "data", "Read a value",
        "The raw bytes of the value; the header `ETag` has its version in quotes.",
        query=(AT, _ENC), raw_answer=True, errors=(404, 410),
    ),
    Route(
        "PUT", "/v1/kv/{ns}/{table}/{key}", "data", "Write a value",
        "The body is the value, whatever its Content-Type. With a condition that does not hold: "
        "412 `CONDITION_FAILED`, `details.version` has the version that is there (null: none).",
        query=(
            Field("if_absent", BOOL, "Only if the key does not exist.", False),
            _IF_VERSION,
            Field("ttl_ms", integer(1, limits.TTL_MS_MAX), "Milliseconds to live.", False),
            _ENC,
        ),
        raw_body=True, answer=_VERSIONED, errors=(404, 412, 413),
    ),
    Route(
        "DELETE", "/v1/kv/{ns}/{table}/{key}", "data", "Remove a record",
        "Also succeeds for a key that does not exist, unless `if_version` is given.",
        query=(_IF_VERSION, _ENC), answer=_VERSIONED, errors=(404, 412),
    ),
    Route(
        "GET", "/v1/kv/{ns}/{table}", "data", "Scan a range",
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
        answer=_items(_ROW, cursor={"type": "string"}, at=_TS), errors=(404, 410),
    ),
    Route(
        "POST", "/v1/batch", "data", "Write many records at once",
        "All ops or none, in any tables, also across partitions. One condition that does not hold "
        "refuses all: 412, `details` name the key and the index of the op.",
        body=fields.OPS, answer=_VERSIONED, errors=(404, 409, 412, 413),
    ),
    Route(
        "POST", "/v1/multi-get", "data", "Read many records",
        "All at one snapshot, in the order of `keys`; null where there is no record.",
        body=fields.MULTI_GET, answer=_items(_object(value=_D, version=_TS), at=_TS),
        errors=(404, 410, 413),
    ),
    Route(
        "POST", "/v1/multi-write", "data", "Write many records, each on its own",
        "Not atomic: a result per op, `version` or `error`.",
        body=fields.OPS,
        answer=_object(results={"type": "array", "items": {"oneOf": [_VERSIONED, _ERROR]}}),
        errors=(413,),
    ),
    Route(
        "GET", "/v1/watch/{ns}/{table}", "data", "Watch a table",
        "Server-sent events, until you hang up: the committed transactions that change the table, "
        "whole and in commit order. `event: changes`, `id:` the version, `data:` `{\"version\", "
        "\"part\", \"last\", \"changes\": [{\"key\", \"value\" | null = deleted, "
        "\"expires_ms\"?}]}`; a large transaction comes in parts, only the last has an `id`. "
        "`event: resolved` every few seconds without: all up to its version was told. "
        "`event: error`: the body of an error, the last event. Go on with `from` = the last `id`; "
        "`Last-Event-ID` does the same. 410: that is too long ago, read the table or begin at 0.",
        query=(
            Field(
                "from", VERSION,
                "Changes above this version; 0: all records first, as `event: snapshot`; from now "
                "on if left out.", False,
            ),
            Field("prefix", TEXT, "Only keys that begin with this.", False),
            _ENC,
        ),
        headers=(Field("Last-Event-ID", VERSION, "Instead of `from`.", False),),
        raw_answer=True, errors=(404, 410, 429),
    ),
)  # fmt: skip

_TXN_NOTE = (
    "409 `TXN_ABORTED`: it has ended or expired; run the work in a new one. 503 `REROUTE`: it is "
    "open at the node in `details.address`."
)

_TXN_ROUTES = (
    Route(
        "POST", "/v1/txn", "transactions", "Begin a transaction",
        "It reads the snapshot of its `start_ts` and is rolled back after `ttl_ms` of silence.",
        body=fields.BEGIN, answer=_object(txn=_TS, start_ts=_TS), errors=(429,),
    ),
    Route(
        "GET", "/v1/txn/{id}", "transactions", "What became of a transaction",
        "Always answers, also after every node was restarted. `pending`: it is open over HTTP, or "
        "its commit is under way. `committed`, `aborted`: for good. `unknown`: it has written "
        "nothing yet, or never was, or the table of its first write was dropped. 400: an id that "
        "was not given out yet. 404 `TXN_NOT_FOUND`: nothing is known, and it would have begun "
        "more than a day ago; for so long outcomes are kept.",
        answer=_object(
            status={"type": "string", "enum": ["pending", "committed", "aborted", "unknown"]},
            commit_ts=_TS,
        ),
        errors=(404,),
    ),
    Route(
        "POST", "/v1/txn/{id}/get", "transactions", "Read in a transaction",
        "Its own writes included, those with version null. " + _TXN_NOTE,
        body=fields.KEY, answer=_object(value=_D, version=_TS), errors=(404, 409),
    ),
    Route(
        "POST", "/v1/txn/{id}/multi-get", "transactions", "Read many records in a transaction",
        "In the order of `keys`; null where there is no record, own writes with version null. "
        + _TXN_NOTE,
        body=fields.TXN_MULTI_GET, answer=_items(_object(value=_D, version=_TS)),
        errors=(404, 409, 413),
    ),
    Route(
        "POST", "/v1/txn/{id}/put", "transactions", "Write in a transaction",
        "Seen by others when it commits, and a condition is checked then, against the store before "
        "the transaction: the commit answers 412 `CONDITION_FAILED`. " + _TXN_NOTE,
        body=fields.TXN_PUT, errors=(404, 409, 412, 413),
    ),
    Route(
        "POST", "/v1/txn/{id}/delete", "transactions", "Remove in a transaction", _TXN_NOTE,
        body=fields.TXN_DELETE, errors=(404, 409, 412),
    ),
    Route(
        "POST", "/v1/txn/{id}/scan", "transactions", "Scan in a transaction",
        "Own writes included. `cursor` in the answer: there is more. " + _TXN_NOTE,
        body=fields.SCAN, answer=_items(_ROW, cursor={"type": "string"}), errors=(404, 409),
    ),
    Route(
        "POST", "/v1/txn/{id}/commit", "transactions", "Commit",
        "Asked again it answers the same. 409 `WRITE_CONFLICT`: nothing was written, run it again. "
        "412: a condition of one of its writes does not hold. 504 `UNKNOWN_OUTCOME`: ask "
        "`GET /v1/txn/{id}`.",
        body=(), answer=_VERSIONED, errors=(409, 412, 504),
    ),
    Route(
        "POST", "/v1/txn/{id}/abort", "transactions", "Abort",
        "Forgets all writes; fine for a transaction that was aborted already. Any transaction of "
        "the cluster, at any node: one that stands in the way, by the id in `KEY_LOCKED` or "
        "`/v1/locks`. 409 `TXN_COMMITTED`: too late. 404 `TXN_NOT_FOUND`: it holds nothing, and "
        "only its client knows it.",
        body=(), errors=(404, 409),
    ),
    Route(
        "POST", "/v1/txn/{id}/heartbeat", "transactions", "Keep alive",
        "Renews the time after which silence aborts it.", body=(), errors=(409,),
    ),
    Route(
        "POST", "/v1/tso", "transactions", "Take timestamps",
        "`count` timestamps from `first` on, each by one: unique, above every version acknowledged "
        "before.",
        body=fields.TSO, answer=_object(first=_TS, count={"type": "integer"}),
    ),
)  # fmt: skip

_SNAPSHOT_ROUTES = (
    Route(
        "POST", "/v1/snapshots", "snapshots", "Hold a snapshot",
        "Nothing that a read with `at` = its `at` sees is collected until it is released or nobody "
        "sends a heartbeat for `ttl_ms`. 410 `SNAPSHOT_TOO_OLD`: `at` lies below the safepoint.",
        body=fields.OPEN_SNAPSHOT, ok=201, answer=_SNAPSHOT, errors=(410, 429),
    ),
    Route(
        "GET", "/v1/snapshots", "snapshots", "List snapshots",
        "Oldest first. `left_ms`: how long it lives without another heartbeat.",
        answer=_items(_SNAPSHOT),
    ),
    Route(
        "POST", "/v1/snapshots/{id}/heartbeat", "snapshots", "Keep a snapshot",
        "404 `SNAPSHOT_NOT_FOUND`: it has ended.", body=(), errors=(404,),
    ),
    Route(
        "DELETE", "/v1/snapshots/{id}", "snapshots", "Release a snapshot",
        "Whoever holds it; `held`: whether it was there.",
        answer=_object(id=_TS, held={"type": "boolean"}),
    ),
)  # fmt: skip

_LOCK_ROUTES = (
    Route(
        "POST", "/v1/locks/{id}/heartbeat", "locks", "Keep a lock, or wait for it",
        "Take it by `POST /v1/procedures/kvorum.lock` with `{\"resource\", \"exclusive\", "
        "\"ttl_ms\"}` and an `Idempotency-Key`; its `id` is the lock's. `state` `held`: until it "
        "is released or nobody sends a heartbeat for `ttl_ms`; `token` is its fencing token. "
        "`waiting`: others have it; `ended`: it is lost. 404 `PROCEDURE_NOT_FOUND`: it ended some "
        "time ago.",
        body=fields.LOCK_BEAT, errors=(404, 409),
        answer=_object(
            id=_TS, state={"type": "string", "enum": ["waiting", "held", "ended"]}, token=_TS
        ),
    ),
    Route(
        "DELETE", "/v1/locks/{id}", "locks", "Release a lock",
        "Or wait for it no more; fine for one that has ended.", answer=_object(id=_TS),
        errors=(404, 409),
    ),
)  # fmt: skip

_WAIT = Field("wait_ms", integer(0, limits.WAIT_MS_MAX), "Wait so long for its end.", False)
_OTHER_ROUTES = (
    Route(
        "GET", "/v1/namespaces", "tables", "List namespaces", "By name.",
        answer=_items(_object(name={"type": "string"})),
    ),
    Route(
        "POST", "/v1/namespaces", "tables", "Create a namespace", "",
        body=fields.NAMESPACE, ok=201, answer=_object(name={"type": "string"}), errors=(409,),
    ),
    Route(
        "DELETE", "/v1/namespaces/{ns}", "tables", "Drop a namespace", "It must have no tables.",
        answer=_object(name={"type": "string"}), errors=(404, 409),
    ),
    Route(
        "GET", "/v1/namespaces/{ns}/tables", "tables", "List tables", "By name.",
        answer=_items(_TABLE_INFO), errors=(404,),
    ),
    Route(
        "POST", "/v1/namespaces/{ns}/tables", "tables", "Create a table",
        "Without `columns` it is a plain key-value table. Waits until the table can be used.",
        body=fields.NEW_TABLE, ok=201, answer=_TABLE_INFO, errors=(404, 409),
    ),
    Route(
        "PATCH", "/v1/namespaces/{ns}/tables/{table}", "tables", "Modify a table",
        "What is left out stays. All of it or, if it is refused, nothing; replicas follow by "
        "themselves.",
        body=fields.MODIFY_TABLE, answer=_TABLE_INFO, errors=(404, 409),
    ),
    Route(
        "POST", "/v1/namespaces/{ns}/tables/{table}/disable", "tables", "Disable a table",
        "Its rows are kept; whoever reads or writes it by its name is refused (TABLE_DISABLED) "
        "once this has answered, which takes some seconds. It may be dropped or enabled.",
        answer=_TABLE_INFO, errors=(404, 409),
    ),
    Route(
        "POST", "/v1/namespaces/{ns}/tables/{table}/enable", "tables", "Enable a table",
        "Fine for one that is enabled.", answer=_TABLE_INFO, errors=(404, 409),
    ),
    Route(
        "DELETE", "/v1/namespaces/{ns}/tables/{table}", "tables", "Drop a table",
        "With all its records.",
        answer=_object(namespace={"type": "string"}, name={"type": "string"}), errors=(404,),
    ),
    Route(
        "POST", "/v1/procedures/{name}", "procedures", "Start a procedure",
        "The body is its arguments. The header `Idempotency-Key` is its nonce: the same one gives "
        "the same id.",
        headers=(Field("Idempotency-Key", TEXT, "Nonce.", False),),
        query=(
            Field("queue", TEXT, "In which it waits for its turn.", False),
            Field(
                "priority",
                integer(-limits.PROCEDURE_PRIORITY_MAX, limits.PROCEDURE_PRIORITY_MAX),
                "The higher one begins first.", False,
            ),
            Field(
                "delay_ms", integer(0, limits.PROCEDURE_TIMEOUT_MS_MAX),
                "Begin so much later.", False,
            ),
            Field("at_ms", integer(0, 1 << 53), "Begin then, in ms since 1970.", False),
            Field("pool", TEXT, "Which workers run it.", False),
        ),
        body=None, ok=202, answer=_ID, errors=(404, 413),
    ),
    Route(
        "POST", "/v1/procedures/{id}/signals", "procedures", "Send a signal",
        "Kept until a step takes it with `ctx.receive(name)`. `sent` false: the same key was sent "
        "before. 409 `ENDED`.",
        body=fields.SIGNAL, answer=_object(sent={"type": "boolean"}), errors=(404, 409, 413),
    ),
    Route(
        "POST", "/v1/completions", "procedures", "End what an outside system was asked",
        "With a result or an error. `completed` false: it was before, in the same way; in another "
        "way: 409 `ALREADY_COMPLETED`.",
        body=fields.COMPLETION, answer=_object(completed={"type": "boolean"}),
        errors=(404, 409, 413),
    ),
    Route(
        "GET", "/v1/schedules", "procedures", "List schedules",
        "With the next time and the last run of each.", answer=_items({"type": "object"}),
    ),
    Route(
        "POST", "/v1/schedules", "procedures", "Start a procedure at the times of a clock",
        "Once for each time of the cron expression; an existing schedule of the name is changed.",
        body=fields.SCHEDULE, answer={"type": "object"}, errors=(404,),
    ),
    Route(
        "DELETE", "/v1/schedules/{name}", "procedures", "Remove a schedule",
        "What it started goes on.", answer={"type": "object"}, errors=(404,),
    ),
    Route(
        "GET", "/v1/queues", "procedures", "List queues and limits",
        "Of everything that has a limit or waits for one: `running`, `waiting`.",
        answer=_items({"type": "object"}),
    ),
    Route(
        "POST", "/v1/queues", "procedures", "Limit a queue, a type or a pool",
        "Zeros remove the limit.", body=fields.QUEUE, answer={"type": "object"},
    ),
    Route(
        "GET", "/v1/procedures/{id}", "procedures", "Look at a procedure",
        "`result` when it succeeded, `error` when it did not. The result is kept for a while.",
        query=(_WAIT,), answer=_PROCEDURE, errors=(404,),
    ),
    Route(
        "GET", "/v1/procedures", "procedures", "List procedures",
        "The 100 newest of those that run and of the ended ones that are kept, without `steps`.",
        query=(
            Field("state", TEXT, "Only in this state.", False),
            Field("owner", TEXT, "Only of this owner.", False),
            Field("name", TEXT, "Only of this name.", False),
        ),
        answer=_items(_PROCEDURE),
    ),
    Route(
        "POST", "/v1/procedures/{id}/abort", "procedures", "Abort a procedure",
        "It rolls back what it did; fine for one that was aborted already. A step under way gets a "
        "moment to end; then what it still writes is refused. 409 `NOT_ABORTABLE`: it has ended, "
        "it fails already, or it is past its point of no return.",
        body=fields.ABORT, ok=202, answer=_SURGERY, errors=(404, 409),
    ),
    Route(
        "POST", "/v1/procedures/{id}/bypass", "procedures", "End a procedure where it stands",
        "Nothing more of it runs, nothing is undone, its locks end; its parent goes on. 409 "
        "`UNDER_WAY`: a step runs (`override`); `HAS_CHILDREN`: `recursive`; `NOT_BYPASSABLE`: it "
        "has ended.",
        body=fields.BYPASS, ok=202, answer=_SURGERY, errors=(404, 409, 413),
    ),
    Route(
        "POST", "/v1/procedures/{id}/retry", "procedures", "Let a procedure go on at once",
        "From the step that it has, or from `step`; also while it rolls back, as long as nothing "
        "is undone. 409 `NOT_RETRYABLE`.",
        body=fields.RETRY, ok=202, answer=_SURGERY, errors=(404, 409),
    ),
    Route(
        "GET", "/v1/procedures/{id}/explain", "procedures", "What a procedure waits for",
        "`sentence` for people; `waits`: `kind`, `text`, `since_ms`, and who has it.",
        answer=_object(
            id=_TS, name={"type": "string"}, state={"type": "string"}, step={"type": "string"},
            sentence={"type": "string"}, waits={"type": "array", "items": {"type": "object"}},
        ),
        errors=(404,),
    ),
    Route(
        "POST", "/v1/locks/steal", "locks", "Take a lock away",
        "From who holds it: the next one gets it, late writes of the old one are refused. The old "
        "one queues up again. 404 `LOCK_NOT_HELD`.",
        body=fields.STEAL, answer=_SURGERY, errors=(404,),
    ),
    Route(
        "GET", "/v1/audit", "procedures", "What was done to procedures",
        "By whom, when and why, the newest first, with the states before and after.",
        query=(
            Field("id", TEXT, "Only of this procedure.", False),
            Field("limit", integer(1, limits.PROCEDURE_PAGE_MAX), "100 if left out.", False),
            Field("before", integer(1, 1 << 53), "Only entries with smaller numbers.", False),
        ),
        answer=_items({"type": "object"}),
    ),
    Route(
        "GET", "/v1/workers", "procedures", "List workers",
        "Processes that run procedures of their pool: `slots`, `running`, `procedures` (ids), "
        "`types` (`name@version`), `silent_ms`.",
        answer=_items({"type": "object"}),
    ),
    Route(
        "GET", "/v1/nodes", "cluster", "List nodes",
        "`state`: `live`, `down` (it does not answer the node that was asked), `joining`, "
        "`leaving` or `gone`; `leaders`: partitions that it leads; `witness`: it votes and keeps "
        "no data; `labels` (`dc`, `rack`, `server`) and `tags`: what it was started with; "
        "`forced`: what operators did to the members by force at this node, "
        "`[{\"at_ms\", \"voters\", \"given_up\", \"partitions\", \"reason\"}]`. `health`, as "
        "the master hears it: `alive`, `suspect`, `dead` (silent for `dead_after_ms`), null while "
        "there is no master; `heard_ms`: since its last beat; `cpu`: share of a core; `disk_free` "
        "in bytes.",
        answer=_items({"type": "object"}),
    ),
    Route(
        "GET", "/v1/partitions", "cluster", "List partitions",
        "In key order. `start` and `end` are storage keys: the table's id in 4 bytes, the key. "
        "`leader`: a node's id, null while none answers; `lag`: log entries that each other member "
        "still lacks, by node id; `size`: bytes of keys and newest values; `entries`: of its log, "
        "ever. Per second, averages of about ten seconds: `reads`, `writes`, `bytes`, `load` (in "
        "standard traffic units: a request of up to 1 KiB is 1, of 1 to 2 KiB is 2). `hot_keys`: "
        "`[{\"key\", \"share\"}]` of the requests; `hint`: what people should do about its load.",
        answer=_items({"type": "object"}),
    ),
    Route(
        "POST", "/v1/partitions/{id}/move", "cluster", "Move a replica",
        "From node `from` to node `to`, by a procedure: the new replica votes before the old one "
        "leaves. The procedure fails with 409 `MOVE_REFUSED` and the reason if the node has no "
        "room, lacks a tag of the table, or would be the second one in a failure domain.",
        body=fields.MOVE, ok=202, answer=_object(id=_TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/transfer", "cluster", "Hand over a leadership",
        "To node `to`, which must have a replica; by a procedure. It stays there.",
        body=fields.TRANSFER, ok=202, answer=_object(id=_TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/split", "cluster", "Split a partition",
        "In place and under load, by a procedure; its result names the new one. It fails with 409 "
        "`CANNOT_SPLIT` if the key does not lie inside, or if there is too little to find a middle "
        "of.",
        body=fields.SPLIT, ok=202, answer=_object(id=_TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/merge", "cluster", "Merge a partition with the next one",
        "In place and under load, by a procedure. It fails with 409 `CANNOT_MERGE` and the reason "
        "if they are no neighbours, are of two tables, have replicas at other nodes, or if a "
        "replica is down.",
        body=fields.MERGE, ok=202, answer=_object(id=_TS),
    ),
    Route(
        "GET", "/v1/locks", "cluster", "Who holds and who waits",
        "Of all nodes: what is waited for, then the oldest. `locks`: keys that transactions hold "
        "(`kind` `intent`: being written; `guard`: read by a serializable one, up to `end` if "
        "there is one). `keys` > 1: so many of the transaction in the table, `key` is the first, "
        "and nobody waits for any; with `all` each has a row. `waits`: a "
        "write that waits (`txn` null: it is none's) for `holder` (null: its turn comes), or a "
        "procedure. `missing`: nodes that did not answer; `more`: the lists were cut at "
        f"{limits.LOCKS_TOLD_MAX}.",
        query=(Field("all", BOOL, "A row for each key.", False),),
        answer=_object(
            locks={"type": "array", "items": _LOCK},
            waits={"type": "array", "items": _WAITING},
            missing={"type": "array", "items": {"type": "integer"}},
            more={"type": "boolean"},
        ),
    ),
    Route("GET", "/healthz", "cluster", "Is the process alive", "", answer=_STATUS),
    Route(
        "GET", "/readyz", "cluster", "Can the node serve", "503 while it starts or stops.",
        answer=_STATUS, errors=(503,),
    ),
    Route("GET", "/metrics", "cluster", "Prometheus metrics", "", raw_answer=True),
)  # fmt: skip

ROUTES: Final = (*_DATA_ROUTES, *_TXN_ROUTES, *_SNAPSHOT_ROUTES, *_LOCK_ROUTES, *_OTHER_ROUTES)

TAGS: Final = {
    "data": "Records",
    "transactions": "Transactions and timestamps",
    "snapshots": "Snapshots that are held",
    "locks": "Locks that users' code holds",
    "tables": "Namespaces and tables",
    "procedures": "Procedures",
    "cluster": "Nodes, health, metrics",
}

ERROR_MEANINGS: Final = {
    400: "Bad input: nothing was done",
    404: "No such key, table, namespace, procedure or route",
    409: "Conflict",
    410: "The snapshot is older than what is kept",
    412: "A condition does not hold",
    413: "Too large: details have the limit and the actual size",
    429: "Too much at once: try again after Retry-After",
    503: "Not now: try again after Retry-After",
    504: "Deadline exceeded, or the outcome is unknown",
}

_DESCRIPTION = (
    "Bodies are JSON, or msgpack with `Content-Type: application/msgpack`; replies too, chosen by "
    '`Accept`. In JSON, keys and values are text, or `{"b64": "…"}` for other bytes. Versions and '
    "timestamps are decimal strings. An error has a `code`, and `retry` says what to do: `no`, "
    "`retry` (the same request later), `restart_txn` (the same work in a new transaction), "
    "`reroute`, `unknown_outcome` (ask for the status)."
)


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Kvorum", "version": version, "description": _DESCRIPTION},
        "tags": [{"name": name, "description": title} for name, title in TAGS.items()],
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in (part[1:-1] for part in route.path.split("/") if part.startswith("{"))
    ]
    for where, table in (("query", route.query), ("header", route.headers)):
        parameters += [
            {
                "name": f.name,
                "in": where,
                "required": f.required,
                "description": f.doc,
                "schema": f.kind.schema,
            }
            for f in table
        ]
    operation: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "operationId": f"{route.method.lower()} {route.path}",
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.raw_body:
        raw = {"application/octet-stream": {"schema": _RAW}}
        operation["requestBody"] = {"required": True, "content": raw}
    elif route.body is not None:
        operation["requestBody"] = {
            "required": any(f.required for f in route.body),
            "content": _content(fields.object_schema(route.body)),
        }
    elif route.method == "POST":
        operation["requestBody"] = {"content": _content({"description": "Any value."})}
    return operation


def _responses(route: Route) -> dict[str, Any]:
    if route.raw_answer:
        content: dict[str, Any] = {"application/octet-stream": {"schema": _RAW}}
    else:
        content = _content(route.answer)
    found: dict[str, Any] = {str(route.ok): {"description": "Done", "content": content}}
    error = _content({"$ref": "#/components/schemas/Error"})
    for status in sorted({400, *route.errors}):
        found[str(status)] = {"description": ERROR_MEANINGS[status], "content": error}
    return found


def _content(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}, "application/msgpack": {"schema": schema}}
