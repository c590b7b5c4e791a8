"""The routes of namespaces, tables, procedures and the cluster (routes.py)."""

from __future__ import annotations

from typing import Final

from kv.base import limits
from kvorum.http.routes.route import OBJECT, TS, D, Route, items_of, object_of
from kvorum.http.wire import fields
from kvorum.http.wire.fields import BOOL, TEXT, Field, Schema, integer

_ID: Final[Schema] = object_of(id={"type": "string"})
_STATUS: Final[Schema] = object_of(status={"type": "string"})
_TABLE_INFO = object_of(
    namespace={"type": "string"},
    name={"type": "string"},
    id={"type": "integer"},
    columns={"type": "array", "items": fields.object_schema(fields.COLUMN)},
    primary_key={"type": "array", "items": {"type": "string"}},
    replicas={"type": ["integer", "null"]},
    tags={"type": "array", "items": {"type": "string"}},
    state={"type": "string", "enum": ["public", "disabled"]},
    partition_bytes={"type": ["integer", "null"]},
)
_NAMESPACE_INFO = object_of(
    name={"type": "string"},
    replicas={"type": ["integer", "null"]},
    tags={"type": "array", "items": {"type": "string"}},
    state={"type": "string", "enum": ["public", "disabled"]},
)
_SURGERY = object_of(
    id={"type": "string"},
    what={"type": "string"},
    dry_run={"type": "boolean"},
    changed={"type": "boolean"},
    count={"type": "integer"},
    procedures={"type": "array", "items": {"type": "object"}},
)
_PROCEDURE = object_of(
    id={"type": "string"},
    name={"type": "string"},
    state={"type": "string"},
    step={"type": ["string", "null"]},
    steps={"type": "array", "items": {"type": "object"}},
    locks={"type": "array", "items": {}},
    result={},
    error={"type": "object"},
)
_NAME: Final[Schema] = {"type": ["string", "null"]}  # null: not a user's table
_COUNT: Final[Schema] = {"type": "integer"}
_PLACE: Final[dict[str, Schema]] = {"ns": _NAME, "table": _NAME, "key": D}
_LOCK = object_of(
    kind={"type": "string", "enum": ["intent", "guard"]},
    **_PLACE,
    end=D,
    keys=_COUNT,
    txn=TS,
    owner={"type": "string"},
    age_ms=_COUNT,
    ttl_ms=_COUNT,
    partition=_COUNT,
    node=_COUNT,
    waiting=_COUNT,
)
_WAITING = object_of(
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

_WAIT = Field("wait_ms", integer(0, limits.WAIT_MS_MAX), "Wait so long for its end.", False)
ADMIN_ROUTES: Final = (
    Route(
        "GET", "/v1/namespaces", "tables", "List namespaces", "By name.",
        answer=items_of(_NAMESPACE_INFO),
    ),
    Route(
        "POST", "/v1/namespaces", "tables", "Create a namespace",
        "`replicas` and `tags` are its tables': a table may want another number of replicas, and "
        "more tags.",
        body=fields.NAMESPACE, ok=201, answer=object_of(name={"type": "string"}), errors=(409,),
    ),
    Route(
        "GET", "/v1/namespaces/{ns}", "tables", "Look at a namespace", "", answer=_NAMESPACE_INFO,
        errors=(404,),
    ),
    Route(
        "PATCH", "/v1/namespaces/{ns}", "tables", "Modify a namespace",
        "What is left out stays. In one transaction with what it means for its tables; their "
        "replicas follow by themselves.",
        body=fields.MODIFY_NAMESPACE, answer=_NAMESPACE_INFO, errors=(404, 409),
    ),
    Route(
        "POST", "/v1/namespaces/{ns}/disable", "tables", "Disable a namespace",
        "All its tables (see there). No table is made or enabled in it then: 409 "
        "`NAMESPACE_DISABLED`.",
        answer=_NAMESPACE_INFO, errors=(404, 409),
    ),
    Route(
        "POST", "/v1/namespaces/{ns}/enable", "tables", "Enable a namespace",
        "With all its tables.", answer=_NAMESPACE_INFO, errors=(404, 409),
    ),
    Route(
        "DELETE", "/v1/namespaces/{ns}", "tables", "Drop a namespace", "It must have no tables.",
        answer=object_of(name={"type": "string"}), errors=(404, 409),
    ),
    Route(
        "GET", "/v1/namespaces/{ns}/tables", "tables", "List tables", "By name.",
        answer=items_of(_TABLE_INFO), errors=(404,),
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
        answer=object_of(namespace={"type": "string"}, name={"type": "string"}), errors=(404,),
    ),
    Route(
        "POST", "/v1/procedures/{name}", "procedures", "Start a procedure",
        "The body is its arguments. The header `Idempotency-Key` is its nonce: the same one gives "
        "the same id as long as the procedure is kept; of another procedure, or with other "
        "arguments, it is refused (409 `NONCE_REUSED`).",
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
        body=None, ok=202, answer=_ID, errors=(404, 409, 413),
    ),
    Route(
        "POST", "/v1/procedures/{id}/signals", "procedures", "Send a signal",
        "Kept until a step takes it with `ctx.receive(name)`. `sent` false: the same key was sent "
        "before. 409 `ENDED`.",
        body=fields.SIGNAL, answer=object_of(sent={"type": "boolean"}), errors=(404, 409, 413),
    ),
    Route(
        "POST", "/v1/completions", "procedures", "End what an outside system was asked",
        "With a result or an error. `completed` false: it was before, in the same way; in another "
        "way: 409 `ALREADY_COMPLETED`.",
        body=fields.COMPLETION, answer=object_of(completed={"type": "boolean"}),
        errors=(404, 409, 413),
    ),
    Route(
        "GET", "/v1/schedules", "procedures", "List schedules",
        "With the next time and the last run of each.", answer=items_of({"type": "object"}),
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
        answer=items_of({"type": "object"}),
    ),
    Route(
        "POST", "/v1/queues", "procedures", "Limit a queue, a type or a pool",
        "Zeros remove the limit.", body=fields.QUEUE, answer={"type": "object"},
    ),
    Route(
        "GET", "/v1/procedures/{id}", "procedures", "Look at a procedure",
        "`result` when it succeeded, `error` when it did not. The result is kept for a while. "
        "`children`, if there are any: each round as `{\"first\", \"count\"}`, ids from `first`. "
        "Of types of users also `args` and `ctx_state` (`args_bytes`, `ctx_state_bytes` if "
        "they are large), and in `error` and `retrying` the place in their code: `step`, `file`, "
        "`line`, `traceback`.",
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
        answer=items_of(_PROCEDURE),
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
        answer=object_of(
            id=TS, name={"type": "string"}, state={"type": "string"}, step={"type": "string"},
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
        answer=items_of({"type": "object"}),
    ),
    Route(
        "GET", "/v1/workers", "procedures", "List workers",
        "Processes that run procedures of their pool: `slots`, `running`, `procedures` (ids), "
        "`types` (`name@version`), `silent_ms`.",
        answer=items_of({"type": "object"}),
    ),
    Route(
        "GET", "/v1/cluster", "cluster", "Look at the cluster",
        "Its id, the node that is its `master` (null: there is none now), how many `nodes` and "
        "`partitions` there are, and every setting: `value`, `version` (0: never set), `default`, "
        "`low`, `high`, `about`.",
        answer=object_of(
            cluster={"type": ["string", "null"]}, master={"type": ["integer", "null"]},
            nodes=_COUNT, partitions=_COUNT,
            settings={"type": "array", "items": OBJECT},
        ),
    ),
    Route(
        "POST", "/v1/cluster", "cluster", "Change settings of the cluster",
        "All of them are checked before one is changed. Waits until every node applies them, or "
        "for 30 s: `missing` names nodes that have not said so; the value counts all the same, and "
        "they read it when they are back.",
        body=fields.SETTINGS,
        answer=object_of(settings={"type": "array", "items": OBJECT}),
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
        answer=items_of({"type": "object"}),
    ),
    Route(
        "GET", "/v1/partitions", "cluster", "List partitions",
        "In key order. `start` and `end` are storage keys: the table's id in 4 bytes, the key. "
        "`leader`: a node's id, null while none answers; `lag`: log entries that each other member "
        "still lacks, by node id; `size`: bytes of keys and newest values; `entries`: of its log, "
        "ever. Per second, averages of about ten seconds: `reads`, `writes`, `bytes`, `load` (in "
        "standard traffic units: a request of up to 1 KiB is 1, of 1 to 2 KiB is 2). `hot_keys`: "
        "`[{\"key\", \"share\"}]` of the requests; `hint`: what people should do about its load.",
        answer=items_of({"type": "object"}),
    ),
    Route(
        "POST", "/v1/partitions/{id}/move", "cluster", "Move a replica",
        "From node `from` to node `to`, by a procedure: the new replica votes before the old one "
        "leaves. The procedure fails with 409 `MOVE_REFUSED` and the reason if the node has no "
        "room, lacks a tag of the table, or would be the second one in a failure domain.",
        body=fields.MOVE, ok=202, answer=object_of(id=TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/transfer", "cluster", "Hand over a leadership",
        "To node `to`, which must have a replica; by a procedure. It stays there.",
        body=fields.TRANSFER, ok=202, answer=object_of(id=TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/split", "cluster", "Split a partition",
        "In place and under load, by a procedure; its result names the new one. It fails with 409 "
        "`CANNOT_SPLIT` if the key does not lie inside, or if there is too little to find a middle "
        "of.",
        body=fields.SPLIT, ok=202, answer=object_of(id=TS),
    ),
    Route(
        "POST", "/v1/partitions/{id}/merge", "cluster", "Merge a partition with the next one",
        "In place and under load, by a procedure. It fails with 409 `CANNOT_MERGE` and the reason "
        "if they are no neighbours, are of two tables, have replicas at other nodes, or if a "
        "replica is down.",
        body=fields.MERGE, ok=202, answer=object_of(id=TS),
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
        answer=object_of(
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
