"""The durable record of one procedure, and its bytes.

One record holds everything that the next step needs, so that a step reads nothing and writes one
row. It is a msgpack array in the order of the fields below: new fields go to the end with a
default, so that older records stay readable.

Invariants: `undo` holds, oldest first, every finished execution that a failure would undo; an entry
without a method is a round of children. `error` is set from the moment the failure is decided. A
record with `final` never rolls back. The engine compares the *version* of the row (not a field
here) on every update: of two runs of one step only one commits.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from kv.base.errors import Corruption
from procedures.engine import plain_data
from procedures.engine.needs import Needs, text_of
from procedures.engine.needs import read as read_needs
from procedures.engine.procedure import TERMINAL, State

FORMAT: Final = 1
FORMAT_MORE: Final = 2
"""Of a record that uses a field which programs of format 1 may not know, and would lose: they leave
it alone. In memory all have FORMAT.
"""
GRANTED_HERE: Final = 1  # `grant` of the very write that grants: a record cannot hold its version


SCHEDULE_OWNER: Final = "schedule"
SCHEDULED: Final = "schedule/"  # begins a nonce of a schedule: schedule/NAME/TIME, or, if …
ASKED: Final = "\x1f"  # … somebody asked for the run, schedule/NAME ASKED KEY/TIME
LANE_SEPARATOR: Final = "\x1f"


def lane_of(pool: str, name: str, version: int, needs: Needs = ()) -> str:
    """What the workers of a pool differ in: which types they run, which versions, and (`needs`)
    what else they have.
    """
    lane = f"{pool}{LANE_SEPARATOR}{name}{LANE_SEPARATOR}{version}"
    return f"{lane}{LANE_SEPARATOR}{text_of(needs)}" if needs else lane


def parts_of(lane: str) -> tuple[str, str, str, Needs]:
    """Pool, type, version and needs."""
    pool, name, version, *needs = lane.split(LANE_SEPARATOR)
    return pool, name, version, read_needs(needs[0]) if needs else ()


def without_needs(lane: str) -> str:
    return LANE_SEPARATOR.join(lane.split(LANE_SEPARATOR, 3)[:3])


class Undo(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=False):
    """`count` consecutive executions of one step from sequence number `first`, or (`method` "")
    children from id `first`.
    """

    method: str
    first: int
    count: int


class Failure(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why a procedure failed. `type` is the class of the exception, "" when a step returned
    fail(…). Where users' code raised it: `step`, `file` and `line`, and the traceback (its end, if
    it is long).
    """

    code: str
    message: str
    type: str = ""
    details: bytes = plain_data.EMPTY  # a plain dict
    step: str = ""
    file: str = ""
    line: int = 0
    trace: str = ""

    def to_plain(self, *, traced: bool = True) -> dict[str, object]:
        shown: dict[str, object] = {
            "code": self.code,
            "message": self.message,
            "type": self.type,
            "details": plain_data.decode(self.details),
        }
        if self.file:
            shown |= {"step": self.step, "file": self.file, "line": self.line}
        if self.trace and traced:
            shown["traceback"] = self.trace
        return shown

    @property
    def sentence(self) -> str:
        """The message, and where it comes from: `'amount'` alone says nothing."""
        if not self.file:
            return self.message
        return f"{self.type}: {self.message} (step {self.step}, {self.file}:{self.line})"


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One finished execution in the history."""

    step: str  # "undo:NAME" for an undo
    outcome: str
    attempt: int
    start_ms: int
    took_ms: int
    read_ts: int = 0  # the snapshot that it read; 0 = it read nothing, or is not known


class Trying(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The current step failed, and runs again by its retry policy (retries.py)."""

    failed: int  # attempts
    most: int  # of so many; 0 = any number
    due_ms: int  # the next one begins then
    wake: str  # what led to the first one
    error: Failure  # of the last one


