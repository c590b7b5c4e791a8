"""What a statement may fail with, as PostgreSQL's clients know it: an SQLSTATE, a message, where.

    SqlError                    one class: callers differ by its SQLSTATE, never by its type
    from_store(KvorumError)     what the store refused, in SQL's terms; the SQLSTATE says
                                clients what the disposition does:

        RestartTxn                      40001 serialization_failure (DEADLOCK: 40P01)
        UnknownOutcome                  40003 statement_completion_unknown
        SnapshotTooOld                  72000 snapshot_too_old
        DeadlineExceeded                57014 query_canceled
        Busy                            53000 insufficient_resources
        Busy of a tenant's limit        53400 configuration_limit_exceeded
        Unavailable of a full disk      53100 disk_full
        Unavailable, KeyLocked, Reroute 40001 before anything of the transaction is known to be kept
        TooLarge                        54000 program_limit_exceeded
        AlreadyExists, NotFound         42P07/42P01 and their like by code
        Corruption                      XX001 data_corrupted
        the rest                        XX000 internal_error, with the code in the message

    at_the_door(KvorumError)    the same while a session begins: 57P03 instead of 40001 and 57014

SQLSTATEs are PostgreSQL 15's (appendix A of its manual).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kv.base.accounts import OVER_LIMIT
from kv.base.disk_space import DISK_FREE
from kv.base.errors import (
    AlreadyExists,
    Busy,
    Corruption,
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    NotFound,
    Refused,
    Reroute,
    RestartTxn,
    SnapshotTooOld,
    TooLarge,
    TryLater,
    UnknownOutcome,
)

SYNTAX_ERROR: Final = "42601"
UNSUPPORTED: Final = "0A000"
UNDEFINED_TABLE: Final = "42P01"
UNDEFINED_COLUMN: Final = "42703"
UNDEFINED_FUNCTION: Final = "42883"
UNDEFINED_OBJECT: Final = "42704"
UNDEFINED_PARAMETER: Final = "42P02"
UNDEFINED_CURSOR: Final = "34000"
UNDEFINED_PREPARED: Final = "26000"
UNDEFINED_DATABASE: Final = "3D000"
UNDEFINED_SCHEMA: Final = "3F000"
AMBIGUOUS_COLUMN: Final = "42702"
AMBIGUOUS_FUNCTION: Final = "42725"
AMBIGUOUS_PARAMETER: Final = "42P08"
INDETERMINATE_TYPE: Final = "42P18"
DUPLICATE_TABLE: Final = "42P07"
DUPLICATE_COLUMN: Final = "42701"
DUPLICATE_OBJECT: Final = "42710"
DUPLICATE_CURSOR: Final = "42P03"
DUPLICATE_PREPARED: Final = "42P05"
DUPLICATE_ALIAS: Final = "42712"
DATATYPE_MISMATCH: Final = "42804"
CANNOT_COERCE: Final = "42846"
GROUPING_ERROR: Final = "42803"
WINDOWING_ERROR: Final = "42P20"
WRONG_OBJECT_TYPE: Final = "42809"
INVALID_COLUMN_REFERENCE: Final = "42P10"
INVALID_TABLE_DEFINITION: Final = "42P16"
INVALID_NAME: Final = "42602"
NAME_TOO_LONG: Final = "42622"
GENERATED_ALWAYS: Final = "428C9"
INSUFFICIENT_PRIVILEGE: Final = "42501"
DEPENDENT_OBJECTS: Final = "2BP01"
NOT_NULL_VIOLATION: Final = "23502"
FOREIGN_KEY_VIOLATION: Final = "23503"
UNIQUE_VIOLATION: Final = "23505"
CHECK_VIOLATION: Final = "23514"
CARDINALITY_VIOLATION: Final = "21000"
OUT_OF_RANGE: Final = "22003"
DIVISION_BY_ZERO: Final = "22012"
STRING_TOO_LONG: Final = "22001"
INVALID_TEXT: Final = "22P02"
INVALID_BINARY: Final = "22P03"
BAD_COPY_FORMAT: Final = "22P04"
INVALID_DATETIME: Final = "22007"
DATETIME_OVERFLOW: Final = "22008"
INVALID_ENCODING: Final = "22021"
INVALID_PARAMETER: Final = "22023"
INVALID_ESCAPE: Final = "22025"
INVALID_REGEX: Final = "2201B"
INVALID_LIMIT: Final = "2201W"
INVALID_OFFSET: Final = "2201X"
NOT_IN_SEQUENCE: Final = "55000"
SEQUENCE_LIMIT: Final = "2200H"
LOCK_NOT_AVAILABLE: Final = "55P03"
CANNOT_CHANGE_NOW: Final = "55P02"
ACTIVE_TRANSACTION: Final = "25001"
NO_ACTIVE_TRANSACTION: Final = "25P01"
IN_FAILED_TRANSACTION: Final = "25P02"
READ_ONLY_TRANSACTION: Final = "25006"
IDLE_IN_TRANSACTION: Final = "25P03"
IDLE_SESSION: Final = "57P05"
UNDEFINED_SAVEPOINT: Final = "3B001"
SERIALIZATION_FAILURE: Final = "40001"
COMPLETION_UNKNOWN: Final = "40003"
DEADLOCK: Final = "40P01"
SNAPSHOT_TOO_OLD: Final = "72000"
QUERY_CANCELED: Final = "57014"
ADMIN_SHUTDOWN: Final = "57P01"
CANNOT_CONNECT_NOW: Final = "57P03"
INSUFFICIENT_RESOURCES: Final = "53000"
OUT_OF_MEMORY: Final = "53200"
TOO_MANY_CONNECTIONS: Final = "53300"
CONFIGURATION_LIMIT: Final = "53400"
LIMIT_EXCEEDED: Final = "54000"
STATEMENT_TOO_COMPLEX: Final = "54001"
PROTOCOL_VIOLATION: Final = "08P01"
INVALID_AUTHORIZATION: Final = "28000"
INVALID_PASSWORD: Final = "28P01"
DATA_CORRUPTED: Final = "XX001"
INTERNAL_ERROR: Final = "XX000"
DISK_FULL: Final = "53100"

_AGAIN: Final = "Run the whole transaction again."
_BY_CODE: Final = {
    "DEADLOCK": (DEADLOCK, _AGAIN),
    "LOCK_NOT_AVAILABLE": (LOCK_NOT_AVAILABLE, _AGAIN),
    "NAMESPACE_NOT_FOUND": (UNDEFINED_DATABASE, ""),
    "TABLE_NOT_FOUND": (UNDEFINED_TABLE, ""),
}
_BY_CLASS: Final[tuple[tuple[type[KvorumError], str, str], ...]] = (
    (RestartTxn, SERIALIZATION_FAILURE, _AGAIN),
    (UnknownOutcome, COMPLETION_UNKNOWN, "Look at the data before you run it again."),
    (SnapshotTooOld, SNAPSHOT_TOO_OLD, _AGAIN),
    (DeadlineExceeded, QUERY_CANCELED, ""),
    (Busy, INSUFFICIENT_RESOURCES, "Try again a little later."),
    (TryLater, SERIALIZATION_FAILURE, _AGAIN),
    (Reroute, SERIALIZATION_FAILURE, _AGAIN),
    (TooLarge, LIMIT_EXCEEDED, ""),
    (AlreadyExists, DUPLICATE_TABLE, ""),
    (NotFound, UNDEFINED_OBJECT, ""),
    (InvalidArgument, INVALID_PARAMETER, ""),
    (Corruption, DATA_CORRUPTED, ""),
    (Refused, CANNOT_CHANGE_NOW, ""),
)


MayRead = Callable[[Any, Sequence[int]], bool]
"""Whether somebody may read these columns (ids) of a table, its descriptor; of none: all of it."""


class Detail(str):
    """A text with values of a row in it, in UTC: who finds the error does not know whose it is.
    `shown`: the same in another style of texts, a session's (`sqlproxy.pg.style.Style`).
    `readable`: the same for who may read only some columns, which it is given a question about.
    """

    __slots__ = ("readable", "shown")
    shown: Callable[[Any], str]
    readable: Callable[[MayRead], str]

    def __new__(
        cls, text: str, shown: Callable[[Any], str], readable: Callable[[MayRead], str]
    ) -> Detail:
        made = super().__new__(cls, text)
        made.shown, made.readable = shown, readable
        return made


class SqlError(Exception):
    """`position`: 1-based character of the statement's text, 0 = none. The last fields name what a
    constraint's error is about, as PostgreSQL's error fields do. `where`: its CONTEXT, e.g. the
    line of a COPY. `routine`: which function of PostgreSQL's says so, where clients decide by it.
    """

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        detail: str = "",
        hint: str = "",
        position: int = 0,
        schema: str = "",
        table: str = "",
        column: str = "",
        datatype: str = "",
        constraint: str = "",
        severity: str = "ERROR",
        where: str = "",
        routine: str = "",
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
        self.position = position
        self.schema = schema
        self.table = table
        self.column = column
        self.datatype = datatype
        self.constraint = constraint
        self.severity = severity
        self.where = where
        self.routine = routine

    def bare(self) -> SqlError:
        """The same to be kept for later: what was computed when it was raised is not kept by it."""
        kept = type(self).__new__(type(self))
        kept.args = self.args
        kept.__dict__.update(self.__dict__)
        return kept


def unsupported(what: str, *, position: int = 0, hint: str = "", are: bool = False) -> SqlError:
    """What PostgreSQL has and Kvorum does not: named, never silently accepted. `are`: several."""
    verb = "are" if are else "is"
    return SqlError(UNSUPPORTED, f"{what} {verb} not supported", position=position, hint=hint)


def too_deep() -> SqlError:
    """Instead of Python's RecursionError."""
    return SqlError(
        STATEMENT_TOO_COMPLEX,
        "stack depth limit exceeded",
        hint="The statement or a value in it is nested too deep.",
    )


