"""What master and workers send each other, as msgpack arrays.

Each side keeps what it said until the other has seen it:
- a worker's reports go with one number (`seq`) per message; the master takes each number once;
- the master's orders are numbered one by one; a worker says up to which it has `seen` them, and
  asks for the others `again` when an answer may be lost.

New fields go to the end with a default: master and workers may be of different versions.
"""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from kv.base.errors import InvalidArgument
from kv.base.wire_row import WireRow
from procedures.engine.deploys import Deploy
from procedures.engine.needs import Needs
from procedures.engine.records import Failure

T = TypeVar("T")


class StepText(msgspec.Struct, frozen=True, array_like=True):
    name: str
    undo: str = ""
    point_of_no_return: bool = False
    undo_partial: bool = False
    deadline_ms: int = 0


class Description(msgspec.Struct, frozen=True, array_like=True):
    """A declaration, as far as it is known without its code. `locks` None: a function of it."""

    name: str
    version: int
    pool: str
    first: str
    steps: tuple[StepText, ...]
    undos: tuple[str, ...]
    locks: tuple[tuple[str, str], ...] | None
    timeout_ms: int
    retention_ms: int
    accepts: tuple[int, ...] = ()
    queue: str = ""
    priority: int = 0
    max_concurrent: int = 0
    rate_per_s: float = 0.0
    typed: bool = False  # only who has the code knows whether arguments fit
    origin: str = ""
    bypass: str = ""  # why it cannot be bypassed
    validators: tuple[str, ...] = ()  # updates that it looks at first
    key: str = ""  # field of the arguments that is its key
    needs: Needs = ()  # of a worker
    pinned: bool = False
    since_ms: int = 0  # when it was declared: the master says that
    replaying: bool = False  # its code says whether it fits a record
    attributes: tuple[tuple[str, str], ...] = ()  # name, kind
    user: str = ""  # whose worker was the first to declare it: the master says that


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A worker comes, or comes back: who it is, what it runs, and what it holds already."""

    pool: str
    slots: int
    types: tuple[Description, ...]
    held: tuple[tuple[int, int], ...] = ()  # (procedure, version of its record)
    host: str = ""
    pid: int = 0
    operations: tuple[str, ...] = ()  # of the bus, that it carries out (procedures/bus/workers.py)
    user: str = ""  # who it came as: the master says that, whatever the worker does
    format: int = 1  # of the records that it keeps all of
    capacity: Needs = ()  # what it has


# ---------------------------------------------------------------------- the master's orders
class Run(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Have a turn with it. Without `record` the worker reads it; a turn must not go on from an
    older `version` than the one given.
    """

    number: int
    id: int
    version: int
    record: bytes
    wake: str = ""
    tries: int = 0
    doomed: bool = False  # its parent failed: so does it
    alive: int = 0  # procedures that have not ended, for the limit on children
    doom: str = ""  # why its parent failed


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Give it back when the step under way has ended."""

    number: int
    id: int


class Look(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Say whether these arguments fit, and what locks they want; or what a query of a record
    gives.
    """

    number: int
    question: int
    name: str
    version: int
    args: bytes
    query: str = ""
    record: bytes = b""


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """It is not yours any more."""

    number: int
    id: int


class Types(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Types that are new: [Description, …], encoded; and which versions new ones begin with."""

    number: int
    types: bytes
    deploys: dict[str, Deploy] = {}


Order: TypeAlias = Run | Recall | Look | Drop | Types


def numbered(order: Order, number: int) -> Order:
    return replace(order, number=number)


# ---------------------------------------------------------------------- a worker's reports
class Turned(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A turn is over: where the record stands. `record` b"": it did not move, or the worker does
    not know (`lost`): the master reads it.
    """

    id: int
    version: int
    record: bytes
    created: tuple[tuple[int, bytes], ...] = ()  # children and revived ones: version, record
    events: tuple[str, ...] = ()  # signalled by its steps
    commits: int = 0
    retry: Failure | None = None  # its step is to run again, after a pause of at most
    retry_ms_max: int = 0
    parked: str = ""
    lost: bool = False
    wake: str = ""  # what it waits for since its last step is there already


class Looked(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer to a Look. `error` None: they fit, and these are the locks."""

    question: int
    error: WireRow | None
    locks: tuple[tuple[str, str], ...] = ()
    args: bytes = b""  # as the type reads them; b"" = it has no type. Or the query's answer


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=3):
    id: int
    part: float
    text: str = ""


class Slow(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Its step runs longer than its deadline (since ms ago), or does not (0): said again when
    another step is under way, for who waits for what the one before has told.
    """

    id: int
    step: str
    since_ms: int


Report: TypeAlias = Turned | Looked | Progress | Slow

_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(list[Order])
_reports: Final = msgspec.msgpack.Decoder(list[Report])
_entry: Final = msgspec.msgpack.Decoder(Entry)
_description: Final = msgspec.msgpack.Decoder(Description)
_deploy: Final = msgspec.msgpack.Decoder(Deploy)
_descriptions: Final = msgspec.msgpack.Decoder(list[Description])

encode: Final = _encoder.encode


def orders(data: bytes) -> list[Order]:
    """Raises InvalidArgument, as all of these."""
    return _decoded(_orders, data, "orders")


def reports(data: bytes) -> list[Report]:
    return _decoded(_reports, data, "reports")


def entry(data: bytes) -> Entry:
    return _decoded(_entry, data, "a worker's registration")


def description(data: bytes) -> Description:
    return _decoded(_description, data, "a description")


def deploy(data: bytes) -> Deploy:
    return _decoded(_deploy, data, "versions of a type")


def descriptions(data: bytes) -> list[Description]:
    return _decoded(_descriptions, data, "descriptions")


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"{what} cannot be read: {error}") from None
