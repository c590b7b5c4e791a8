"""Closures over a row and an `Env`, and what they are made of: strict functions of one or two
columns, parameters and constants are one closure together with their arguments (`strict_call` makes
one of sixteen shapes); AND, OR, IN, slices of arrays. `sqlproxy.front.closures.compiling` puts them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import getsizeof
from typing import Any, Final, Literal

from kv.base.limits import SQL_KEPT_BYTES_MAX
from sqlproxy.front.bound.env import Env
from sqlproxy.values.errors import SqlError
from sqlproxy.values.memory import now

Fn = Callable[[Sequence[Any], Env], Any]
_SMALL: Final = 1_024  # characters, bytes or elements: smaller values are not counted
_KEPT: Final = object()  # so many bytes of constants a run keeps
_SIZED: Final = frozenset((str, bytes, list))
Kind = Literal["col", "par", "con", "fun"]


@dataclass(frozen=True, slots=True)
class Part:
    """A compiled node before it is a closure: a column's index, a parameter's, a constant, or a
    closure.
    """

    kind: Kind
    at: Any
    fixed: bool = False  # a closure whose value is the same in each row of a run

    @property
    def small(self) -> bool:
        """A constant that costs nothing to look through."""
        return self.kind == "con" and (type(self.at) not in _SIZED or len(self.at) <= _SMALL)

    @property
    def fn(self) -> Fn:
        at = self.at
        match self.kind:
            case "col":
                return lambda row, env: row[at]
            case "par":
                return lambda row, env: env.params[at]
            case "con":
                return lambda row, env: at
            case "fun":
                fn: Fn = at
                return fn


def strict_call(function: Any, parts: list[Part]) -> Fn:
    """One closure for a strict function and its arguments."""
    if 1 <= len(parts) <= 2:
        made: Fn = _shape(tuple(p.kind for p in parts))(function, *(p.at for p in parts))
        return made
    fns = [p.fn for p in parts]

    def call(row: Sequence[object], env: Env) -> object:
        values = []
        for fn in fns:
            value = fn(row, env)
            if value is None:
                return None
            values.append(value)
        return function(*values)

    return call


def any_call(function: Any, parts: list[Part]) -> Fn:
    """The same of one that takes NULL."""
    fns = [p.fn for p in parts]
    return lambda row, env: function(*[fn(row, env) for fn in fns])


_READS: Final[dict[Kind, str]] = {
    "col": "row[{}]",
    "par": "env.params[{}]",
    "con": "{}",
    "fun": "{}(row, env)",
}


@lru_cache(maxsize=32)
def _shape(kinds: tuple[Kind, ...]) -> Any:
    """Makes closures for arguments of these kinds. No user's text goes into the source."""
    names = ("a", "b")[: len(kinds)]
    lines = [
        f"def make(function, {', '.join(f'at_{n}' for n in names)}):",
        "    def call(row, env):",
    ]
    for name, kind in zip(names, kinds, strict=True):
        lines.append(f"        {name} = {_READS[kind].format(f'at_{name}')}")
        if kind != "con":
            lines.append(f"        if {name} is None: return None")
    lines += [f"        return function({', '.join(names)})", "    return call"]
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    return scope["make"]


def counted_value(value: Any) -> object:
    """What a function has made. Raises SqlError (53200)."""
    if type(value) in _SIZED and len(value) > _SMALL:
        now().made(getsizeof(value))
    return value


def counted(fn: Fn) -> Fn:
    """The same of each row, where the value has a length."""

    def call(row: Sequence[object], env: Env) -> object:
        value = fn(row, env)
        if value is not None and len(value) > _SMALL:
            now().made(getsizeof(value))
        return value

    return call


def all_of(fns: Sequence[Fn]) -> Fn:
    def call(row: Sequence[object], env: Env) -> object:
        unknown = False
        for fn in fns:
            value = fn(row, env)
            if value is None:
                unknown = True
            elif not value:
                return False
        return None if unknown else True

    return call


def any_of(fns: Sequence[Fn]) -> Fn:
    def call(row: Sequence[object], env: Env) -> object:
        unknown = False
        for fn in fns:
            value = fn(row, env)
            if value is None:
                unknown = True
            elif value:
                return True
        return None if unknown else False

    return call


def once_for_all(find: Callable[[Env], object]) -> Callable[[Env], Any]:
    """What `find` answers, asked once in each run of a statement."""
    mine = object()

    def found(env: Env) -> object:
        memo = env.memo
        if memo is None:
            memo = env.memo = {}
        if mine not in memo:
            memo[mine] = find(env)  # threads that meet here find the same
        return memo[mine]

    return found


def large_constant(fn: Fn) -> Fn:
    """A constant that is too large to be kept with a plan: it is kept while a statement runs, if
    all of these together are not too large for that, too.
    """
    mine = object()

    def call(row: Sequence[object], env: Env) -> object:
        memo = env.memo
        if memo is None:
            memo = env.memo = {}
        elif mine in memo:
            return memo[mine]
        value = counted_value(fn(row, env))
        kept: Any = memo.get(_KEPT, 0)
        size = kept + getsizeof(value)
        if size <= SQL_KEPT_BYTES_MAX:
            memo[mine], memo[_KEPT] = value, size
        return value

    return call


def flattened(values: list[object]) -> list[object]:
    if not any(isinstance(v, list) for v in values):
        return values
    return [
        one for part in values for one in (flattened(part) if isinstance(part, list) else [part])
    ]


def nested_array(values: list[object]) -> list[object]:
    """Of ARRAY[[…], …]: all parts must have the same dimensions. Raises 2202E."""
    parts = [v for v in values if v]
    if len(parts) not in (0, len(values)):
        raise _ragged()
    if len({_shape_of(p) for p in parts}) > 1:
        raise _ragged()
    return parts


def _shape_of(value: object) -> tuple[int, ...]:
    return (len(value), *_shape_of(value[0])) if isinstance(value, list) and value else ()


def _ragged() -> SqlError:
    return SqlError(
        "2202E", "multidimensional arrays must have array expressions with matching dimensions"
    )


def slice_of(
    value: Any, bounds: Sequence[tuple[Fn | None, Fn | None]], row: Sequence[object], env: Env
) -> object:
    if value is None:
        return None
    if not bounds:
        return value
    (low, high), rest = bounds[0], bounds[1:]
    first = low(row, env) if low is not None else 1
    last = high(row, env) if high is not None else len(value)
    if first is None or last is None:
        return None
    part = value[max(first, 1) - 1 : max(last, 0)]
    if not rest:
        return part
    if not all(isinstance(v, list) for v in part):
        return []  # it has fewer dimensions
    inner = [slice_of(v, rest, row, env) for v in part]
    return None if any(v is None for v in inner) else [v for v in inner if v]


def no_value(row: Sequence[object], env: Env) -> None:
    return None
