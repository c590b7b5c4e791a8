"""What procedures need of a worker: amounts that they take while it holds them, and labels. Pure.

    needs     {"gpu": 1, "memory_mib": 2048, "zone": "eu"}
    capacity  {"gpu": 2, "memory_mib": 65536, "cpu": 8, "zone": "eu"}

A number is an amount: of all that a worker holds no more than it has. A text is a label: the worker
must have just this one. What it does not name it has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from kv.base import limits
from kv.base.errors import InvalidArgument

Needs: TypeAlias = tuple[tuple[str, float | str], ...]  # by name

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_.\-]{{0,{limits.NAME_CHARS_MAX - 1}}}\Z")
_AMOUNT_MAX: Final = 1e15
_ENOUGH: Final = 1e-9  # amounts such as 0.1 are no binary fractions


def checked(what: str, value: object) -> Needs:
    """Needs, or a capacity, as somebody gives them. Raises InvalidArgument."""
    most = limits.WORKER_RESOURCES_MAX
    if not isinstance(value, Mapping) or len(value) > most:
        raise InvalidArgument(f"{what} must be a map of at most {most} names, got {value!r:.60}")
    found: dict[str, float | str] = {}
    for name, one in value.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidArgument(f"{what}: a name has letters, digits and _ . -, got {name!r:.60}")
        if isinstance(one, str) and 0 < len(one) <= limits.NAME_CHARS_MAX:
            found[name] = one
        elif type(one) in (int, float) and 0 <= one <= _AMOUNT_MAX:
            found[name] = float(one)
        else:
            raise InvalidArgument(
                f"{what}: {name} must be an amount of 0 or more, or a label, got {one!r:.60}"
            )
    return tuple(sorted(found.items()))


def text_of(needs: Needs) -> str:
    """The same for equal needs; `read` gives them back."""
    return msgspec.json.encode(dict(needs)).decode() if needs else ""


@lru_cache(maxsize=1_000)
def read(text: str) -> Needs:
    found: dict[str, float | str] = msgspec.json.decode(text) if text else {}
    return tuple(found.items())


def used(held: Iterable[Needs]) -> dict[str, float]:
    """What these take together."""
    total: dict[str, float] = {}
    for needs in held:
        for name, one in needs:
            if not isinstance(one, str):
                total[name] = total.get(name, 0.0) + one
    return total


def lacking(needs: Needs, capacity: Mapping[str, float | str], taken: Mapping[str, float]) -> str:
    """What of it is not there, "" = it fits."""
    for name, one in needs:
        has = capacity.get(name, 0.0)
        if isinstance(one, str) or isinstance(has, str):
            if one != has:
                return f"{name}={one}"
        elif one > has - taken.get(name, 0.0) + _ENOUGH:
            return f"{name}={one:g}"
    return ""
