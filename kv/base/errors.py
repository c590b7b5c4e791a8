"""Every error that a user or another node can see.

The tree (a class exists only where a caller reacts differently; `code` says precisely what
happened):

    KvorumError
    ├── Rejected            disposition "no": the request is wrong or refused; asking again changes
                            nothing
    │   ├── InvalidArgument     INVALID_ARGUMENT 400
    │   ├── TooLarge            TOO_LARGE 413              details: what, limit, actual
    │   ├── NotFound            KEY_NOT_FOUND, NAMESPACE_NOT_FOUND, TABLE_NOT_FOUND,
        PROCEDURE_NOT_FOUND, … 404
    │   ├── AlreadyExists       ALREADY_EXISTS 409
    │   ├── ConditionFailed     CONDITION_FAILED 412       details: key, version (decimal string,
        None if absent), op (index)
    │   ├── SnapshotTooOld      SNAPSHOT_TOO_OLD 410       details: at, safepoint
    │   ├── Refused             a state that forbids it: code given by the raiser (NOT_ABORTABLE,
        SINK_REFUSED, …) 409
    │   ├── Unauthenticated     UNAUTHENTICATED 401        who asks has proved nothing, or wrongly
    │   ├── Forbidden           FORBIDDEN 403              details: user, missing, resource
    │   └── Corruption          CORRUPTION 500             details: key, file or family
    ├── RestartTxn          disposition "restart_txn": run the function again on a new snapshot
    │   ├── WriteConflict       WRITE_CONFLICT 409         details: key, conflict_ts, start_ts
    │   └── TxnAborted          TXN_ABORTED 409            details: txn, reason; DEADLOCK: cycle
    ├── TryLater            disposition "retry": nothing was done; the same request may be sent
                            again
    │   ├── Busy                BUSY 429                   details: what, limit, actual,
        retry_after_ms
    │   ├── Unavailable         UNAVAILABLE 503            no leader, stopping, disk full, timestamp
        bound not raised yet
    │   ├── KeyLocked           KEY_LOCKED 409             details: key, txn (start_ts), anchor,
        age_ms, ttl_ms; of a read also others: [[txn, anchor, ttl_ms, [key, …]], …]; of a write that
        waited also waited_ms, owner, kind
    │   └── DeadlineExceeded    DEADLINE_EXCEEDED 504      of a read, or of a write that certainly
        was not executed
    ├── Reroute             disposition "reroute": ask the node or partition in the details
    │   ├── NotLeader           NOT_LEADER 503             details: leader (node id or None)
    │   └── Moved               MOVED 409                  details: descriptor of what serves the
        key now, or None
    └── UnknownOutcome      disposition "unknown_outcome": UNKNOWN_OUTCOME 504; it may or may not
                            have been executed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from kv.base.wire_row import WireRow

Disposition = Literal["no", "restart_txn", "retry", "reroute", "unknown_outcome"]


class KvorumError(Exception):
    """Base of the tree. `message` says what, where, the limit, and what to do; `details` is plain
    data.
    """

    code: str = "INTERNAL"
    status: int = 500
    disposition: ClassVar[Disposition] = "no"

    def __init__(
        self, message: str, *, code: str | None = None, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.details: dict[str, Any] = dict(details or {})

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.code, self.details))


def _rebuild(
    cls: type[KvorumError], message: str, code: str, details: dict[str, object]
) -> KvorumError:
    return cls(message, code=code, details=details)


class Rejected(KvorumError):
    """The request itself is wrong or refused; asking again changes nothing."""

    code = "REJECTED"
    status = 400


class InvalidArgument(Rejected):
    code = "INVALID_ARGUMENT"


class TooLarge(Rejected):
    code = "TOO_LARGE"
    status = 413


class NotFound(Rejected):
    code = "NOT_FOUND"
    status = 404


class AlreadyExists(Rejected):
    code = "ALREADY_EXISTS"
    status = 409


class ConditionFailed(Rejected):
    code = "CONDITION_FAILED"
    status = 412


class SnapshotTooOld(Rejected):
    code = "SNAPSHOT_TOO_OLD"
    status = 410


class Refused(Rejected):
    code = "REFUSED"
    status = 409


class Unauthenticated(Rejected):
    code = "UNAUTHENTICATED"
    status = 401


class Forbidden(Rejected):
    code = "FORBIDDEN"
    status = 403


class Corruption(Rejected):
    code = "CORRUPTION"
    status = 500


class RestartTxn(KvorumError):
    """The transaction cannot commit; the same work may succeed on a new snapshot."""

    code = "RESTART_TXN"
    status = 409
    disposition = "restart_txn"


class WriteConflict(RestartTxn):
    code = "WRITE_CONFLICT"


class TxnAborted(RestartTxn):
    code = "TXN_ABORTED"


class TryLater(KvorumError):
    """Nothing was done; the same request may be sent again."""

    code = "TRY_LATER"
    status = 503
    disposition = "retry"


class Busy(TryLater):
    code = "BUSY"
    status = 429


class Unavailable(TryLater):
    code = "UNAVAILABLE"


class KeyLocked(TryLater):
    code = "KEY_LOCKED"
    status = 409


class DeadlineExceeded(TryLater):
    code = "DEADLINE_EXCEEDED"
    status = 504


class Reroute(KvorumError):
    """Somebody else serves this now."""

    code = "REROUTE"
    status = 503
    disposition = "reroute"


class NotLeader(Reroute):
    code = "NOT_LEADER"


class Moved(Reroute):
    code = "MOVED"
    status = 409


class UnknownOutcome(KvorumError):
    """The request may or may not have been executed. Never reported as a failure; ask for the
    status by its id.
    """

    code = "UNKNOWN_OUTCOME"
    status = 504
    disposition = "unknown_outcome"


def _leaves(cls: type[KvorumError]) -> list[type[KvorumError]]:
    found = [cls]
    for sub in cls.__subclasses__():
        found += _leaves(sub)
    return found


BY_CLASS_CODE: dict[str, type[KvorumError]] = {c.code: c for c in _leaves(KvorumError)}
_FALLBACK: dict[str, type[KvorumError]] = {
    "no": Rejected,
    "restart_txn": RestartTxn,
    "retry": TryLater,
    "reroute": Reroute,
    "unknown_outcome": UnknownOutcome,
}


def to_wire(error: KvorumError) -> WireRow:
    """`[class_code, code, message, details]`: plain data for an RPC reply. A class of somebody
    else's travels as the class of this module that it extends.
    """
    cls = type(error)
    while BY_CLASS_CODE.get(cls.code) is not cls and cls.__base__ is not None:
        cls = cls.__base__
    return [cls.code, error.code, error.message, error.details]


def from_wire(row: WireRow | tuple[Any, ...]) -> KvorumError:
    """The error that `to_wire` described. An unknown class becomes a plain `KvorumError`."""
    class_code, code, message, details = row
    return BY_CLASS_CODE.get(class_code, KvorumError)(message, code=code, details=details)


def to_json(error: KvorumError) -> dict[str, Any]:
    """The body of an HTTP error (docs/reference/http.md)."""
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "retry": error.disposition,
            "details": error.details,
        }
    }


def from_json(status: int, body: Mapping[str, Any]) -> KvorumError:
    """The error behind an HTTP reply of Kvorum."""
    e = body["error"]
    cls = BY_CLASS_CODE.get(e["code"])
    if cls is None:
        by_status = [c for c in BY_CLASS_CODE.values() if c.status == status]
        wanted = [c for c in by_status if c.disposition == e.get("retry", "no")]
        cls = wanted[-1] if wanted else _FALLBACK.get(e.get("retry", "no"), KvorumError)
    return cls(e["message"], code=e["code"], details=e.get("details"))
