"""json_strip_nulls takes members out of a text and keeps the rest as it stands."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sqlproxy.front.functions.f_json import FUNCTIONS

strip = FUNCTIONS["json_strip_nulls"].call
SCALARS = st.sampled_from(
    ["null", "true", "1e2", "-0.0", "1.50", '"null"', '" a, b: c "', '"{[]}"']
)


def members(of: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Objects, with keys that come twice, and arrays."""
    keys = st.sampled_from(['"a"', '"b"', '""', '"{,"'])
    pairs = st.lists(st.tuples(keys, of)).map(lambda all_: ", ".join(f"{k} : {v}" for k, v in all_))
    return pairs.map(lambda text: f"{{ {text} }}") | st.lists(of).map(
        lambda all_: f"[{' ,'.join(all_)}\n]"
    )


def shown(value: Any) -> str:
    """Objects are lists of pairs within a tuple, scalars texts that stay."""
    if isinstance(value, tuple):
        return (
            "{" + ",".join(f"{json.dumps(k)}:{shown(v)}" for k, v in value if v is not None) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(shown, value)) + "]"
    return "null" if value is None else value if isinstance(value, str) else json.dumps(value)


class _Text(str):
    """A number as it is written."""


@given(st.recursive(SCALARS, members, max_leaves=12))
def test_what_stays_is_as_it_was_written(text: str) -> None:
    """Keys were sorted, repeated ones dropped, numbers rewritten, blanks taken out of texts."""

    def quoted(value: Any) -> Any:
        match value:
            case _Text() | None | bool():
                return value
            case str():
                return _Text(json.dumps(value))
            case tuple():
                return tuple((k, quoted(v)) for k, v in value)
        return [quoted(one) for one in value]

    read = json.loads(text, parse_int=_Text, parse_float=_Text, object_pairs_hook=tuple)
    assert strip(text) == shown(quoted(read))


def test_a_deep_one_is_no_internal_error() -> None:
    """Each level was a call, and was looked through once for each level around it."""
    deep = '{"a": ' * 5_000 + "[null, 1.0]" + "}" * 5_000
    assert strip(deep) == '{"a":' * 5_000 + "[null,1.0]" + "}" * 5_000
