"""jsonpath over jsonb: `@?`, `@@`, jsonb_path_query and its like.

    run(path, item, found)   the items that a path leads to go to `found`; without it the first one
                             is enough, and nothing is computed after that

What a client writes may lead to any number of items (`$.**.**.**`): each step has a break, and what
is found is counted as it grows (`sqlproxy.values.memory`). Source: PostgreSQL 15, jsonpath_exec.c,
whose functions are the methods of `_Run`. Deliberately different: the ids of .keyvalue()
number the objects in the order in which they are met, PostgreSQL's are offsets in its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from math import inf, isfinite
from typing import Any, Final

from sqlproxy.front.bound.env import Env
from sqlproxy.front.functions.f_numbers import FUNCTIONS as NUMBERS
from sqlproxy.front.functions.function import declared, with_env
from sqlproxy.front.functions.linear_patterns import regex
from sqlproxy.pg import json_datetimes, numbers
from sqlproxy.pg.arrays import measured
from sqlproxy.pg.json_datetimes import Moment
from sqlproxy.pg.jsonpaths import COMPARISONS, LAST, PREDICATES, Item, Path, parse
from sqlproxy.values import jsonb
from sqlproxy.values.breaks import pause
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    UNDEFINED_OBJECT,
    UNSUPPORTED,
    SqlError,
    too_deep,
)
from sqlproxy.values.memory import now

_NO_TEXT: Final = "22031"
_INVALID_SUBSCRIPT: Final = "22033"
_NOT_NUMERIC: Final = "22036"
_NOT_SINGLE: Final = "22038"
_NO_ARRAY: Final = "22039"
_NO_MEMBER: Final = "2203A"
_NO_NUMBER: Final = "2203B"
_NO_OBJECT: Final = "2203C"
_CONSTANTS: Final = frozenset(("null", "bool", "number", "string", "variable"))
_ARITHMETIC: Final = {
    sign: NUMBERS[f"numeric_{name}"].call
    for sign, name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "div"), ("%", "mod"))
}
_UNARY: Final[dict[str, Callable[[Decimal], Decimal]]] = {
    "u+": lambda value: value,
    "u-": lambda value: -value if value else value,
    "abs": NUMBERS["numeric_abs"].call,
    "floor": NUMBERS["numeric_floor"].call,
    "ceiling": NUMBERS["numeric_ceil"].call,
}
_OF_FLOAT: Final = NUMBERS["float8_numeric"].call
_TYPES: Final = (
    (bool, "boolean"),
    (str, "string"),
    (Decimal, "number"),
    (list, "array"),
    (dict, "object"),
    (type(None), "null"),
)
_FOUND_MANY: Final = 1 << 12  # items that are not counted yet
_FOUND_BYTES: Final = 64  # of one, at most: most are parts of what is there


class Done(Enum):
    FOUND = 1
    NOTHING = 2
    FAILED = 3


_FOUND, _NOTHING, _FAILED = Done.FOUND, Done.NOTHING, Done.FAILED
Items = list[Any]


def _keep(found: Items, item: object) -> None:
    found.append(item)
    if not len(found) % _FOUND_MANY:
        now().fits(len(found) * _FOUND_BYTES)


def _inside(value: object) -> Iterator[object]:
    return iter(value.values() if isinstance(value, dict) else value)  # type: ignore[call-overload,no-any-return]


class _Run:
    """One evaluation. `strict`: structure that is not as the path says is an error."""

    def __init__(
        self,
        lax: bool,
        root: object,
        variables: dict[str, Any] | None,
        throws: bool,
        env: Env | None,
    ) -> None:
        """`env`: of a session whose time zone dates and times may be taken to be of."""
        self._lax, self._root, self._variables = lax, root, variables
        self._throws, self._env = throws, env
        self._lenient = lax  # errors of structure are none
        self._current = root
        self._size = -1  # of the innermost array whose subscripts are computed
        self._ids: dict[int, int] = {}

    def _error(self, code: str, message: str) -> Done:
        if self._throws:
            raise SqlError(code, message)
        return _FAILED

    def _structure(self, code: str, message: str) -> Done:
        return _NOTHING if self._lenient else self._error(code, message)

    # -- items

    def run(self, path: Path, item: object, found: Items | None) -> Done:
        return self._step(path, 0, item, found, self._lax)

    def _after(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        """What follows in the path, of an item that it led to."""
        if at + 1 < len(path):
            return self._step(path, at + 1, item, found, self._lax)
        if found is not None:
            _keep(found, item)
        return _FOUND

    def _step(self, path: Path, at: int, item: object, found: Items | None, unwrap: bool) -> Done:
        pause()
        one = path[at]
        kind = one.kind
        if kind in PREDICATES:
            if at + 1 == len(path) and found is None:
                self._holds(one, item)
                return _FOUND
            return self._after(path, at, self._holds(one, item), found)
        if kind in _CONSTANTS:
            if at + 1 == len(path) and found is None and kind != "variable":
                return _FOUND
            return self._after(path, at, self._constant(one), found)
        step = _STEPS.get(kind)
        if step is None:
            return self._arithmetic(path, at, item, found)
        if unwrap and isinstance(item, list) and (kind in _UNWRAPPED or one.value in _UNWRAPPED):
            return self._each(path, at, item, found, False)
        return step(self, path, at, item, found)

    def _constant(self, one: Item) -> object:
        if one.kind != "variable":
            return one.value
        if self._variables is None:
            return None
        if one.value not in self._variables:
            raise SqlError(UNDEFINED_OBJECT, f'could not find jsonpath variable "{one.value}"')
        return self._variables[one.value]

    def _each(self, path: Path, at: int, items: object, found: Items | None, unwrap: bool) -> Done:
        """`path[at:]` of each of the parts of an array or object; at its end: the parts."""
        done = _NOTHING
        for part in _inside(items):
            if at < len(path):
                done = self._step(path, at, part, found, unwrap)
            else:
                done = _FOUND
                if found is not None:
                    _keep(found, part)
            if done is _FAILED or (done is _FOUND and found is None):
                break
        return done

    def _root_item(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        return self._after(path, at, self._root, found)

    def _current_item(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        return self._after(path, at, self._current, found)

    def _key(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        name = path[at].value
        if not isinstance(item, dict):
            return self._structure(
                _NO_MEMBER, "jsonpath member accessor can only be applied to an object"
            )
        if name in item:
            return self._after(path, at, item[name], found)
        return self._structure(_NO_MEMBER, f'JSON object does not contain key "{name}"')

    def _any_key(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if isinstance(item, dict):
            return self._each(path, at + 1, item, found, self._lax)
        return self._structure(
            _NO_OBJECT, "jsonpath wildcard member accessor can only be applied to an object"
        )

    def _any_array(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if isinstance(item, list):
            return self._each(path, at + 1, item, found, self._lax)
        if self._lax:
            return self._after(path, at, item, found)
        return self._structure(
            _NO_ARRAY, "jsonpath wildcard array accessor can only be applied to an array"
        )

    def _index(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if not isinstance(item, list) and not self._lax:
            return self._structure(
                _NO_ARRAY, "jsonpath array accessor can only be applied to an array"
            )
        items = item if isinstance(item, list) else [item]
        size, outer = len(items), self._size
        done = _NOTHING
        try:
            for low, high in path[at].value:
                self._size = size
                first = self._subscript(low, item)
                last = first if high is None else self._subscript(high, item)
                if first is None or last is None:
                    return _FAILED
                if not self._lenient and not 0 <= first <= last < size:
                    return self._error(
                        _INVALID_SUBSCRIPT, "jsonpath array subscript is out of bounds"
                    )
                done = _NOTHING
                for place in range(max(first, 0), min(last, size - 1) + 1):
                    done = self._after(path, at, items[place], found)
                    if done is _FAILED or (done is _FOUND and found is None):
                        return done
        finally:
            self._size = outer
        return done

    def _subscript(self, path: Path, item: object) -> int | None:
        """None: it fails, quietly."""
        found: Items = []
        if self.run(path, item, found) is _FAILED:
            return None
        if len(found) != 1 or not isinstance(found[0], Decimal):
            self._error(
                _INVALID_SUBSCRIPT, "jsonpath array subscript is not a single numeric value"
            )
            return None
        place = int(found[0]) if found[0].adjusted() < 12 else 1 << 32
        if not -(1 << 31) <= place < 1 << 31:
            self._error(_INVALID_SUBSCRIPT, "jsonpath array subscript is out of integer range")
            return None
        return place

    def _last(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        return self._after(path, at, Decimal(self._size - 1), found)

    def _filter(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        outer, self._current = self._current, item
        try:
            holds = self._holds(path[at].args[0][0], item)
        finally:
            self._current = outer
        return self._after(path, at, item, found) if holds is True else _NOTHING

    def _any(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        first = path[at].value[0]
        done = _NOTHING
        lenient = self._lenient
        self._lenient = True
        try:
            if first == 0:
                done = self._after(path, at, item, found)
                if done is _FAILED or (done is _FOUND and found is None):
                    return done
            if isinstance(item, list | dict):
                done = self._levels(path, at, item, found, 1)
        finally:
            self._lenient = lenient
        return done

    def _levels(self, path: Path, at: int, items: object, found: Items | None, level: int) -> Done:
        first, last = path[at].value
        done = _NOTHING
        if level > last:
            return done
        for part in _inside(items):
            inner = isinstance(part, list | dict)
            if level >= first or (first == last == LAST and not inner):
                done = self._after(path, at, part, found)
                if done is _FAILED or (done is _FOUND and found is None):
                    break
            if level < last and inner:
                done = self._levels(path, at, part, found, level + 1)
                if done is _FAILED or (done is _FOUND and found is None):
                    break
        return done

    # -- methods

    def _method(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        name: str = path[at].value
        match name:
            case "type":
                return self._after(path, at, type_of(item), found)
            case "size":
                if not isinstance(item, list) and not self._lax:
                    return self._structure(
                        _NO_ARRAY, "jsonpath item method .size() can only be applied to an array"
                    )
                size = len(item) if isinstance(item, list) else 1
                return self._after(path, at, Decimal(size), found)
            case "double":
                return self._double(path, at, item, found)
            case "keyvalue":
                return self._key_values(path, at, item, found)
            case _:
                if not isinstance(item, Decimal):
                    return self._not_numeric(name)
                return self._after(path, at, _UNARY[name](item), found)

    def _not_numeric(self, name: str, kinds: str = "a numeric value") -> Done:
        return self._error(
            _NOT_NUMERIC, f"jsonpath item method .{name}() can only be applied to {kinds}"
        )

    def _datetime(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if not isinstance(item, str):
            return self._error(
                _NO_TEXT, "jsonpath item method .datetime() can only be applied to a string"
            )
        given: str | None = path[at].value
        template = None if given is None else json_datetimes.template(given)
        try:
            made = json_datetimes.read(item, template)
        except SqlError as error:
            if self._throws or error.sqlstate == UNSUPPORTED:
                raise
            return _FAILED
        return self._after(path, at, made, found)

    def _double(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if not isinstance(item, Decimal | str):
            return self._not_numeric("double", "a string or numeric value")
        given = isinstance(item, str)
        try:
            value = numbers.read_float8(item if isinstance(item, str) else jsonb.number(item))
        except SqlError:
            value = inf
        if not isfinite(value):
            wrong = (
                "string argument of jsonpath item method .double() is not a valid representation "
                "of a double precision number"
                if given
                else "numeric argument of jsonpath item method .double() is out of range for type "
                "double precision"
            )
            return self._error(_NOT_NUMERIC, wrong)
        if given:
            item = _OF_FLOAT(value)
        return self._after(path, at, item, found)

    def _key_values(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        if not isinstance(item, dict):
            return self._error(
                _NO_OBJECT, "jsonpath item method .keyvalue() can only be applied to an object"
            )
        done = _NOTHING
        number = Decimal(
            self._ids.setdefault(id(item), len(self._ids)) if item is not self._root else 0
        )
        for key, value in item.items():
            if at + 1 == len(path) and found is None:
                return _FOUND
            done = self._after(path, at, {"id": number, "key": key, "value": value}, found)
            if done is _FAILED or (done is _FOUND and found is None):
                break
        return done

    # -- arithmetic

    def _unwrapped(self, path: Path, item: object, found: Items) -> Done:
        """What a path leads to; in lax mode arrays among it stand for their elements."""
        if not self._lax:
            return self.run(path, item, found)
        some: Items = []
        if self.run(path, item, some) is _FAILED:
            return _FAILED
        for one in some:
            for part in one if isinstance(one, list) else (one,):
                _keep(found, part)
        return _FOUND

    def _arithmetic(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        one = path[at]
        if one.kind in _UNARY:
            return self._signed(path, at, item, found)
        operands: list[Items] = [[], []]
        for arg, values in zip(one.args, operands, strict=True):
            if self._unwrapped(arg, item, values) is _FAILED:
                return _FAILED
        for side, values in zip(("left", "right"), operands, strict=True):
            if len(values) != 1 or not isinstance(values[0], Decimal):
                return self._error(
                    _NOT_SINGLE,
                    f"{side} operand of jsonpath operator {one.kind} is not a single numeric value",
                )
        try:
            value = _ARITHMETIC[one.kind](operands[0][0], operands[1][0])
        except SqlError:
            if self._throws:
                raise
            return _FAILED
        if at + 1 == len(path) and found is None:
            return _FOUND
        return self._after(path, at, value, found)

    def _signed(self, path: Path, at: int, item: object, found: Items | None) -> Done:
        one, values = path[at], list[Any]()
        if self._unwrapped(one.args[0], item, values) is _FAILED:
            return _FAILED
        done, ends = _NOTHING, at + 1 == len(path) and found is None
        for value in values:
            if isinstance(value, Decimal):
                if ends:
                    return _FOUND
            elif ends:
                continue
            else:
                return self._error(
                    _NO_NUMBER,
                    f"operand of unary jsonpath operator {one.kind[1]} is not a numeric value",
                )
            next_one = self._after(path, at, _UNARY[one.kind](value), found)
            if next_one is _FAILED:
                return next_one
            if next_one is _FOUND:
                if found is None:
                    return _FOUND
                done = _FOUND
        return done

    # -- predicates: True, False, or None for unknown

    def _holds(self, one: Item, item: object) -> bool | None:
        pause()
        match one.kind:
            case "&&":
                left = self._holds(one.args[0][0], item)
                if left is False:
                    return False
                right = self._holds(one.args[1][0], item)
                return left if right is True else right
            case "||":
                left = self._holds(one.args[0][0], item)
                if left is True:
                    return True
                right = self._holds(one.args[1][0], item)
                return left if right is False else right
            case "!":
                inner = self._holds(one.args[0][0], item)
                return None if inner is None else not inner
            case "is unknown":
                return self._holds(one.args[0][0], item) is None
            case "exists":
                return self._exists(one, item)
            case _:
                return self._compared(one, item)

    def _quietly(self, run: Callable[[], Done]) -> Done:
        throws, self._throws = self._throws, False
        try:
            return run()
        finally:
            self._throws = throws

    def _exists(self, one: Item, item: object) -> bool | None:
        found: Items | None = None if self._lax else []
        done = self._quietly(lambda: self.run(one.args[0], item, found))
        if done is _FAILED:
            return None
        return done is _FOUND if found is None else bool(found)

    def _compared(self, one: Item, item: object) -> bool | None:
        test = _COMPARING.get(one.kind, self._order)
        left, right = list[Any](), list[Any]()
        if self._quietly(lambda: self._unwrapped(one.args[0], item, left)) is _FAILED:
            return None
        if len(one.args) == 1:
            right.append(None)
        elif one.kind in COMPARISONS:
            if self._quietly(lambda: self._unwrapped(one.args[1], item, right)) is _FAILED:
                return None
        elif self._quietly(lambda: self.run(one.args[1], item, right)) is _FAILED:
            return None
        failed = found = False
        for a in left:
            for b in right:
                pause()
                holds = test(one, a, b)
                if holds is None:
                    if not self._lax:
                        return None
                    failed = True
                elif holds:
                    if self._lax:
                        return True
                    found = True
        return True if found else None if failed else False

    def _order(self, one: Item, a: Any, b: Any) -> bool | None:
        if isinstance(a, list | dict) and isinstance(b, list | dict):
            return None
        if type(a) is not type(b):
            return one.kind == "!=" if a is None or b is None else None
        if isinstance(a, Moment):
            env = self._env
            zone, now = (None, None) if env is None else (env.style.zone, env.now)
            order = json_datetimes.compare(a, b, zone, now)
        else:
            order = 0 if a is None or a == b else -1 if a < b else 1
        return None if order is None else _SIGNS[one.kind](order)


def type_of(value: object) -> str:
    if isinstance(value, Moment):
        return value.type_name
    return next(name for kind, name in _TYPES if isinstance(value, kind))


_SIGNS: Final[dict[str, Callable[[int], bool]]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _starts_with(one: Item, a: object, b: object) -> bool | None:
    if isinstance(a, str) and isinstance(b, str):
        return a.startswith(b)
    return None


def _like_regex(one: Item, a: object, b: object) -> bool | None:
    if not isinstance(a, str):
        return None
    pattern, flags = one.value
    return regex(pattern, options(flags)).test(a)


def options(flags: str) -> str:
    """XQuery's flags as PostgreSQL's options of regular expressions: a dot matches no line feed
    unless `s` says so, ^ and $ are the whole text's unless `m` does.
    """
    case = "i" if "i" in flags else ""
    if "q" in flags:
        return case + "q"
    lines = {"": "p", "s": "s", "m": "n", "sm": "w"}
    return case + lines["".join(flag for flag in "sm" if flag in flags)]


_COMPARING: Final[dict[str, Callable[[Item, Any, Any], bool | None]]] = {
    "starts with": _starts_with,
    "like_regex": _like_regex,
}
_STEPS: Final[dict[str, Callable[[_Run, Path, int, object, Items | None], Done]]] = {
    "root": _Run._root_item,
    "current": _Run._current_item,
    "last": _Run._last,
    "key": _Run._key,
    "any_key": _Run._any_key,
    "any_array": _Run._any_array,
    "index": _Run._index,
    "any": _Run._any,
    "filter": _Run._filter,
    "method": _Run._method,
    "datetime": _Run._datetime,
}
_UNWRAPPED: Final = frozenset(
    ("key", "any_key", "filter", "datetime", "abs", "floor", "ceiling", "double", "keyvalue")
)
"""What in lax mode is done to the elements of an array instead; methods by their names."""


# -- functions


def _evaluated(
    env: Env | None,
    text: str,
    path: str,
    variables: str | None,
    silent: bool,
    found: Items | None,
) -> Done:
    """Raises SqlError."""
    value, given = jsonb.parse(text), None if variables is None else jsonb.parse(variables)
    if given is not None and not isinstance(given, dict):
        raise SqlError(
            INVALID_PARAMETER,
            '"vars" argument is not an object',
            detail='Jsonpath parameters should be encoded as key-value pairs of "vars" object.',
        )
    expression = parse(path)
    run = _Run(expression.lax, value, given, not silent, env)
    if found is None and not expression.lax:
        found = []  # all that is there, since an error may come after the first
    try:
        done = run.run(expression.path, value, found)
    except RecursionError:
        raise too_deep() from None
    if done is _FAILED or found is None:
        return done
    return _FOUND if found else _NOTHING


def _exists(
    env: Env | None, text: str, path: str, variables: str | None = "{}", silent: bool = False
) -> bool | None:
    done = _evaluated(env, text, path, variables, silent, None)
    return None if done is _FAILED else done is _FOUND


def _match(
    env: Env | None, text: str, path: str, variables: str | None = "{}", silent: bool = False
) -> bool | None:
    found: Items = []
    _evaluated(env, text, path, variables, silent, found)
    if len(found) == 1 and (found[0] is None or isinstance(found[0], bool)):
        return found[0]
    if silent:
        return None
    raise SqlError(_NOT_SINGLE, "single boolean result is expected")


def _found(
    env: Env | None, text: str, path: str, variables: str = "{}", silent: bool = False
) -> Items:
    found: Items = []
    _evaluated(env, text, path, variables, silent, found)
    return found


def _text(item: object) -> str:
    return jsonb.dumps(str(item) if isinstance(item, Moment) else item)


def query_tz(env: Env | None, *args: Any) -> list[str]:
    """jsonb_path_query_tz: the texts of all that is found."""
    return list(measured(map(_text, _found(env, *args))))


def _query_first(env: Env | None, *args: Any) -> str | None:
    found = _found(env, *args)
    return _text(found[0]) if found else None


def _query_array(env: Env | None, *args: object) -> str:
    return f"[{', '.join(query_tz(env, *args))}]"


def _zoneless(call: Callable[..., Any]) -> Callable[..., Any]:
    """Without a time zone: what depends on one is an error."""
    return lambda *args: call(None, *args)


query: Final[Callable[..., list[str]]] = _zoneless(query_tz)
"""jsonb_path_query."""
_ASKED: Final[dict[str, Callable[..., object]]] = {
    "exists": _exists,
    "match": _match,
    "query_array": _query_array,
    "query_first": _query_first,
}
FUNCTIONS: Final = declared(
    {
        **{f"jsonb_path_{name}": _zoneless(call) for name, call in _ASKED.items()},
        **{f"jsonb_path_{name}_tz": with_env(call) for name, call in _ASKED.items()},
        "jsonb_path_exists_opr": lambda text, path: _exists(None, text, path, None, True),
        "jsonb_path_match_opr": lambda text, path: _match(None, text, path, None, True),
    }
)
