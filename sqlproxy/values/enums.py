"""Enum types: what one is, its text in a column's type, and the process's list of them by OID.

    Enum(oid, born, version, name, labels, pending)   labels: (label, position), in their order
    text_of(enum)   `enum [oid, born, version, "name", [["label", position], …], ["pending", …]]`
    parsed(text)    the reverse
    learn(enum), of(oid)    what the process knows of a type: the newest version that it saw

A *position* is what rows and keys store: the n-th label of CREATE TYPE has n · 2³², one that is
added between two has their middle, and a position never changes nor is used again. So the order of
stored values is that of their labels, whatever is added later. In expressions a value is its label,
a plain string; what orders labels is looked up here by the type's OID.

A column's type says all of it (docs/decisions/1076), so rows are read without a look at the type's
own row. A *pending* label is one that ADD VALUE has begun to add: it is read, and not yet taken,
until every process can read it.

The list only grows, and keeps what was: a label that was renamed goes on meaning its position to
who was bound before, unless another label has its name now. Two types of one OID (of two clusters
in one process) are refused. `listen`: who keeps lists of types of his own (pg.oids, front.registry)
learns of each new one. Pure but for that list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

import msgspec

from kv.base.errors import InvalidArgument, Unavailable
from kv.base.limits import ENUM_LABELS_MAX
from sqlproxy.values.errors import INVALID_TEXT, LIMIT_EXCEEDED, SqlError, unsupported

BASE: Final = "enum"  # the base of such types (`sqlproxy.values.types`)
PREFIX: Final = "enum ["
STEP: Final = 1 << 32
LABEL_BYTES_MAX: Final = 63
_OWN: Final = 1 << 28 | 1 << 27  # where OIDs of enums are: after those of rows (pgcatalog.oids)
_ARRAY: Final = 1 << 28  # further on is the type of arrays of them
_MASK: Final = (1 << 27) - 1
_INT8_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Enum:
    """`born`: the timestamp of the transaction that made it; with the OID it is the same type under
    every name and version.
    """

    oid: int
    born: int
    version: int
    name: str
    labels: tuple[tuple[str, int], ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All labels in their order."""
        return tuple(label for label, _ in self.labels)

    @property
    def taken(self) -> tuple[str, ...]:
        """Those that may be written."""
        return tuple(label for label, _ in self.labels if label not in self.pending)


def array_oid(oid: int) -> int:
    return oid + _ARRAY


def first_labels(labels: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """With the positions that CREATE TYPE gives. Raises as `check_label` does."""
    if len(labels) > ENUM_LABELS_MAX:
        raise too_many(len(labels))
    for at, label in enumerate(labels):
        check_label(label)
        if label in labels[:at]:
            raise SqlError(
                "23505",
                'duplicate key value violates unique constraint "pg_enum_typid_label_index"',
                detail=f"The label {label!r} is given twice.",
            )
    return tuple((label, at * STEP) for at, label in enumerate(labels, 1))


def too_many(count: int) -> SqlError:
    return SqlError(
        LIMIT_EXCEEDED, f"an enum type has {count} labels; the limit is {ENUM_LABELS_MAX}"
    )


def check_label(label: str) -> None:
    """Raises SqlError (42602)."""
    if not 0 < len(label.encode()) <= LABEL_BYTES_MAX and label != "":
        raise SqlError(
            "42602",
            f'invalid enum label "{label}"',
            detail=f"Labels must be {LABEL_BYTES_MAX} bytes or less.",
        )


def added(
    labels: tuple[tuple[str, int], ...], label: str, *, before: str = "", after: str = ""
) -> tuple[tuple[str, int], ...]:
    """The labels with one more, at the end or beside another. Raises 54000: no place is left."""
    places = {name: at for at, (name, _) in enumerate(labels)}
    at = len(labels)
    if before or after:
        at = places[before] if before else places[after] + 1
    low = labels[at - 1][1] if at else None
    high = labels[at][1] if at < len(labels) else None
    if low is None and high is None:
        position = STEP
    elif high is None:
        assert low is not None
        position = low + STEP
    elif low is None:
        position = high - STEP
    else:
        position = (low + high) // 2
    if position == low or abs(position) > _INT8_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f'there is no room for another label beside "{before or after}"',
            hint="Make a new type, and change the columns to it with ALTER COLUMN … TYPE … USING.",
        )
    return (*labels[:at], (label, position), *labels[at:])


def chosen_oid(name: str, seed: str, used: set[int]) -> int:
    """An OID that is free in the cluster, and in other clusters' processes in all likelihood."""
    salt = 0
    while (oid := _OWN | crc32(f"{seed}.{name}.{salt}".encode()) & _MASK) in used:
        salt += 1
    return oid


# -- as the text of a column's type

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(
    tuple[int, int, int, str, tuple[tuple[str, int], ...], tuple[str, ...]]
).decode


def text_of(enum: Enum) -> str:
    row = [enum.oid, enum.born, enum.version, enum.name, enum.labels, enum.pending]
    return f"{BASE} {_encode(row).decode()}"


def parsed(text: str) -> Enum:
    """From `text_of`. Raises InvalidArgument."""
    try:
        return Enum(*_decode(text.removeprefix(f"{BASE} ")))
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"the type {text[:80]!r} is no enum: {error}") from error


