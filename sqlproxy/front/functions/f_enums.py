"""enum_first, enum_last, enum_range: of the labels that may be taken, in their order. The type is
that of the argument, whose value may be NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlproxy.front.functions.function import OfSite, Site, declared, nulls, typed
from sqlproxy.values import enums
from sqlproxy.values.errors import NOT_IN_SEQUENCE, SqlError


def _labels(oid: int) -> tuple[str, ...]:
    known = enums.of(oid)
    assert known is not None, "anyenum stands for an enum"
    return known.enum.taken


def _end(place: int) -> OfSite:
    def of_site(site: Site) -> Callable[[object], str]:
        def end(value: object) -> str:
            labels = _labels(site.types[0])
            if not labels:
                known = enums.of(site.types[0])
                name = "" if known is None else enums.quoted(known.enum.name)
                raise SqlError(NOT_IN_SEQUENCE, f"enum {name} contains no values")
            return labels[place]

        return end

    return of_site


def _all(site: Site) -> Callable[[object], list[str]]:
    return lambda value: list(_labels(site.types[0]))


def _between(site: Site) -> Callable[..., list[str]]:
    """Both ends are in it; NULL leaves one open."""

    def between(low: str | None, high: str | None) -> list[str]:
        labels = _labels(site.types[0])
        for end in (low, high):
            if end is not None and end not in labels:  # renamed since the statement was bound
                known = enums.of(site.types[0])
                assert known is not None, "anyenum stands for an enum"
                raise enums.Unfit(known.enum, end)
        first = 0 if low is None else labels.index(low)
        last = len(labels) if high is None else labels.index(high) + 1
        return list(labels[first:last])

    return between


FUNCTIONS: Final = declared(
    {
        "enum_first": nulls(typed(_end(0))),
        "enum_last": nulls(typed(_end(-1))),
        "enum_range_all": nulls(typed(_all)),
        "enum_range_bounds": nulls(typed(_between)),
    }
)