class Back(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """It rolls back to there, and then goes on (reset.py)."""

    step: str
    data: bytes
    args: bytes
    keep: int  # entries of the undo stack that stay …
    part: int  # … and so many executions of the one above them


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    # -- set at submission
    format: int
    id: int
    name: str
    version: int  # of the declaration
    owner: str
    nonce: str  # "" = none
    parent: int  # 0 = none
    salt: bytes  # makes tokens unique among clusters
    locks: tuple[tuple[str, str], ...]
    args: bytes
    created_ms: int
    deadline_ms: int  # 0 = none
    retention_ms: int
    # -- moved by steps
    state: State
    step: str  # runs next; after the end, the last one
    seq: int = 0  # finished executions; part of the token
    attempt: int = 0  # rounds of `again` of the current step
    data: bytes = plain_data.EMPTY  # ctx.state
    due_ms: int = 0  # WAITING: runs then at the latest; 0 = no time
    event: str = ""  # WAITING: what wakes it
    final: bool = False  # past the point of no return
    undo: tuple[Undo, ...] = ()
    rounds: tuple[tuple[int, int], ...] = ()  # (first id, count) of every round of children
    error: Failure | None = None
    result: bytes = plain_data.NONE
    history: tuple[Entry, ...] = ()  # newest entries; older ones in rows of PROCEDURE_STEPS
    spilled: int = 0  # entries that are no longer in `history`
    updated_ms: int = 0
    undone: bool = False  # at least one undo ran: ends as ROLLED_BACK, not FAILED
    waits_for: bool = False  # WAITING for the last round of children
    partial: bool = (
        False  # the current step committed through `again`: it counts for undo though not finished
    )
    pool: str = ""  # of the workers that run its steps; "" = the master
    queue: str = ""  # whose limits it obeys before it begins
    priority: int = 0
    pending: bool = False  # nobody who has its type looked at its arguments and locks yet
    grant: int = (
        0  # its locks' fencing token; 0 = it has not got them, GRANTED_HERE = row's version
    )

    lost: int = 0  # runs of the current step whose process, or its lease, ended under them …
    deaths: int = 0  # … of them those that ended it, as far as is known (core.aside)
    step_due_ms: int = 0  # when the current step's own time is over; 0 = it has none, or not begun
    trying: Trying | None = None  # the current step failed before; what waits for nothing else
    starter: int = 0  # whose step started it (ctx.submit): no parent; 0 = nobody's
    tells: str = ""  # a token of the starter's, which its end completes; "" = none
    bound: bool = False  # it is cancelled when its starter ends
    trace: str = ""  # the span that it belongs to (W3C traceparent); "" = none
    key: str = ""  # of its queue: of one key so many at a time, in order
    needs: Needs = ()  # of the worker that runs it
    bounce_ms: int = 0  # until then its delay may begin anew, if it has not begun; 0 = it may not
    attributes: tuple[tuple[str, object], ...] = ()  # by name (attributes.py)
    back: Back | None = None  # ROLLING_BACK: only so far
    anew: int = 0  # `seq` with which it was forked or went on after its end, and has not begun

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def failed(self) -> int:
        """Attempts of the current step that its retry policy has counted."""
        return 0 if self.trying is None else self.trying.failed

    @property
    def lane(self) -> str:
        """Who can run it; "" = the master's own workers."""
        return lane_of(self.pool, self.name, self.version, self.needs) if self.pool else ""

    @property
    def scheduled_ms(self) -> int:
        """The time for which a schedule started it, however late that was; 0 = none did."""
        when = self.nonce.rpartition("/")[2]
        mine = self.owner == SCHEDULE_OWNER and self.nonce.startswith(SCHEDULED)
        return int(when) if mine and when.isascii() and when.isdigit() and len(when) < 19 else 0

    def settled(self, version: int) -> Record:
        """The same with the fencing token that the version of its row gives away."""
        return replace(self, grant=version) if self.grant == GRANTED_HERE else self


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Record)
_entries: Final = msgspec.msgpack.Decoder(tuple[Entry, ...])


def uses_more(record: Record) -> bool:
    """Whether something of it would be lost by a program that knows the first fields only."""
    first = record.trying is not None or record.starter != 0
    waits = bool(record.key) or bool(record.needs) or record.bounce_ms != 0
    return first or waits or bool(record.attributes) or record.back is not None


def encode(record: Record) -> bytes:
    return _encoder.encode(replace(record, format=FORMAT_MORE) if uses_more(record) else record)


def decode(data: bytes, where: str) -> Record:
    """The record in a row. Raises Corruption naming `where`, also for a later format."""
    try:
        record = _decoder.decode(data)
    except msgspec.MsgspecError as e:
        raise Corruption(f"{where}: unreadable procedure record: {e}") from e
    if record.format == FORMAT:
        return record
    if record.format != FORMAT_MORE:
        raise Corruption(
            f"{where}: procedure record of format {record.format}, this program reads {FORMAT} "
            f"and {FORMAT_MORE}"
        )
    return replace(record, format=FORMAT)


def needed(record: Record) -> Record:
    """As much of it as users' code sees: what comes beside it grows with each step, and may be
    much.
    """
    if not (record.history or record.undo or record.rounds):
        return record
    return replace(record, undo=(), rounds=(), error=None, result=plain_data.NONE, history=())


def encode_entries(entries: tuple[Entry, ...]) -> bytes:
    return _encoder.encode(entries)


def decode_entries(data: bytes, where: str) -> tuple[Entry, ...]:
    try:
        return _entries.decode(data)
    except msgspec.MsgspecError as e:
        raise Corruption(f"{where}: unreadable step history: {e}") from e
