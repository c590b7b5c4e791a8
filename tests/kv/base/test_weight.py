"""kv.base.decode_cost: what a message weighs, whatever its texts look like."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv.base import decode_cost
from kv.base.errors import TooLarge
from kv.base.limits import CONTAINER_WEIGHT, MESSAGE_WEIGHT_MAX
from kv.base.rpc import FrameDecoder, FrameEncoder

TEXTS = st.text('ab",:[]{}\\\n', max_size=40)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
HEAVY = MESSAGE_WEIGHT_MAX // CONTAINER_WEIGHT + 1


def weight_of(value: Any) -> int:
    """By looking at it: commas and brackets that stand in no text."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return CONTAINER_WEIGHT + max(0, len(value) - 1) + sum(map(weight_of, inner))


@given(PLAIN, st.sampled_from([8, 10, 64, 1 << 16]))
def test_json_weighs_what_stands_outside_of_its_texts(value: Any, window: int) -> None:
    """A text full of commas would be refused, or a heavy body cut at a bad place be taken."""
    body, exact = json.dumps(value).encode(), weight_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode_cost, "_WINDOW_BYTES", window)
        patch.setattr(decode_cost, "MESSAGE_WEIGHT_MAX", exact)
        assert None in [*decode_cost.exact_weight(body)]
        patch.setattr(decode_cost, "MESSAGE_WEIGHT_MAX", exact - 1)
        if exact:
            with pytest.raises(TooLarge):
                all(step is None for step in decode_cost.weigh_json(body))


def test_a_text_with_quotes_is_read_once() -> None:
    """A text that is cut at every escaped quote would cost the square of its length."""
    body = json.dumps(['{"a":[1,2,3]},' * 100_000]).encode()
    assert sum(1 for _ in decode_cost.weigh_json(body)) < 4 * len(body) / 65_536 + 4


@pytest.mark.parametrize(
    "heavy", [[[]] * HEAVY, [{}] * HEAVY, [[0] * 60_000] * (MESSAGE_WEIGHT_MAX // 60_000 + 1)]
)
def test_heavy_messages_are_refused_by_their_limit(heavy: Any) -> None:
    """Millions of tiny values stop a node's loop for seconds."""
    inner = [heavy[at : at + 60_000] for at in range(0, len(heavy), 60_000)]
    packed = msgpack.packb(inner)
    with pytest.raises(TooLarge) as found:
        decode_cost.weigh_packed(packed)
    assert found.value.details["limit"] == MESSAGE_WEIGHT_MAX
    with pytest.raises(TooLarge):
        all(step is None for step in decode_cost.weigh_json(json.dumps(inner).encode()))
    decoder = FrameDecoder(weighed=True)
    decoder.push(FrameEncoder().message([[1, 1, 0, inner]]))
    with pytest.raises(TooLarge):
        decoder.pull()
    trusted = FrameDecoder()
    trusted.push(FrameEncoder().message([[1, 1, 0, inner]]))
    assert trusted.pull() == [[1, 1, 0, inner]]


def test_packed_rows_may_be_many() -> None:
    """A chunk of a bulk load has more values than a message may, in few lists."""
    rows = [b"k"] * (MESSAGE_WEIGHT_MAX + 1)
    assert decode_cost.unpack_rows(msgpack.packb([rows, rows])) == [rows, rows]
    with pytest.raises(TooLarge):
        decode_cost.unpack_rows(msgpack.packb([[]] * HEAVY))
