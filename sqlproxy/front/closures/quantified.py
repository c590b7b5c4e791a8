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

from sqlproxy.front.types.comparing import PLAIN

Key = Callable[[object], object]
Answer = Callable[[object], bool | None]


def no_answer(value: object) -> None:
    """Of an array that is NULL."""
    return


def answering(operator: str, every: bool, key: Key | None, elements: Sequence[object]) -> Answer:
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

    def answer(value: object) -> bool | None:
        if value is None:
            return of_null
        return (not every) if decides(value if key is None else key(value)) else unknown

    return answer


def among(
    keys: Sequence[Key | None], rows: Sequence[Sequence[object]], negated: bool
) -> Callable[[Sequence[object]], bool | None]:
    """What answers for each row whether it is one of `rows` (`negated`: none of them): false where
    every one of them has a part that differs, else unknown where NULL is among the parts. `keys`:
    of the parts. A row costs a look-up for each choice of parts that are NULL in a row of the set.
    """
    places = range(len(keys))

    def keyed(row: Sequence[object]) -> tuple[object, ...]:
        return tuple(
            value if value is None or key is None else key(value)
            for key, value in zip(keys, row, strict=True)
        )

    known: dict[tuple[int, ...], set[tuple[object, ...]]] = {}  # by the places that are NULL
    for one in map(keyed, rows):
        known.setdefault(_nulls(one), set()).add(one)
    whole = known.get((), set())
    partial = len(known) > 1 or not whole
    looked: dict[tuple[int, ...], list[tuple[list[int], set[tuple[object, ...]]]]] = {}

    def unknown(row: Sequence[object], nulls: tuple[int, ...]) -> bool:
        """Whether one of them is equal as far as there is something to compare."""
        if nulls not in looked:  # threads that meet here find the same
            found = []
            for others, of in known.items():
                compared = [at for at in places if at not in nulls and at not in others]
                found.append((compared, {tuple([one[at] for at in compared]) for one in of}))
            looked[nulls] = found
        return any(tuple([row[at] for at in compared]) in seen for compared, seen in looked[nulls])

    def answer(row: Sequence[object]) -> bool | None:
        found = keyed(row)
        nulls = _nulls(found)
        if not nulls and found in whole:
            return not negated
        return None if (nulls or partial) and unknown(found, nulls) else negated

    return answer


def _nulls(row: Sequence[object]) -> tuple[int, ...]:
    return tuple([at for at, one in enumerate(row) if one is None]) if None in row else ()


def _deciding(keys: Sequence[object], others: bool) -> Callable[[object], bool]:
    """Whether an element equals the value; `others`: whether one does not."""
    known = frozenset(keys)
    if not others:
        return known.__contains__
    if len(known) == 1:
        (only,) = known
        return lambda value: bool(value != only)
    several = bool(known)
    return lambda value: several


def _bound(operator: str, every: bool, keys: Sequence[Any]) -> Callable[[object], bool]:
    """Of an ordering the element that is the easiest (ANY) or the hardest (ALL) to meet decides."""
    if not keys:
        return lambda value: False
    plain = PLAIN[operator]
    end = max(keys) if operator.startswith("<") is not every else min(keys)
    return lambda value: plain(value, end) is not every