def disk_full() -> SqlError:
    """Of what a query puts into files."""
    return SqlError(
        DISK_FULL,
        "could not write to temporary file: no space is left for queries",
        detail="One user's queries have a part of what is free on the disk of this process.",
        hint="Sort, group or join fewer rows, or fewer columns; or free space on the disk.",
    )


def from_store(error: KvorumError) -> SqlError:
    """The same refusal in SQL's terms; its message stays, which names the key, the blocker and what
    to do.
    """
    said = error.details
    if isinstance(said.get("sqlstate"), str):  # who refused it knew (sqlproxy/values/refusals.py)
        return SqlError(
            said["sqlstate"],
            str(said.get("sql_message", error.message)),
            detail=str(said.get("sql_detail", "")),
            hint=str(said.get("sql_hint", "")),
        )
    sqlstate, hint = _state(error)
    return SqlError(sqlstate, _headline(sqlstate, error), detail=error.message, hint=hint)


def at_the_door(error: KvorumError) -> SqlError:
    """The same to who is not let in yet: there is no transaction that could be run again."""
    told = from_store(error)
    if told.sqlstate not in (SERIALIZATION_FAILURE, QUERY_CANCELED):
        return told
    return SqlError(
        CANNOT_CONNECT_NOW,
        "the database system is not yet accepting connections",
        detail=error.message,
        hint="Connect again a little later.",
    )


def _headline(sqlstate: str, error: KvorumError) -> str:
    """Drivers look at the SQLSTATE, people at the first line."""
    match sqlstate:
        case "40001":
            return "could not serialize access due to concurrent update"
        case "40P01":
            return "deadlock detected"
        case "40003":
            return "the outcome of the transaction is not known"
        case _:
            return error.message


def _state(error: KvorumError) -> tuple[str, str]:
    """The SQLSTATE and the hint; the first class that fits."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if error.details.get("kind") == OVER_LIMIT:
        return CONFIGURATION_LIMIT, f"Try again in {error.details['retry_after_ms']} ms."
    if error.details.get("what") == DISK_FREE:
        return DISK_FULL, "Deletions and DROP go on, and make room."
    for kind, state, hint in _BY_CLASS:
        if isinstance(error, kind):
            return state, hint
    return INTERNAL_ERROR, f"The store's code is {error.code}."


def outside_of_block(what: str) -> SqlError:
    """A command that means the transaction that it is in."""
    words = f"{what} can only be used in transaction blocks"
    return SqlError(NO_ACTIVE_TRANSACTION, words)


def in_failed_transaction() -> SqlError:
    """Nothing but its end is allowed in a failed transaction."""
    return SqlError(
        IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
