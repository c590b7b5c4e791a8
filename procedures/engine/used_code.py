"""What code uses of its own module: functions, classes and constants at its top, also by way of one
another, and the other methods of its class. Read from the source, so that it makes no difference
what is defined already.

Over-careful: by name alone, `order.total` uses a function `total`. Left out: other modules,
functions inside of functions, and procedures, which have versions of their own.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Final, TypeAlias

_PROCEDURES: Final = frozenset({"procedure", "workflow"})
_Found: TypeAlias = dict[str, list[ast.stmt]]


def used_code(parts: Iterable[Callable[..., object]]) -> list[tuple[str, str]]:
    """Name and source of each thing, by name; without the parts themselves. Nothing where there is
    no source of the module.
    """
    found: dict[str, str] = {}
    for fn in map(inspect.unwrap, parts):
        text = _source(fn)
        if text:
            top, own = _defined(ast.parse(text), fn)
            lines = text.splitlines(keepends=True)
            found |= {
                name: "".join(_cut(lines, one) for one in statements)
                for name, statements in _used(fn, top | own).items()
            }
    return sorted(found.items())


def _source(fn: Callable[..., object]) -> str:
    module = sys.modules.get(fn.__module__)
    try:
        same = module is not None and inspect.getsourcefile(module) == inspect.getsourcefile(fn)
        return inspect.getsource(module) if module is not None and same else ""
    except (OSError, TypeError):
        return ""


def _defined(tree: ast.Module, fn: Callable[..., object]) -> tuple[_Found, _Found]:
    """What is defined at the top of the module; and the other methods of the function's class."""
    top = _by_name(tree.body)
    cls, _, _ = fn.__qualname__.rpartition(".")
    own = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == cls]
    methods = _by_name([one for body in own for one in body.body])
    methods.pop(fn.__name__, None)
    top.pop(cls or fn.__name__, None)
    return top, {f"{cls}.{name}": statements for name, statements in methods.items()}


def _by_name(body: Iterable[ast.stmt]) -> _Found:
    found: _Found = {}
    for statement in body:
        for name in _names(statement):
            found.setdefault(name, []).append(statement)
    return found


def _names(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            if not any(_last(one) in _PROCEDURES for one in statement.decorator_list):
                yield statement.name
        case ast.Assign(targets=targets):
            yield from (one.id for one in targets if isinstance(one, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass


def _last(decorator: ast.expr) -> str:
    match decorator:
        case ast.Call(func=called):
            return _last(called)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _used(fn: Callable[..., object], defined: Mapping[str, list[ast.stmt]]) -> _Found:
    used: _Found = {}
    code = getattr(fn, "__code__", None)
    names = set(_of_code(code)) if isinstance(code, CodeType) else set()
    while names:
        more = {
            name: statements
            for name, statements in defined.items()
            if name.rpartition(".")[2] in names and name not in used
        }
        used |= more
        names = {
            word for statements in more.values() for one in statements for word in _of_tree(one)
        }
    return used


def _of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)


def _of_tree(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _cut(lines: Sequence[str], statement: ast.stmt) -> str:
    decorators = getattr(statement, "decorator_list", ())
    first = min([statement.lineno, *(one.lineno for one in decorators)])
    return textwrap.dedent("".join(lines[first - 1 : statement.end_lineno]))
