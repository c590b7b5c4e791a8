"""What passes between the master and the targets of an operation, and its rows on the wire.

    order   [op, verb, round, kind, body, lease_ms]     master → target
    report  [op, verb, round, status, body]             target → master

    op      the operation: the id of its procedure, as text
    verb    DO (one phase); STAGE, COMMIT (two phases); UNDO (both: give it up, take it back)
    round   rises when something else is wanted of this target than before (a partition moved)
    kind    which handler of the target carries it out
    body    packed plain data (engine/plain_data.py): what is wanted; what came of it, or how far it
            is; of a failure [code, message, whether it is for good]

Orders of one operation to one target are ordered by (rank of the verb, round): a target never goes
back. An order may be repeated, and a report too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from kv.base import limits
from kv.base.errors import InvalidArgument, KvorumError
from procedures.engine import plain_data


class Verb(IntEnum):
    """The numbers are on the wire and in records."""

    DO = 1
    STAGE = 2
    COMMIT = 3
    UNDO = 4


RANKS: Final = {Verb.DO: 1, Verb.STAGE: 1, Verb.COMMIT: 2, Verb.UNDO: 3}


class Status(IntEnum):
    """The numbers are on the wire."""

    WORKING = 1
    DONE = 2
    FAILED = 3


class Order(NamedTuple):
    op: str
    verb: Verb
    round: int
    kind: str
    body: bytes
    lease_ms: int

    @property
    def rank(self) -> tuple[int, int]:
        """What comes later has a higher one."""
        return RANKS[self.verb], self.round


class Report(NamedTuple):
    op: str
    verb: Verb
    round: int
    status: Status
    body: bytes = plain_data.NONE

    def plain(self) -> Any:
        """The body as data."""
        return plain_data.decode(self.body)


def failure_body(error: BaseException) -> bytes:
    """Why a handler failed. What an error's disposition calls retryable is not for good."""
    if isinstance(error, KvorumError):
        code, message, for_good = error.code, error.message, error.disposition == "no"
    else:
        code, message, for_good = "HANDLER_ERROR", f"{type(error).__name__}: {error}", True
    return plain_data.pack([code, message[: limits.BUS_ERROR_CHARS_MAX], for_good])


def read_orders(rows: object) -> list[Order]:
    """Orders off the wire. Raises InvalidArgument."""
    return [_order(row) for row in _rows(rows, "orders")]


def read_reports(rows: object) -> list[Report]:
    """Reports off the wire. Raises InvalidArgument."""
    return [_report(row) for row in _rows(rows, "reports")]


def _rows(rows: object, what: str) -> Sequence[object]:
    if not isinstance(rows, list) or len(rows) > limits.BUS_ROWS_MAX:
        raise InvalidArgument(f"{what} of the bus are a list of at most {limits.BUS_ROWS_MAX} rows")
    return rows


def _order(row: object) -> Order:
    match row:
        case [str(op), int(verb), int(round_), str(kind), bytes(body), int(lease_ms)] if (
            _is_head(op, verb, round_, body)
            and 0 < len(kind) <= limits.NAME_CHARS_MAX
            and 0 < lease_ms <= limits.BUS_LEASE_MS
        ):
            return Order(op, Verb(verb), round_, kind, body, lease_ms)
    raise InvalidArgument(f"not an order of the bus: {row!r:.120}")


def _report(row: object) -> Report:
    match row:
        case [str(op), int(verb), int(round_), int(status), bytes(body)] if _is_head(
            op, verb, round_, body
        ) and status in set(Status):
            return Report(op, Verb(verb), round_, Status(status), body)
    raise InvalidArgument(f"not a report of the bus: {row!r:.120}")


def _is_head(op: str, verb: int, round_: int, body: bytes) -> bool:
    return (
        0 < len(op) <= limits.NAME_CHARS_MAX
        and verb in set(Verb)
        and 0 < round_ < 1 << 32
        and len(body) <= limits.BUS_BODY_BYTES_MAX
    )


def bounded(rows: Sequence[Any]) -> int:
    """How many of these orders or reports, from the first on, fit one message; at least one."""
    size = 0
    for count, row in enumerate(rows[: limits.BUS_ROWS_MAX]):
        size += len(row.body)
        if count and size > limits.BUS_MESSAGE_BYTES_MAX:
            return count
    return min(len(rows), limits.BUS_ROWS_MAX)
