"""The values that every surface gives and takes: records, pages, ops, states. Plain data, no
behaviour.

Keys and values are bytes inside. Where a user passes text it is encoded as UTF-8 (`as_bytes`),
once, at the edge. Versions and timestamps are integers here and decimal strings on the wire of HTTP
(JavaScript cannot hold 64 bits).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kv.base.errors import InvalidArgument, TooLarge
from kv.base.limits import KEY_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX
from kv.base.strengths import STRENGTHS
from procedures.engine.plain_data import Plain

Bytes = bytes | str
"""What users may pass for a key or a value: bytes, or text that is encoded as UTF-8."""


class Record(NamedTuple):
    """A value and the version (commit timestamp) that wrote it."""

    value: bytes
    version: int


LOCK_WAITS: Final = ("wait", "nowait", "skip")
"""What `lock` does about a key that somebody else has: wait, refuse, or say that there is none."""
LOCK_STRENGTHS: Final = tuple(STRENGTHS)
"""What `lock` keeps others from (kv.base.strengths), the strongest first."""


class Item(NamedTuple):
    """A record of a scan, with its user key."""

    key: bytes
    value: bytes
    version: int


class TableKey(NamedTuple):
    """A user key in a table that is named."""

    ns: str
    table: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a scan. `cursor` continues it at the same snapshot; None: that was all. `at` is
    the snapshot.
    """

    items: list[Item]
    cursor: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Put:
    """One put of a batch. At most one of `if_absent` and `if_version`; `ttl_ms` counts from the
    commit, 0 = for ever.
    """

    ns: str
    table: str
    key: Bytes
    value: Bytes
    if_absent: bool = False
    if_version: int | None = None
    ttl_ms: int = 0
    fence: tuple[str, int] | None = None
    """(resource, token): the batch is refused (FENCED_OFF) once that lock has ended."""


@dataclass(frozen=True, slots=True)
class Delete:
    """One delete of a batch."""

    ns: str
    table: str
    key: Bytes
    if_version: int | None = None
    fence: tuple[str, int] | None = None


BatchOp = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnState:
    """What became of a transaction: `status` is pending, committed, aborted or unknown (never
    heard of, or not remembered any more); `commit_ts` is None unless committed.
    """

    status: str
    commit_ts: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot that somebody holds: nothing that a reader of `at` sees is collected."""

    id: int
    at: int
    owner: str  # for people
    ttl_ms: int  # after so long a silence of its owner it ends
    age_ms: int = 0
    left_ms: int = 0
    """How long it lives if nobody renews it."""

    def to_plain(self) -> Plain:
        """As JSON has it."""
        return {
            "id": str(self.id),
            "at": str(self.at),
            "owner": self.owner,
            "ttl_ms": self.ttl_ms,
            "age_ms": self.age_ms,
            "left_ms": self.left_ms,
        }

    @staticmethod
    def of(data: Plain) -> SnapshotInfo:
        """The map that `to_plain` made."""
        times = (data["ttl_ms"], data["age_ms"], data["left_ms"])
        return SnapshotInfo(int(data["id"]), int(data["at"]), data["owner"], *times)


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column; `type` is a name of the SQL layer (`bigint`, `text`, …)."""

    name: str
    type: str
    nullable: bool = True

    def to_plain(self) -> Plain:
        """As JSON and the arguments of CreateTable have it."""
        return {"name": self.name, "type": self.type, "nullable": self.nullable}


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace. `replicas`, `tags` and what follows are what its tables have that do not say
    otherwise.
    """

    name: str
    replicas: int | None = None
    tags: tuple[str, ...] = ()
    state: str = "public"  # or "disabled"
    shard: str = ""
    survive: str = ""
    leaders: str = ""

    def to_plain(self) -> Plain:
        """As JSON has it."""
        data: dict[str, object] = {"name": self.name, "replicas": self.replicas}
        data["tags"] = list(self.tags)
        data |= {"state": self.state, "shard": self.shard}
        return {**data, "survive": self.survive, "leaders": self.leaders}

    @staticmethod
    def of(data: Plain) -> NamespaceInfo:
        """The map that `to_plain` made."""
        tags = tuple(data.get("tags") or ())
        state = data.get("state", "public")
        texts = (data.get(name, "") for name in ("shard", "survive", "leaders"))
        return NamespaceInfo(data["name"], data.get("replicas"), tags, state, *texts)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the catalog describes it. `columns` is empty for a plain key-value table."""

    namespace: str
    name: str
    id: int
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    replicas: int | None = None
    tags: tuple[str, ...] = ()
    state: str = "public"  # or "disabled"
    partition_bytes: int | None = None  # above which a partition is split; None: the cluster's
    shard: str = ""  # storage shard of its own; "": its namespace's; so with the two below
    survive: str = ""  # server, rack or datacenter: what may be lost without stopping it
    leaders: str = ""  # labels of the nodes that should lead


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a new table is to be. `split_keys` cut it into `len + 1` partitions at user keys, in
    rising order.
    """

    replicas: int | None = None
    tags: tuple[str, ...] = ()
    split_keys: tuple[bytes, ...] = ()
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    partition_bytes: int | None = None
    shard: str = ""
    survive: str = ""
    leaders: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSpec:
    """Which rows of a table: `[start, end)` cut down to `prefix`, `limit` rows at most, at the
    snapshot `at` (0 = now).

    `cursor` continues an earlier page; the other bounds may be repeated with it, but must not
    contradict it.
    """

    prefix: bytes | None = None
    start: bytes | None = None
    end: bytes | None = None
    reverse: bool = False
    limit: int = 0
    cursor: str | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class ProcedureInfo:
    """A procedure as users see it (docs/reference/procedures.md). `error` is the plain data of the
    error that ended it. `steps` is None in a list: ask for the procedure.
    """

    id: int
    name: str
    state: str
    step: str | None = None
    steps: list[Mapping[str, Any]] | None = None
    locks: list[Any] = field(default_factory=list)
    result: Any = None
    error: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the engine tells: owner, parent, times."""

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @staticmethod
    def of(data: Plain) -> ProcedureInfo:
        """The map that a node tells (procedures.engine.view), natively or over HTTP."""
        return ProcedureInfo(
            id=int(data["id"]),
            name=data["name"],
            state=data["state"],
            step=data["step"],
            steps=data.get("steps"),
            locks=data["locks"],
            result=data.get("result"),
            error=data.get("error"),
            extra={k: v for k, v in data.items() if k not in _OF_PROCEDURES},
        )


