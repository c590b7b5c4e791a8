"""Numbers of more digits than Python reads (4,300) where a text may be a number."""

from __future__ import annotations

from collections.abc import Callable

from kv.base.errors import InvalidArgument
from kvorum.http.wire.fields import snapshot
from kvorum.sdk.tables import snapshot_at
from procedures.pools.inbox import owner_of
from sqlproxy.front.functions.regclass import Relations
from sqlproxy.pg import oids, text
from sqlproxy.session.running.as_of import timestamp_of
from sqlproxy.session.state.settings import Settings
from sqlproxy.values.errors import SqlError
from tests.kit.each import each

DIGITS = "9" * 5_000
RELATIONS = Relations("shop", [("public", "orders", 16_384)])


READERS: dict[str, Callable[[str], object]] = {
    "a moment over HTTP": lambda said: snapshot(said, "at"),
    "a moment of the SDK": snapshot_at,
    "AS OF": lambda said: timestamp_of(said, 0),
    "a token of a step": lambda said: owner_of(f"ext-a-{said}-1"),
    "a causal token": lambda said: Settings({}).set("kvorum.causal_token", said),
    "regclass": RELATIONS.find,
    "regclass of a parameter": RELATIONS.oid,
    "regclass of a client": text.reader(oids.REGCLASS),
    "oid": text.reader(oids.OID),
    "integer": text.reader(oids.INT4),
}


@each("name", READERS)
def test_a_number_of_any_length_is_refused_in_words(name: str) -> None:
    """int() raises ValueError above 4,300 digits: a bug of ours to whoever sent them."""
    for digits in (DIGITS, "9" * 21, "0" * 5_000):
        try:
            READERS[name](digits)
        except (SqlError, InvalidArgument):
            continue
        assert digits[0] == "0", name
