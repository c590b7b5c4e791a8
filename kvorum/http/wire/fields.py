"""What bodies of the hot routes may hold, one table each, which both checks them and writes the
OpenAPI schema; and the kinds of values that all routes take.

A body is a JSON object or a msgpack map. Keys and values travel as text or, for other bytes, as
`{"b64": "…"}` (msgpack has bytes and may use them); versions and timestamps as decimal strings.
Unknown fields are refused: a misspelt condition that is silently ignored would write what it should
not.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kv.base import limits, timestamps
from kv.base.adapters import ago
from kv.base.errors import InvalidArgument, TooLarge
from kvorum.api.model import LOCK_STRENGTHS, LOCK_WAITS

Schema = dict[str, object]
Convert = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of field: its check and conversion, and its JSON schema."""

    convert: Convert
    schema: Schema


class Field(NamedTuple):
    """One field of a body."""

    name: str
    kind: Kind
    doc: str
    required: bool = True


Fields = tuple[Field, ...]


def wrong(where: str, expected: str, value: object) -> InvalidArgument:
    """The one shape of a wrong type or value."""
    shown = repr(value)
    return InvalidArgument(
        f"{where} must be {expected}, got {shown if len(shown) <= 60 else shown[:57] + '…'}"
    )


def _data(value: object, where: str) -> bytes:
    if type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise wrong(where, "valid text", value) from None
    if type(value) is bytes:
        return value
    if type(value) is dict and value.keys() == {"b64"} and type(value["b64"]) is str:
        return from_b64(value["b64"], where)
    raise wrong(where, 'text or {"b64": "…"}', value)


def from_b64(text: str, where: str) -> bytes:
    """The bytes of base64 or base64url, padded or not. Raises InvalidArgument."""
    try:
        plain = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise wrong(where, "base64", text) from None


def _text(value: object, where: str) -> str:
    if type(value) is not str:
        raise wrong(where, "text", value)
    return value


def _version(value: object, where: str) -> int:
    if type(value) is str:
        try:
            return timestamps.parse(value, where)
        except ValueError as e:
            raise InvalidArgument(str(e)) from None
    raise wrong(where, "a decimal string", value)


def snapshot(value: object, where: str) -> int:
    """A timestamp, that of so long ago (-10s), or of a time. Raises InvalidArgument."""
    if isinstance(value, str) and value.startswith("-"):
        try:
            at = ago(value)
        except ValueError as e:
            raise InvalidArgument(f"{where}: {e}") from None
    elif isinstance(value, str) and not value.isdigit():
        at = timestamps.of_time(value)
    else:
        at = _version(value, where)
    if not at:
        what = "a timestamp or a version, how long ago (-10s), or a time (2026-01-31T12:00Z)"
        raise wrong(where, what, value)
    return at


def _bool(value: object, where: str) -> bool:
    if type(value) is not bool:
        raise wrong(where, "true or false", value)
    return value


def integer(low: int, high: int) -> Kind:
    """A whole number between the two, inclusive."""

    def convert(value: object, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise wrong(where, f"a whole number from {low} to {high}", value)
        return value

    return Kind(convert, {"type": "integer", "minimum": low, "maximum": high})


def one_of(*names: str) -> Kind:
    """One of these words."""

    def convert(value: object, where: str) -> str:
        if value not in names or type(value) is not str:
            raise wrong(where, " or ".join(names), value)
        return value

    return Kind(convert, {"type": "string", "enum": list(names)})


def array(item: Kind, most: int) -> Kind:
    """A list of at most `most` items of one kind."""

    def convert(value: object, where: str) -> list[Any]:
        if type(value) is not list:
            raise wrong(where, "a list", value)
        if len(value) > most:
            raise TooLarge(
                f"{where} has {len(value)} items, the limit is {most}; use several requests",
                details={"what": f"{where} items", "limit": most, "actual": len(value)},
            )
        return [item.convert(one, f"{where}[{i}]") for i, one in enumerate(value)]

    return Kind(convert, {"type": "array", "items": item.schema, "maxItems": most})


def record(fields: Fields) -> Kind:
    """An object of these fields, as a dict."""

    def convert(value: object, where: str) -> dict[str, object]:
        return read(fields, value, where)

    return Kind(convert, object_schema(fields))


def read(fields: Fields, body: object, where: str = "the body") -> dict[str, Any]:
    """The fields of a body, converted; an optional one that is missing or null is left out.

    Raises InvalidArgument naming the field: missing, unknown, or of a wrong type.
    """
    if not isinstance(body, Mapping):
        raise wrong(where, "an object", body)
    found: dict[str, object] = {}
    nulls = 0
    for name, kind, _, required in fields:
        value = body.get(name)
        if value is not None:
            found[name] = kind.convert(value, name if where == "the body" else f"{where}.{name}")
        elif required:
            raise InvalidArgument(f"{where} lacks the field {name!r}")
        elif name in body:
            nulls += 1
    if len(found) + nulls != len(body):
        known = {f.name for f in fields}
        unknown = next(str(name) for name in body if name not in known)
        raise InvalidArgument(
            f"{where} has an unknown field {unknown[:60]!r}; known are {', '.join(sorted(known))}"
        )
    return found


def object_schema(fields: Sequence[Field]) -> Schema:
    """The JSON schema of an object of these fields."""
    schema: Schema = {
        "type": "object",
        "properties": {f.name: {**f.kind.schema, "description": f.doc} for f in fields},
        "additionalProperties": False,
    }
    required = [f.name for f in fields if f.required]
    return {**schema, "required": required} if required else schema


_DATA_SCHEMA: Schema = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"b64": {"type": "string"}}, "required": ["b64"]},
    ]
}
DATA = Kind(_data, _DATA_SCHEMA)
TEXT = Kind(_text, {"type": "string"})
VERSION = Kind(_version, {"type": "string", "pattern": "^[0-9]+$"})
SNAPSHOT = Kind(snapshot, {"type": "string", "pattern": "^([0-9]+|-[0-9.]+(ms|s|m|min|h|d))$"})
BOOL = Kind(_bool, {"type": "boolean"})