def oid_in(text: str) -> int:
    """The OID of an enum (or of arrays of one) in a column's type; 0: it is another type."""
    if not text.startswith(PREFIX):
        return 0
    return int(text[len(PREFIX) : text.index(",")])


def shown(text: str) -> str:
    """A column's type in messages."""
    if not text.startswith(PREFIX):
        return text
    return parsed(text.removesuffix("[]")).name + ("[]" if text.endswith("[]") else "")


def same_type(one: str, other: str) -> bool:
    """Whether two types of columns are one, whatever its version."""
    if one == other:
        return True
    oid = oid_in(one)
    return bool(oid) and oid == oid_in(other) and one.endswith("[]") == other.endswith("[]")


# -- the process's list


class Unfit(SqlError, ValueError):
    """A text that is no label of the type: 22P02 in PostgreSQL's words. Where the type is, and
    whether that must be said, knows who has the catalog (`say`).
    """

    def __init__(self, enum: Enum, text: str) -> None:
        super().__init__(INVALID_TEXT, "")
        self.enum, self.text = enum, text
        self.say("")

    def say(self, schema: str) -> None:
        """`schema`: of the type, if its name alone means another one or none."""
        name = quoted(self.enum.name)
        shown = f"{quoted(schema)}.{name}" if schema else name
        self.message = f'invalid input value for enum {shown}: "{self.text}"'
        self.args = (self.message,)


class Known:
    """The newest version of a type, and what its labels and positions mean."""

    __slots__ = ("enum", "labels", "positions", "taken")

    def __init__(self, enum: Enum) -> None:
        self.positions: dict[str, int] = {}
        self.labels: dict[int, str] = {}
        self.take(enum)

    def take(self, enum: Enum) -> None:
        self.enum = enum
        self.positions.update(enum.labels)
        self.labels.update((position, label) for label, position in enum.labels)
        self.taken = frozenset(enum.taken)

    def position(self, label: str) -> int:
        """What sorts as the label does."""
        return self.positions[label]

    def read(self, text: str) -> str:
        """The label, checked: a value of the type from its text. Raises SqlError (22P02)."""
        if text not in self.taken:
            raise Unfit(self.enum, text)
        return text


_known: dict[int, Known] = {}
_listeners: list[Callable[[Enum], None]] = []


def quoted(name: str) -> str:
    """As an identifier, as PostgreSQL shows a type's name."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain and name == name.lower() else '"' + name.replace('"', '""') + '"'


def learn(enum: Enum) -> None:
    """This process has seen a version of a type. Raises SqlError (0A000): another type has its OID
    here.
    """
    known = _known.get(enum.oid)
    if known is None:
        _known[enum.oid] = Known(enum)
        for listener in _listeners:
            listener(enum)
    elif known.enum.born != enum.born:
        raise unsupported(
            f"the type {enum.name} beside another cluster's type {known.enum.name} of the same OID",
            hint="Use one process for each of the two clusters.",
        )
    elif known.enum.version < enum.version:
        renamed = known.enum.name != enum.name
        known.take(enum)
        for listener in _listeners if renamed else ():
            listener(enum)


def listen(listener: Callable[[Enum], None]) -> None:
    """Be called for every type that is known, and of what will be."""
    _listeners.append(listener)
    for known in _known.values():
        listener(known.enum)


def of(oid: int) -> Known | None:
    """None: no enum has this OID."""
    return _known.get(oid)


def is_enum(oid: int) -> bool:
    return oid in _known


# -- rows


def to_position(enum: Enum) -> Callable[[object], int]:
    """From a label to what a row stores. Pending ones, too: a value that was read somewhere may be
    written again. Who takes labels from users asks `taken`. Raises SqlError (22P02), ValueError.
    """
    positions: Mapping[str, int] = dict(enum.labels)

    def stored(value: object) -> int:
        if type(value) is not str:
            raise ValueError(f"expected a label of {enum.name}, got {value!r:.80}")
        found = positions.get(value)
        if found is None:
            raise Unfit(enum, value)
        return found

    return stored


def to_taken(enum: Enum) -> Callable[[str], str]:
    """The same label, if users may write it. Raises SqlError (22P02)."""
    taken = frozenset(enum.taken)

    def checked(label: str) -> str:
        if label not in taken:
            raise Unfit(enum, label)
        return label

    return checked


def to_label(enum: Enum) -> Callable[[int], str]:
    """From what a row stores to the label. Raises Unavailable: a position that this version of the
    type does not have; who remembers a table without SQL may be late for a moment.
    """
    labels = {position: label for label, position in enum.labels}

    def label(position: int) -> str:
        found = labels.get(position)
        if found is None:
            raise Unavailable(
                f"the type {enum.name} has no label at {position!r} in the version that is "
                f"remembered here ({enum.version}); read it again in some seconds",
                details={"type": enum.name, "position": position},
            )
        return found

    return label


def renamed(enum: Enum, old: str, new: str) -> Enum:
    """With another label at the same position."""
    labels = tuple((new if label == old else label, at) for label, at in enum.labels)
    return replace(enum, labels=labels, version=enum.version + 1)
