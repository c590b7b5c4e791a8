"""Arrays as nested lists: their elements, their shape, and what is no array.

An array of n dimensions is a list of lists, n deep, each dimension of one length; NULL elements are
None. An empty array has no dimension, whatever it was made of. Lower bounds are 1: others are
refused by those who read text (0A000).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlproxy.values.breaks import paused

DIMENSIONS_MAX: Final = 6


def mapped(convert: Callable[[Any], object], value: Sequence[object]) -> list[object]:
    """The nested list with each element converted; NULLs stay."""
    found: list[object] = []
    for one in paused(value):
        if isinstance(one, list | tuple):
            found.append(mapped(convert, one))
        else:
            found.append(None if one is None else convert(one))
    return found


def flat(value: Sequence[object]) -> list[Any]:
    """The elements in order, of an array of any number of dimensions."""
    found: list[object] = []
    for one in paused(value):
        if isinstance(one, list):
            found += flat(one)
        else:
            found.append(one)
    return found


def has_lists(value: Sequence[object]) -> bool:
    """Whether it has more than one dimension."""
    return list in set(map(type, value))


def shape(value: object) -> tuple[int, ...]:
    """The length of each dimension, by its first element; () of an empty array."""
    found: list[int] = []
    while isinstance(value, list):
        if not value:
            return ()
        found.append(len(value))
        value = value[0]
    return tuple(found)


def nested(elements: Sequence[object], dims: Sequence[int]) -> list[object]:
    """The array of this shape: the inverse of `flat` and `shape`."""
    found = list(elements)
    for width in reversed(dims[1:]):
        found = [found[at : at + width] for at in range(0, len(found), width)]
    return found


def problem(value: list[object]) -> tuple[str, str] | None:
    """Why this is no array: SQLSTATE and message, as PostgreSQL has them."""
    if not flat(value):
        return None
    dims = shape(value)
    if len(dims) > DIMENSIONS_MAX:
        return (
            "54000",
            f"number of array dimensions ({len(dims)}) exceeds the maximum allowed "
            f"({DIMENSIONS_MAX})",
        )
    if not dims or any(found != dims for found in _shapes(value)):
        return (
            "2202E",
            "multidimensional arrays must have array expressions with matching dimensions",
        )
    return None


def _shapes(value: object) -> Iterator[tuple[int, ...]]:
    """The shape seen along the way to each element."""
    if not isinstance(value, list):
        yield ()
        return
    if not value:
        yield (0,)
    for one in paused(value):
        for inner in _shapes(one):
            yield (len(value), *inner)
