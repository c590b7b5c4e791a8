"""C3: the order of the key bytes is the order of the values."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlproxy.rows import keys
from sqlproxy.values import arrays
from sqlproxy.values.interval import Interval
from sqlproxy.values.types import resolve

ints = st.integers(-(1 << 63), (1 << 63) - 1)
decimals = st.decimals(allow_nan=True, allow_infinity=True, places=None).filter(
    lambda d: not d.is_snan() and (not d.is_finite() or abs(d.adjusted()) < 16_000)
)
near = st.one_of(decimals, st.decimals(-2, 2, places=3), st.integers(-300, 300).map(Decimal))
# Each type with values of the stored form; text and bytes full of zeros and of shared prefixes.
letters = st.text(st.sampled_from("\x00\x01ab\xff\uffff\U0010ffff"), max_size=5)
STORED: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int2": st.integers(-(1 << 15), (1 << 15) - 1),
    "int4": st.integers(-(1 << 31), (1 << 31) - 1),
    "int8": ints,
    "enum": ints,
    "float4": st.floats(width=32),
    "float8": st.floats(),
    "numeric": near.map(str),
    "text": st.one_of(letters, st.text(max_size=20)),
    "bytea": st.one_of(st.binary(max_size=20), letters.map(str.encode)),
    "uuid": st.binary(min_size=16, max_size=16),
    "date": st.integers(-719_162, 2_932_896),
    "time": st.integers(0, 86_400_000_000 - 1),
    "timestamp": ints,
    "timestamptz": ints,
}
# What orders the values: text by its code points, numbers by value with NaN last.


def rank(base: str, value: Any) -> Any:
    """A value whose order is the defined one: NULL last, NaN after infinity, −0 equal to 0."""
    if value is None:
        return (1,)
    if base == "numeric":
        value = Decimal(value)
        return (0, 1, 0) if value.is_nan() else (0, 0, value)
    if base in ("float4", "float8"):
        return (0, 1, 0) if math.isnan(value) else (0, 0, value + 0.0)
    return (0, 0, value)


def order(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


@pytest.mark.few(2)
@pytest.mark.parametrize("base", STORED)
@given(data=st.data())
def test_c3_order_of_one_component(base: str, data: st.DataObject) -> None:
    """A key out of order would be skipped by range reads, and uniqueness would fail."""
    values = st.one_of(STORED[base], st.none())
    a, b = data.draw(values), data.draw(values)
    encoded = [keys.encode([base], [value]) for value in (a, b)]
    assert order(*encoded) == order(rank(base, a), rank(base, b))


@pytest.mark.slow
@given(data=st.data())
def test_c3_order_of_composites(data: st.DataObject) -> None:
    """A component that is a prefix of another one would let the next column decide the order."""
    bases = data.draw(st.lists(st.sampled_from(sorted(STORED)), min_size=1, max_size=4))

    def draw() -> list[Any]:
        return [data.draw(st.one_of(st.none(), STORED[base])) for base in bases]

    a = draw()
    same = data.draw(st.integers(0, len(bases)))
    b = a[:same] + draw()[same:]  # shared beginnings, so that later components matter
    encoded = [keys.encode(bases, values) for values in (a, b)]
    ranks = [[rank(base, v) for base, v in zip(bases, vs, strict=True)] for vs in (a, b)]
    assert order(*encoded) == order(*ranks)


@pytest.mark.few(4)
@pytest.mark.parametrize("base", STORED)
@given(data=st.data())
def test_c3_components_decode(base: str, data: st.DataObject) -> None:
    """A key must tell its columns apart again, whatever follows the component."""
    value, rest = data.draw(STORED[base]), data.draw(st.binary(max_size=5))
    encoded = keys.encoder(base)(value)
    assert encoded[0] == keys.TAG[base]
    decoded, end = keys.decoder(base)(encoded + rest, 1)
    assert end == len(encoded)
    assert rank(base, decoded) == rank(base, value)


def ascending(base: str, values: Sequence[Any]) -> None:
    encoded = [keys.encode([base], [value]) for value in values]
    assert encoded == sorted(encoded)
    assert len(set(encoded)) == len(values)


def test_c3_edges_are_where_they_belong() -> None:
    """The corner cases by name, so that a failure says which."""
    inf = math.inf
    ascending("float8", [-inf, -1e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1e308, inf, math.nan, None])
    ascending("int8", [-(1 << 63), -1, 0, 1, (1 << 63) - 1, None])
    text = [
        "",
        "\x00",
        "\x00\x00",
        "\x00a",
        "\x01",
        "a",
        "a\x00",
        "a\x00b",
        "aa",
        "é",
        "\uffff",
        "😀",
    ]
    ascending("text", [*text, None])
    ascending("bytea", [b"", b"\x00", b"\x00\xff", b"\x01", b"\xff", b"\xff\xff", None])
    numbers = (
        "-Infinity -1e100 -12.5 -12.499 -12 -0.1 -1e-100 0 1e-100 0.099 0.1 0.11 1 9.99 10 99 100"
    )
    ascending("numeric", [*numbers.split(), "1e100", "Infinity", "NaN", None])
    ascending("bool", [False, True, None])
    ascending("date", [-719_162, -1, 0, 1, None])
    encode = keys.encoder("float8")
    assert encode(-0.0) == encode(0.0)
    assert encode(math.nan) == encode(-math.nan)
    assert keys.encoder("numeric")("1.50") == keys.encoder("numeric")("1.5")
    assert keys.encoder("numeric")("-0") == keys.encoder("numeric")("0.000")
    assert keys.encoder("int2")(7) == keys.encoder("int8")(7), "a widened column keeps its keys"


def test_c3_json_has_no_order() -> None:
    """A type without an order must not silently get one."""
    assert resolve("json").base not in keys.TAG
    with pytest.raises(KeyError):
        keys.encoder("json")


# What Python's own order of an array is: elements with NULL last, then the length, then the shape.
def array_rank(value: list[Any]) -> Any:
    flat = arrays.flat(value)
    return [(one is None, one or 0) for one in flat], len(arrays.shape(value)), arrays.shape(value)


@given(data=st.data())
def test_c3_arrays_and_intervals_are_in_postgresql_s_order(data: st.DataObject) -> None:
    """An index over them would skip what lies out of order; equal ones must have one key."""
    element = st.none() | st.integers(-2, 2)
    flat = st.lists(element, max_size=4)
    square = st.lists(st.lists(element, min_size=2, max_size=2), min_size=1, max_size=2)
    numbers = resolve("int4[]")
    a, b = data.draw(flat | square), data.draw(flat | square)
    encoded = [keys.encoder_of(numbers)(numbers.to_stored(value)) for value in (a, b)]
    assert order(*encoded) == order(array_rank(a), array_rank(b))
    assert keys.decoder_of(numbers)(encoded[0] + b"x", 1) == (a, len(encoded[0]))
    kind = resolve("interval")
    small = st.integers(-40, 40)
    extreme = st.sampled_from([-(1 << 31), (1 << 31) - 1])
    drawn = st.builds(Interval, small | extreme, small | extreme, st.integers(-(10**12), 10**12))
    x, y = data.draw(drawn), data.draw(drawn)
    encoded = [keys.encoder_of(kind)(kind.to_stored(value)) for value in (x, y)]
    assert order(*encoded) == order(x, y)
    stored, _ = keys.decoder_of(kind)(encoded[0], 1)
    assert kind.from_stored is not None
    assert kind.from_stored(stored) == x


def _value(kind: str, text: str) -> Any:
    """A value as the page writes it."""
    base = resolve(kind).base
    match base:
        case "array" | "text" | "varchar" | "char" | "name" | "enum":
            return ast.literal_eval(text.replace("NULL", "None"))
        case "bool":
            return text == "true"
        case "float8":
            return float(text)
        case "numeric":
            return Decimal(text)
        case "bytea":
            return bytes.fromhex(text)
        case "uuid":
            return text
        case "date":
            return date.fromisoformat(text)
        case "time":
            return time.fromisoformat(text)
        case "timestamp" | "timestamptz":
            return datetime.fromisoformat(text)
        case "interval":
            return Interval(*map(int, text.split()))
        case _:
            return int(text)


def test_p6_the_page_s_examples_are_true() -> None:
    """Who writes a reader from docs/reference/sql-storage.md must read what is there."""
    page = (Path(__file__).parents[3] / "docs/reference/sql-storage.md").read_text()
    block = page.split("### Examples")[1].split("```")[1]
    lines = [re.split(r" {2,}", line.strip()) for line in block.strip().splitlines()]
    assert {resolve(kind).base for kind, *_ in lines} >= set(keys.TAG) - {"int2", "float4"}
    for kind, text, way, wanted in lines:
        type_ = resolve(kind)
        down = way.startswith("desc")
        first = way.endswith("first") or (down and not way.endswith("last"))
        encode = keys.component(type_, descending=down, nulls_first=first)
        decode = keys.component_out(type_, descending=down, nulls_first=first)
        stored = None if text == "NULL" else type_.to_stored(_value(kind, text))
        assert encode(stored).hex() == wanted, (kind, text)
        again, end = decode(encode(stored) + b"\x01", 0)
        assert end == len(encode(stored))
        assert encode(again) == encode(stored)
