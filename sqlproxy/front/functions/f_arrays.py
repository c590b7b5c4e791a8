"""Arrays: lists, nested for more dimensions, counted from 1 (other lower bounds are not kept)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from kv.base.limits import SQL_ARRAY_ELEMENTS_MAX
from sqlproxy.front.functions.f_text import output
from sqlproxy.front.functions.function import OfSite, Site, declared, nulls, total, typed
from sqlproxy.front.types import comparing
from sqlproxy.front.types.registry import element_of
from sqlproxy.pg.arrays import measured
from sqlproxy.values.arrays import DIMENSIONS_MAX, has_lists
from sqlproxy.values.breaks import paused
from sqlproxy.values.errors import LIMIT_EXCEEDED, SqlError, unsupported
from sqlproxy.values.memory import bytes_of, room


def shape(value: object) -> list[int]:
    found = []
    while isinstance(value, list) and value:
        found.append(len(value))
        value = value[0]
    return found


def flat(value: Sequence[object]) -> list[object]:
    if not has_lists(value):
        return list(value)
    return [x for part in paused(value) for x in (flat(part) if isinstance(part, list) else [part])]


_PLACE: Final = 8  # bytes of an element beside its value
_PART: Final = 64  # bytes of one that is a new short text


def elements(count: int, each: int = _PLACE) -> None:
    """Raise 54000 for an array that would have too many, 53200 if it does not fit."""
    if count > SQL_ARRAY_ELEMENTS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED, f"array size exceeds the maximum allowed ({SQL_ARRAY_ELEMENTS_MAX})"
        )
    room(each * count)


def _mismatch(what: str = "") -> SqlError:
    return SqlError("2202E", "cannot concatenate incompatible arrays", detail=what)


def _append(value: list[object] | None, item: object) -> list[object]:
    if value and len(shape(value)) > 1:
        raise SqlError("22000", "argument must be empty or one-dimensional array")
    elements(len(value or ()) + 1)
    return [*(value or ()), item]


def _prepend(item: object, value: list[object] | None) -> list[object]:
    if value and len(shape(value)) > 1:
        raise SqlError("22000", "argument must be empty or one-dimensional array")
    return [item, *(value or ())]


def _cat(a: list[object] | None, b: list[object] | None) -> list[object] | None:
    if a is None or b is None:
        return b if a is None else a
    if not a or not b:
        return a or b
    one, two = shape(a), shape(b)
    elements(math.prod(one) + math.prod(two))
    if len(one) == len(two) and one[1:] == two[1:]:
        return [*a, *b]
    if len(one) == len(two) + 1 and one[1:] == two:
        return [*a, b]
    if len(two) == len(one) + 1 and two[1:] == one:
        return [a, *b]
    raise _mismatch()


def _length(value: list[object], dimension: int) -> int | None:
    found = shape(value)
    return found[dimension - 1] if 1 <= dimension <= len(found) else None


def _dims(value: list[object]) -> str | None:
    found = shape(value)
    return "".join(f"[1:{n}]" for n in found) if found else None


def _with_key(
    function: Callable[..., object],
) -> OfSite:
    """A function that compares elements: it is given what finds equal ones."""

    def of_site(site: Site) -> Callable[..., object]:
        same = Same(comparing.key_of(element_of(site.types[0])))
        return lambda *args: function(same, *args)

    return of_site


class Same:
    """Which elements are equal; NULL is equal to NULL. An array that is asked for again is hashed:
    a constant is one object for all rows, and to search it for each would take minutes.
    """

    def __init__(self, key: Callable[[object], object]) -> None:
        self._key = key
        self._kept: tuple[list[object] | None, dict[object, int] | None] = (None, None)

    def __call__(self, a: object, b: object) -> bool:
        if a is None or b is None:
            return a is b
        return bool(self._key(a) == self._key(b))

    def first(self, value: list[object], item: object, start: int = 0) -> int | None:
        """The first place of an element in a list without lists, from a place on."""
        there, places = self._kept
        if there is value and places is not None and not start:
            return places.get(self._hashed(item))
        if len(value) >= _HASHED_MIN:
            self._kept = (value, self._places(value) if there is value else None)
        return next((i for i in paused(range(start, len(value))) if self(value[i], item)), None)

    def _places(self, value: list[object]) -> dict[object, int] | None:
        found: dict[object, int] = {}
        try:
            for i, item in enumerate(paused(value)):
                found.setdefault(self._hashed(item), i)
        except TypeError:  # of JSON there are keys without a hash
            return None
        return found

    def _hashed(self, item: object) -> object:
        return None if item is None else (self._key(item),)


_HASHED_MIN: Final = 32  # elements: fewer are found as quickly


def _flat_only(value: list[object], what: str) -> None:
    if len(shape(value)) > 1:
        raise unsupported(f"{what} multidimensional arrays")


def _position(
    same: Same, value: list[object] | None, item: object, start: int | None = 1
) -> int | None:
    if value is None:
        return None
    _flat_only(value, "searching for elements in")
    if start is None:
        raise SqlError("22004", "initial position must not be null")
    found = same.first(value, item, max(start, 1) - 1)
    return None if found is None else found + 1


def _positions(same: Same, value: list[object] | None, item: object) -> list[int] | None:
    if value is None:
        return None
    _flat_only(value, "searching for elements in")
    return [i for i, v in enumerate(paused(value), 1) if same(v, item)]


def _remove(same: Same, value: list[object] | None, item: object) -> list[object] | None:
    if value is None:
        return None
    _flat_only(value, "removing elements from")
    return [v for v in paused(value) if not same(v, item)]


def _replace(
    same: Same, value: list[object] | None, old: object, new: object
) -> list[object] | None:
    if value is None:
        return None
    return [
        _replace(same, v, old, new) if isinstance(v, list) else new if same(v, old) else v
        for v in paused(value)
    ]


def _contains(same: Same, value: list[object], other: list[object]) -> bool:
    have = _flattened(value)
    return all(w is not None and same.first(have, w) is not None for w in paused(flat(other)))


def _overlap(same: Same, value: list[object], other: list[object]) -> bool:
    have, wanted = _flattened(value), _flattened(other)
    if len(wanted) > len(have):
        have, wanted = wanted, have
    return any(w is not None and same.first(have, w) is not None for w in paused(wanted))


def _flattened(value: list[object]) -> list[object]:
    """The same object, if it is flat already."""
    return flat(value) if has_lists(value) else value


def _to_text(site: Site) -> Callable[..., object]:
    write = output(element_of(site.types[0]), site.style)

    def call(
        value: list[object] | None, separator: str | None, null: str | None = None
    ) -> str | None:
        if value is None or separator is None:
            return None
        shown = (null if v is None else write(v) for v in paused(flat(value)))
        given = (one for one in shown if one is not None)
        return separator.join(measured(given, beside=bytes_of(separator)))

    return call


def _from_text(
    value: str | None, separator: str | None, null: str | None = None
) -> list[object] | None:
    if value is None:
        return None
    if value == "":
        return []
    count = len(value) if separator is None else value.count(separator) if separator else 1
    elements(count, _PART)
    parts = (
        list(value) if separator is None else [value] if separator == "" else value.split(separator)
    )
    return [None if null is not None and p == null else p for p in parts]


def _trim(value: list[object], n: int) -> list[object]:
    if not 0 <= n <= len(value):
        raise SqlError("2202E", f"number of elements to trim must be between 0 and {len(value)}")
    return value[: len(value) - n]


def _fill(item: object, sizes: list[int] | None) -> list[object]:
    if sizes is None:
        raise SqlError("22004", "dimension array or low bound array cannot be null")
    if not sizes:
        return []
    if has_lists(sizes):
        raise SqlError("2202E", "wrong number of array subscripts")
    if None in sizes:
        raise SqlError("22004", "dimension values cannot be null")
    if len(sizes) > DIMENSIONS_MAX or any(s < 0 for s in sizes):
        raise SqlError("54000", f"array size exceeds the maximum allowed ({134_217_727})")
    if not all(sizes):
        return []
    elements(math.prod(sizes))
    inner = _fill(item, sizes[1:]) if len(sizes) > 1 else item
    return [inner for _ in range(sizes[0])]


def _bucket(site: Site) -> Callable[..., object]:
    from bisect import bisect_right

    key = comparing.key_of(site.types[0])

    def found(value: object, bounds: list[object]) -> int:
        if None in bounds:
            raise SqlError("22004", "thresholds array must not contain NULLs")
        if has_lists(bounds):
            raise SqlError("2202E", "thresholds must be one-dimensional array")
        return bisect_right([key(b) for b in paused(bounds)], key(value))

    return found


def _last(values: list[object], dimension: int) -> int | None:
    """The last place of a vector."""
    count = _length(values, dimension)
    return None if count is None else count - 1


FUNCTIONS: Final = declared(
    {
        "array_append": nulls(_append),
        "array_prepend": nulls(_prepend),
        "array_cat": nulls(_cat),
        "array_length": total(_length),
        "array_upper": total(_length),
        "array_lower": total(lambda v, n: 1 if _length(v, n) is not None else None),
        "array_upper_from_0": total(_last),
        "array_lower_from_0": total(lambda v, n: 0 if _length(v, n) is not None else None),
        "array_ndims": total(lambda v: len(shape(v)) or None),
        "array_dims": _dims,
        "array_cardinality": total(lambda v: len(flat(v))),
        "text_to_array": nulls(_from_text),
        "text_to_array_null": nulls(_from_text),
        "trim_array": _trim,
        "array_fill": nulls(_fill),
        "array_position": nulls(typed(_with_key(_position))),
        "array_position_start": nulls(typed(_with_key(_position))),
        "array_positions": nulls(typed(_with_key(_positions))),
        "array_remove": nulls(typed(_with_key(_remove))),
        "array_replace": nulls(typed(_with_key(_replace))),
        "arraycontains": total(typed(_with_key(_contains))),
        "arraycontained": total(typed(_with_key(lambda same, a, b: _contains(same, b, a)))),
        "arrayoverlap": total(typed(_with_key(_overlap))),
        "array_to_text": typed(_to_text),
        "array_to_text_null": nulls(typed(_to_text)),
        "width_bucket_array": typed(_bucket),
    }
)