_OF_PROCEDURES = frozenset({"id", "name", "state", "step", "steps", "locks", "result", "error"})
FINISHED = frozenset({"SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"})


def as_bytes(data: object, what: str) -> bytes:
    """Text as UTF-8, bytes as they are. Raises InvalidArgument for anything else."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as e:
            raise InvalidArgument(f"{what} is not valid text: {e.reason}; pass bytes") from None
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise InvalidArgument(f"{what} must be bytes or text, not {type(data).__name__}")


def user_key(data: object) -> bytes:
    """A user key. Raises InvalidArgument (empty, wrong type) or TooLarge."""
    key = as_bytes(data, "key")
    if not 0 < len(key) <= KEY_BYTES_MAX:
        if not key:
            raise InvalidArgument(f"key is empty; a key has 1 to {KEY_BYTES_MAX} bytes")
        raise too_large("key", KEY_BYTES_MAX, len(key), "use a shorter key, such as a hash of it")
    return key


def user_value(data: object) -> bytes:
    """A value. Raises InvalidArgument (wrong type) or TooLarge."""
    value = as_bytes(data, "value")
    if len(value) > VALUE_BYTES_MAX:
        raise too_large(
            "value", VALUE_BYTES_MAX, len(value), "cut it into several records of one batch"
        )
    return value


def too_large(what: str, limit: int, actual: int, remedy: str) -> TooLarge:
    """The one shape of every size refusal."""
    return TooLarge(
        f"{what} has {actual} bytes, the limit is {limit}; {remedy}",
        details={"what": what, "limit": limit, "actual": actual},
    )


def condition(if_absent: bool, if_version: int | None) -> int | None:
    """The `cond` of an op (kv.base.ops): None, 0 = must be absent, else the version."""
    if if_absent:
        if if_version is not None:
            raise InvalidArgument("if_absent and if_version contradict each other: give one")
        return 0
    if if_version is None:
        return None
    if type(if_version) is not int or not 0 < if_version < 1 << 64:
        raise InvalidArgument(
            f"if_version must be a version as a read or a write gave it, got {if_version!r}; "
            "for a key that must not exist use if_absent"
        )
    return if_version


def checked_ttl(ttl_ms: int | None) -> int:
    """Milliseconds to live, 0 = for ever. Raises InvalidArgument outside 1 … TTL_MS_MAX."""
    if ttl_ms is None:
        return 0
    if type(ttl_ms) is not int or not 0 < ttl_ms <= TTL_MS_MAX:
        raise InvalidArgument(f"ttl_ms must be 1 to {TTL_MS_MAX}, got {ttl_ms!r}")
    return ttl_ms