def _numbers(value: object, where: str) -> dict[str, int]:
    if not isinstance(value, Mapping) or not value:
        raise wrong(where, "an object of whole numbers by name", value)
    for name, number in value.items():
        if type(name) is not str or type(number) is not int:
            raise wrong(where, "an object of whole numbers by name", value)
    return dict(value)


NUMBERS = Kind(_numbers, {"type": "object", "additionalProperties": {"type": "integer"}})

# -- the fields of bodies (docs/reference/http.md)
_NS = Field("ns", TEXT, "Namespace.")
_TABLE = Field("table", TEXT, "Table.")
_KEY = Field("key", DATA, f"Key, 1 to {limits.KEY_BYTES_MAX} bytes.")
_VALUE = Field("value", DATA, f"Value, at most {limits.VALUE_BYTES_MAX} bytes.")
AT = Field("at", SNAPSHOT, "Read the snapshot of this timestamp, or of so long ago: -10s.", False)

KEY: Fields = (_NS, _TABLE, _KEY)
_IF_ABSENT = Field("if_absent", BOOL, "Only if the key does not exist (put).", False)
_IF_VERSION = Field("if_version", VERSION, "Only if this is its version now.", False)
_TTL = Field("ttl_ms", integer(1, limits.TTL_MS_MAX), "Milliseconds to live (put).", False)
TXN_PUT: Fields = (_NS, _TABLE, _KEY, _VALUE, _IF_ABSENT, _IF_VERSION, _TTL)
TXN_DELETE: Fields = (_NS, _TABLE, _KEY, _IF_VERSION)
FENCE: Fields = (
    Field("resource", TEXT, "What is locked."),
    Field("token", VERSION, "The fencing token of the lock."),
)
OP: Fields = (
    Field("op", one_of("put", "delete"), "What to do."),
    _NS,
    _TABLE,
    _KEY,
    Field("value", DATA, "Value of a put.", False),
    _IF_ABSENT,
    _IF_VERSION,
    _TTL,
    Field("fence", record(FENCE), "Refused once this lock has ended.", False),
)
OPS: Fields = (
    Field("ops", array(record(OP), limits.BATCH_OPS_MAX), "Puts and deletes, in any tables."),
)
_KEYS = Field("keys", array(record(KEY), limits.MULTI_KEYS_MAX), "Keys, in any tables.")
MULTI_GET: Fields = (_KEYS, AT)
TXN_MULTI_GET: Fields = (_KEYS,)  # at the transaction's snapshot
TXN_LOCK: Fields = (
    *KEY,
    Field(
        "wait",
        one_of(*LOCK_WAITS),
        "Where somebody else has it: wait, as long as `lock_wait_ms` says, if left out; nowait: "
        "409 `KEY_LOCKED` at once; skip: nothing is locked, and answered.",
        False,
    ),
    Field(
        "strength",
        one_of(*LOCK_STRENGTHS),
        "As SQL's FOR …; `update` if left out. `share` goes beside both shares, `key share` also "
        "beside `no key update`.",
        False,
    ),
)
BEGIN: Fields = (
    Field(
        "ttl_ms",
        integer(1, limits.TXN_TTL_MS_MAX),
        f"Silence after which the transaction is rolled back; {limits.TXN_TTL_MS_DEFAULT}.",
        False,
    ),
    Field(
        "isolation",
        one_of("snapshot", "serializable", "read_committed"),
        "snapshot if left out; serializable: what was read still holds at the commit; "
        "read_committed: each read sees what is committed by then, and so does a lock.",
        False,
    ),
    Field("owner", TEXT, "Who runs it: shown to those who wait for it.", False),
    Field(
        "priority",
        one_of("low", "normal", "high"),
        "Its place where several wait for a key, and who is given up in a deadlock; normal.",
        False,
    ),
    Field(
        "lock_wait_ms",
        integer(0, limits.DEADLINE_MS_MAX),
        "How long the commit waits for other transactions: 0 = not at all (`KEY_LOCKED` at once); "
        "if left out, nearly until its deadline.",
        False,
    ),
)
SCAN: Fields = (
    _NS,
    _TABLE,
    Field("prefix", DATA, "Only keys that begin with this.", False),
    Field("start", DATA, "First key, inclusive.", False),
    Field("end", DATA, "Last key, exclusive.", False),
    Field("reverse", BOOL, "From the end.", False),
    Field("limit", integer(1, limits.SCAN_ROWS_MAX), "Rows at most; 1000.", False),
    Field("cursor", TEXT, "Go on where the page with this cursor ended.", False),
)
NOTHING: Fields = ()
