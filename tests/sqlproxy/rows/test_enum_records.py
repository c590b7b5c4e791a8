"""What the catalog stores of enum types."""

from __future__ import annotations

import pytest

from kv.base.errors import Corruption
from sqlproxy.catalog.relations import relation_key
from sqlproxy.rows import records
from sqlproxy.rows.schema import EnumType
from sqlproxy.values import enums
from sqlproxy.values.types import resolve

MOOD = enums.Enum(402_653_203, 7, 3, "Mood", (("a", 1 << 32), ('"b"]', -5), ("", 3)), ("",))


def test_p6_a_type_is_stored_as_it_is() -> None:
    """A label or a position that changes on the way is another value in every row."""
    one = EnumType(120, "shop", MOOD, owner="ann")
    key = relation_key("shop", "Mood")
    value = records.sealed(key, records.encode_type(one))
    row = records.opened(key, value, records.RELATION_FORMATS)
    assert records.decode_type("shop", "Mood", row) == one


def test_p6_a_program_before_types_refuses_their_rows() -> None:
    """It would take the name for a free one, and write something else in its place."""
    key = relation_key("shop", "Mood")
    value = records.sealed(key, records.encode_type(EnumType(120, "shop", MOOD)))
    with pytest.raises(Corruption, match="its format is"):
        records.opened(key, value)


def test_p6_a_column_says_all_of_its_type() -> None:
    """Rows are read without the type's own row."""
    text = enums.text_of(MOOD)
    assert enums.parsed(text) == MOOD
    assert (enums.oid_in(text), enums.shown(text), enums.shown(f"{text}[]")) == (
        MOOD.oid,
        "Mood",
        "Mood[]",
    )
    kind = resolve(text)
    assert (kind.name, kind.base, kind.to_stored('"b"]')) == (text, "enum", -5)
    array = resolve(f"{text}[]")
    assert array.to_stored(["a", None]) == [1 << 32, None]
    assert array.from_stored is not None
    assert array.from_stored([3, None]) == ["", None]
    newer = enums.text_of(enums.renamed(MOOD, "a", "z"))
    assert enums.same_type(text, newer)
    assert not enums.same_type(text, f"{newer}[]")
