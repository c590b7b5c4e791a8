"""`value op ANY|ALL (array)` where many rows meet the same array: what the answer needs of it is
found once, so that a row costs one look-up or one comparison whatever the array's length.

    = ANY, <> ALL          a set
    <> ANY, = ALL          whether there is anything but the value: two of them are enough
    < ANY, > ALL, …        the largest or the smallest

NULL: an element that is NULL makes the answer unknown if no other element decides it; a value that
is NULL makes it unknown if there is any element. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlproxy.front.comparing import PLAIN

Key = Callable[[Any], Any]
Answer = Callable[[Any], bool | None]


def no_answer(value: Any) -> None:
    """Of an array that is NULL."""
    return


def answering(operator: str, every: bool, key: Key | None, elements: Sequence[Any]) -> Answer:
    """What answers for each value. `elements`: of the array, in one dimension; `key`: what
    compares, and hashes, as the values (`comparing.common_key`; None: the values themselves).
    """
    there = [one for one in elements if one is not None]
    keys = there if key is None else list(map(key, there))
    unknown = None if len(there) < len(elements) else every
    of_null = None if elements else every
    if operator in ("=", "<>"):
        decides = _deciding(keys, (operator == "=") is every)
    else:
        decides = _bound(operator, every, keys)

    def answer(value: Any) -> bool | None:
        if value is None:
            return of_null
        return (not every) if decides(value if key is None else key(value)) else unknown

    return answer


def _deciding(keys: Sequence[Any], others: bool) -> Callable[[Any], bool]:
    """Whether an element equals the value; `others`: whether one does not."""
    known = frozenset(keys)
    if not others:
        return known.__contains__
    if len(known) == 1:
        (only,) = known
        return lambda value: bool(value != only)
    several = bool(known)
    return lambda value: several


def _bound(operator: str, every: bool, keys: Sequence[Any]) -> Callable[[Any], bool]:
    """Of an ordering the element that is the easiest (ANY) or the hardest (ALL) to meet decides."""
    if not keys:
        return lambda value: False
    plain = PLAIN[operator]
    end = max(keys) if operator.startswith("<") is not every else min(keys)
    return lambda value: plain(value, end) is not every
