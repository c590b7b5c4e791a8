"""Bound statements as trees of frozen dataclasses and tuples: their parts, and the same tree with
others in place of some. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from sqlproxy.front.bound.exprs import Expr
from sqlproxy.front.types.registry import Proc
from sqlproxy.rows.schema import Sequence, Table, View

_OUTPUT_FIELDS: Final = ("fields", "tree")  # of statements: nothing of what they read
_NAMES: Final[dict[type, tuple[str, ...]]] = {}  # of the parts, by the class


def looked_into(node: object) -> bool:
    """Whether it has parts by name; what is declared is no part of a statement."""
    return is_dataclass(node) and not isinstance(node, type | Table | View | Sequence)


def parts(node: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a node that is looked into, by name."""
    kind = type(node)
    if (names := _NAMES.get(kind)) is None:
        named = (one.name for one in fields(kind))
        names = _NAMES[kind] = tuple(one for one in named if one not in _OUTPUT_FIELDS)
    for name in names:
        yield name, getattr(node, name)


def inside(node: object) -> Iterator[Expr]:
    """All expressions in a tree, those of queries in it too."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, tuple):
            stack.extend(one)
        elif looked_into(one) and not isinstance(one, Proc):
            if isinstance(one, Expr):
                yield one
            stack.extend(value for _, value in parts(one))


def has(node: object, kind: type) -> bool:
    """Whether there is one of a class anywhere inside."""
    if isinstance(node, kind):
        return True
    if isinstance(node, tuple):
        return any(has(one, kind) for one in node)
    return looked_into(node) and any(has(part, kind) for _, part in parts(node))


def replaced(node: Any, other: Callable[[object], object]) -> object:
    """The tree with `other(part)` instead of each part of which that is not None; what has none of
    them is the same object.
    """
    if (new := other(node)) is not None:
        return new
    if isinstance(node, tuple):
        found = [replaced(one, other) for one in node]
        same = all(new is old for new, old in zip(found, node, strict=True))
        return node if same else tuple(found)
    if not looked_into(node):
        return node
    changed = {}
    for name, old in parts(node):
        new = replaced(old, other)
        if new is not old:
            changed[name] = new
    return replace(node, **changed) if changed else node
