"""json and jsonb: operators and functions over their text. jsonb's text is canonical
(`sqlproxy.values.jsonb`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlproxy.front.functions.f_numbers import FUNCTIONS as NUMBERS
from sqlproxy.front.functions.f_numbers import result
from sqlproxy.front.functions.function import Declared, OfSite, Site, declared, nulls, total, typed
from sqlproxy.front.types.registry import INTEGERS, element_of
from sqlproxy.front.types.value_texts import writer
from sqlproxy.pg import oids
from sqlproxy.pg.arrays import measured
from sqlproxy.pg.style import Style
from sqlproxy.values import jsonb
from sqlproxy.values.arrays import flat
from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.errors import INVALID_PARAMETER, SqlError
from sqlproxy.values.memory import bytes_of, room

_MISSING: Final = object()


def load(text: str) -> object:
    return jsonb.parse(text)


dump = jsonb.dumps


# -- json keeps its text: parts of it are cut out as they stand

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SCALAR: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[^\s,\]}]++', re.DOTALL)
_MARK: Final = re.compile(r'["{}\[\]]')
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\]]|[^\s,:"{}\[\]]++', re.DOTALL)
_OPENING, _CLOSING = frozenset("{["), frozenset("}]")


def parts(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The first character of a JSON text and its members: (key, text), keys "" in an array."""
    at = _skip(text, 0)
    opening = text[at]
    if opening not in "{[":
        return opening, []
    found, at = [], _skip(text, at + 1)
    while text[at] not in "}]":
        pause()
        key = ""
        if opening == "{":
            mark = _SCALAR.match(text, at)
            assert mark is not None
            key = json.loads(mark[0])
            at = _skip(text, _skip(text, mark.end()) + 1)
        end = _end(text, at)
        found.append((key, text[at:end]))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return opening, found


def _skip(text: str, at: int) -> int:
    mark = _SPACE.match(text, at)
    assert mark is not None
    return mark.end()


def _end(text: str, at: int) -> int:
    if text[at] not in "{[":
        mark = _SCALAR.match(text, at)
        assert mark is not None
        return mark.end()
    depth = 0
    while True:
        pause()
        mark = _MARK.search(text, at)
        assert mark is not None
        at, char = mark.start(), mark[0]
        if char == '"':
            mark = _SCALAR.match(text, at)
            assert mark is not None
            at = mark.end()
            continue
        depth += (char in "{[") - (char in "}]")
        at += 1
        if depth == 0:
            return at


def _json_member(text: str, key: str | int) -> str | None:
    opening, members = parts(text)
    if isinstance(key, int):
        if opening != "[":
            return None
        at = key if key >= 0 else len(members) + key
        return members[at][1] if 0 <= at < len(members) else None
    if opening != "{":
        return None
    return next((value for k, value in reversed(members) if k == key), None)


def json_text(part: str | None) -> str | None:
    if part is None or part == "null":
        return None
    if part.startswith('"'):
        text: str = json.loads(part)
        return text
    return part


def _json_path(text: str, path: Sequence[str | None]) -> str | None:
    found: str | None = text.strip()
    for step in flat(path):
        if step is None or found is None:
            return None
        if found.startswith("[") and re.fullmatch(r"[+-]?\d+", step):
            found = _json_member(found, int(step))
        else:
            found = _json_member(found, step)
    return found


# -- jsonb


def _member(value: object, key: str | int) -> object:
    if isinstance(key, int):
        if isinstance(value, dict):
            return _MISSING
        if not isinstance(value, list):
            value = [value]  # jsonb keeps a scalar as an array of one
        at = key if key >= 0 else len(value) + key
        return value[at] if 0 <= at < len(value) else _MISSING
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _field(as_text: bool) -> Callable[[str, str | int], str | None]:
    def call(text: str, key: str | int) -> str | None:
        return _shown(_member(load(text), key), as_text)

    return call


def _shown(value: object, as_text: bool) -> str | None:
    if value is _MISSING:
        return None
    if as_text:
        if value is None:
            return None
        if isinstance(value, str):
            return value
    return dump(value)


def _at_path(value: object, path: Sequence[str | None]) -> object:
    for step in flat(path):
        if step is None:
            return _MISSING
        if isinstance(value, list):
            if not re.fullmatch(r"[+-]?\d+", step):
                return _MISSING
            value = _member(value, int(step))
        else:
            value = _member(value, step)
        if value is _MISSING:
            return value
    return value


def _path(as_text: bool) -> Callable[[str, Sequence[str | None]], str | None]:
    return lambda text, path: _shown(_at_path(load(text), path), as_text)


def _contains(a: object, b: object) -> bool:
    pause()
    if isinstance(a, dict) and isinstance(b, dict):
        return all(k in a and _contains(a[k], v) for k, v in paused(b.items()))
    if isinstance(a, list) and isinstance(b, list):
        scalars = {_scalar(x) for x in paused(a) if not isinstance(x, dict | list)}
        inner = [x for x in paused(a) if isinstance(x, dict | list)]
        return all(
            any(_contains(x, y) for x in inner)
            if isinstance(y, dict | list)
            else _scalar(y) in scalars
            for y in paused(b)
        )
    if isinstance(a, dict | list) or isinstance(b, dict | list):
        return False
    return _scalar(a) == _scalar(b)


def _scalar(value: object) -> tuple[type, object]:
    """Python's True is 1."""
    return type(value), value


def _contained_in(text: str, other: str) -> bool:
    a, b = load(text), load(other)
    if isinstance(a, list) and not isinstance(b, list | dict):
        b = [b]
    return _contains(a, b)


def _exists(text: str, key: str) -> bool:
    return key in _names(load(text))


def _exist(which: Callable[[Iterable[bool]], bool]) -> Callable[..., bool]:
    """`any` or `all` of the keys; those that are NULL do not count."""

    def call(text: str, keys: Sequence[str | None]) -> bool:
        names = _names(load(text))
        return which(key in names for key in paused(flat(keys)) if key is not None)

    return call


def _names(value: object) -> Collection[object]:
    """What `?` finds: an object's keys, an array's texts, or the text itself."""
    if isinstance(value, dict):
        return value
    inside = value if isinstance(value, list) else [value]
    return {v for v in paused(inside) if isinstance(v, str)}


def _concat(text: str, other: str) -> str:
    a, b = load(text), load(other)
    if isinstance(a, dict) and isinstance(b, dict):
        return dump(jsonb.ordered([*a.items(), *b.items()]))
    left = a if isinstance(a, list) else [a]
    right = b if isinstance(b, list) else [b]
    return dump([*left, *right])


def _scalar_error(what: str) -> SqlError:
    return SqlError(INVALID_PARAMETER, what)


def _delete(text: str, key: str) -> str:
    value = load(text)
    if isinstance(value, dict):
        return dump({k: v for k, v in paused(value.items()) if k != key})
    if isinstance(value, list):
        return dump([v for v in paused(value) if not (isinstance(v, str) and v == key)])
    raise _scalar_error("cannot delete from scalar")


def _one_dimension(value: Sequence[object]) -> list[Any]:
    """The array; raises SqlError if it is of several dimensions."""
    if any(isinstance(one, list) for one in value):
        raise SqlError("2202E", "wrong number of array subscripts")
    return list(value)


def _delete_all(text: str, keys: Sequence[str | None]) -> str:
    for key in _one_dimension(keys):
        if key is not None:
            text = _delete(text, key)
    if not isinstance(load(text), dict | list):
        raise _scalar_error("cannot delete from scalar")
    return text


def _delete_index(text: str, at: int) -> str:
    value = load(text)
    if isinstance(value, dict):
        raise _scalar_error("cannot delete from object using integer index")
    if not isinstance(value, list):
        raise _scalar_error("cannot delete from scalar")
    place = at if at >= 0 else len(value) + at
    if 0 <= place < len(value):
        del value[place]
    return dump(value)


def _delete_path(text: str, path: Sequence[str | None]) -> str:
    steps, value = _one_dimension(path), load(text)
    if not isinstance(value, dict | list):
        raise _scalar_error("cannot delete path in scalar")
    return dump(_changed(value, steps, _MISSING, False, False, False)) if steps else text


def _set(text: str, path: Sequence[str | None], new: str, create: bool = True) -> str:
    steps, value = _one_dimension(path), load(text)
    if not isinstance(value, dict | list):
        raise _scalar_error("cannot set path in scalar")
    return dump(_changed(value, steps, load(new), create, False, False)) if steps else text


def _insert(text: str, path: Sequence[str | None], new: str, after: bool = False) -> str:
    steps, value = _one_dimension(path), load(text)
    if not isinstance(value, dict | list):
        raise _scalar_error("cannot set path in scalar")
    return dump(_changed(value, steps, load(new), True, True, after)) if steps else text


def _changed(
    value: object,
    path: list[str | None],
    new: object,
    create: bool,
    insert: bool,
    after: bool,
    level: int = 1,
) -> Any:
    step, rest = path[0], path[1:]
    if step is None:
        raise SqlError("22004", f"path element at position {level} is null")
    if isinstance(value, dict):
        out = dict(value)
        if rest:
            if step in out:
                out[step] = _changed(out[step], rest, new, create, insert, after, level + 1)
        elif new is _MISSING:
            out.pop(step, None)
        elif step in out and insert:
            raise SqlError(
                INVALID_PARAMETER,
                "cannot replace existing key",
                hint="Try using the function jsonb_set to replace key value.",
            )
        elif step in out or create:
            out[step] = new
        return jsonb.ordered(list(out.items()))
    if not isinstance(value, list):
        return value
    if not re.fullmatch(r"[+-]?\d+", step):
        raise SqlError("22P02", f'path element at position {level} is not an integer: "{step}"')
    return _changed_list(list(value), int(step), rest, new, create, insert, after, level)


def _changed_list(
    out: list[object],
    at: int,
    rest: list[str | None],
    new: object,
    create: bool,
    insert: bool,
    after: bool,
    level: int,
) -> list[object]:
    place = at if at >= 0 else len(out) + at
    if not 0 <= place < len(out):
        if not rest and new is not _MISSING and create:
            out.insert(len(out) if place >= 0 else 0, new)
        return out
    if rest:
        out[place] = _changed(out[place], rest, new, create, insert, after, level + 1)
    elif new is _MISSING:
        del out[place]
    elif insert:
        out.insert(place + after, new)
    else:
        out[place] = new
    return out


_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (str, "string"),
    (Decimal, "number"),
    (list, "array"),
    (dict, "object"),
    (type(None), "null"),
)


def _typeof(text: str) -> str:
    value = load(text)
    return next(name for kind, name in _TYPES if isinstance(value, kind))


def _length(text: str) -> int:
    value = load(text)
    if isinstance(value, list):
        return len(value)
    what = "a non-array" if isinstance(value, dict) else "a scalar"
    raise SqlError(INVALID_PARAMETER, f"cannot get array length of {what}")


def _stripped(value: object) -> object:
    if isinstance(value, dict):
        return {k: _stripped(v) for k, v in value.items() if v is not None}
    return [_stripped(v) for v in value] if isinstance(value, list) else value


def _json_stripped(text: str) -> str:
    """Of a text whose keys and numbers stay as they stand: in one pass, however deep it is."""
    found: list[str] = []
    opened, begun = [""], [False]  # what is open, and whether it has a member
    key = ""
    for mark in paused(_TOKEN.finditer(text)):
        token = mark[0]
        if token in _CLOSING:
            opened.pop()
            begun.pop()
            found.append(token)
            continue
        shown = dump(json.loads(token)) if token[0] == '"' else token
        if opened[-1] == "{" and not key:
            key = f"{shown}:"
            continue
        if not (key and token == "null"):
            found += ["," if begun[-1] else "", key, shown]
            begun[-1] = True
        key = ""
        if token in _OPENING:
            opened.append(token)
            begun.append(False)
    return "".join(found)


def _pretty(text: str) -> str:
    made = bytes_of(text)

    def show(value: object, indent: str) -> str:
        nonlocal made
        inner = indent + "    "
        if isinstance(value, dict | list):
            made += len(inner) * len(value)
            room(made)
        if isinstance(value, dict):
            if not value:
                return "{\n" + indent + "}"
            lines = [f"{inner}{dump(k)}: {show(v, inner)}" for k, v in value.items()]
            return "{\n" + ",\n".join(lines) + "\n" + indent + "}"
        if isinstance(value, list):
            if not value:
                return "[\n" + indent + "]"
            return "[\n" + ",\n".join(inner + show(v, inner) for v in value) + "\n" + indent + "]"
        return dump(value)

    return show(load(text), "")


# -- to JSON, by the values' types


def json_writer(oid: int, style: Style) -> Callable[[Any], str]:
    """A value of a type as JSON text, as to_json writes it. None is null."""
    if oid in (oids.JSON, oids.JSONB):
        return lambda v: "null" if v is None else v
    if element := element_of(oid):
        inner = json_writer(element, style)

        def each(value: Any) -> str:
            if value is None:
                return "null"
            parts = (each(v) if isinstance(v, list) else inner(v) for v in paused(value))
            return "[" + ",".join(measured(parts)) + "]"

        return each
    if oid == oids.BOOL:
        return lambda v: "null" if v is None else "true" if v else "false"
    if oid in INTEGERS:
        return lambda v: "null" if v is None else str(v)
    write = writer(oid, style)
    if oid in (oids.NUMERIC, 700, 701):
        finite = Decimal.is_finite if oid == oids.NUMERIC else math.isfinite
        return lambda v: "null" if v is None else write(v) if finite(v) else dump(write(v))
    if oid in (oids.DATE, oids.TIMESTAMP, oids.TIMESTAMPTZ):
        return lambda v: "null" if v is None else dump(_iso(write(v), oid))
    return lambda v: "null" if v is None else dump(write(v))


def as_key(text: str) -> str:
    """A value's JSON as a member's name. Raises SqlError (22023): it is no scalar."""
    if text.startswith(("{", "[")):
        raise SqlError(INVALID_PARAMETER, "key value must be scalar, not array, composite, or json")
    return text if text.startswith('"') else f'"{text}"'


def _iso(text: str, oid: int) -> str:
    text = text.replace(" ", "T", 1)
    if oid == oids.TIMESTAMPTZ and re.search(r"[+-]\d\d$", text):
        text += ":00"
    return text


def _to(canonical: bool) -> OfSite:
    def of_site(site: Site) -> Callable[..., object]:
        write = json_writer(site.types[0], site.style)
        return (lambda v: jsonb.canonical(write(v))) if canonical else write

    return of_site


def _build_array(canonical: bool) -> OfSite:
    def of_site(site: Site) -> Callable[..., object]:
        writers = [json_writer(t, site.style) for t in site.types]

        def call(*values: object) -> str:
            text = "[" + ", ".join(w(v) for w, v in zip(writers, values, strict=True)) + "]"
            return jsonb.canonical(text) if canonical else text

        return call

    return of_site


def _build_object(canonical: bool) -> OfSite:
    def of_site(site: Site) -> Callable[..., object]:
        if len(site.types) % 2:
            raise SqlError(
                INVALID_PARAMETER,
                "argument list must have even number of elements",
                hint=f"The arguments of {'jsonb' if canonical else 'json'}_build_object() must "
                f"consist of alternating "
                "keys and values.",
            )
        keys = [json_writer(t, site.style) for t in site.types[::2]]
        writers = [json_writer(t, site.style) for t in site.types[1::2]]

        def call(*values: object) -> str:
            parts = []
            for i, (key, write) in enumerate(zip(keys, writers, strict=True)):
                if values[2 * i] is None:
                    raise SqlError(
                        INVALID_PARAMETER,
                        f"argument {2 * i + 1} cannot be null"
                        if not canonical
                        else f"argument {2 * i + 1}: key must not be null",
                        hint="Object keys should be text.",
                    )
                parts.append(f"{as_key(key(values[2 * i]))} : {write(values[2 * i + 1])}")
            text = "{" + ", ".join(parts) + "}"
            return jsonb.canonical(text) if canonical else text

        return call

    return of_site


def _object(pairs: Sequence[Any], values: Sequence[str | None] | None = None) -> str:
    if values is None:
        if pairs and isinstance(pairs[0], list):
            if len(pairs[0]) != 2:
                raise SqlError("2202E", "array must have two columns")
            pairs = _one_dimension([one for pair in pairs for one in pair])
        if len(pairs) % 2:
            raise SqlError("2202E", "array must have even number of elements")
        keys, found = pairs[::2], pairs[1::2]
    else:
        pairs, values = _one_dimension(pairs), _one_dimension(values)
        if len(pairs) != len(values):
            raise SqlError("2202E", "mismatched array dimensions")
        keys, found = pairs, values
    if any(k is None for k in keys):
        raise SqlError("22004", "null value not allowed for object key")
    members = (f"{dump(k)} : {dump(v)}" for k, v in paused(zip(keys, found, strict=True)))
    return "{" + ", ".join(members) + "}"


def _to_type(name: str, kind: type, convert: Callable[[Any], object]) -> Callable[[str], object]:
    def call(text: str) -> Any:
        value = load(text)
        if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind):
            what = next(n for k, n in _TYPES if isinstance(value, k))
            what = {"number": "numeric"}.get(what, what)
            raise SqlError("22023", f"cannot cast jsonb {what} to type {name}")
        return convert(value)

    return call


def _casts() -> dict[str, Declared]:
    """jsonb → numbers and bool, by way of numeric."""
    return {
        "jsonb_bool": _to_type("boolean", bool, bool),
        "jsonb_numeric": _to_type("numeric", Decimal, result),
        **{
            f"jsonb_{short}": _to_type(name, Decimal, NUMBERS[f"numeric_{short}"].call)
            for short, name in (
                ("int2", "smallint"),
                ("int4", "integer"),
                ("int8", "bigint"),
                ("float4", "real"),
                ("float8", "double precision"),
            )
        },
    }


def _row(canonical: bool) -> OfSite:
    """Our own: the names of columns, whether an outer join may have made the row up, then their
    values. Such a row of NULLs is taken for none: NULL.
    """

    def of_site(site: Site) -> Callable[..., object]:
        writers = [json_writer(oid, site.style) for oid in site.types[2:]]

        def call(names: Sequence[str], outer: bool, *values: object) -> str | None:
            if outer and all(value is None for value in values):
                return None
            members = zip(names, writers, values, strict=True)
            text = "{" + ",".join(f"{dump(n)}:{write(v)}" for n, write, v in members) + "}"
            return jsonb.canonical(text) if canonical else text

        return call

    return of_site


FUNCTIONS: Final = declared(
    {
        **_casts(),
        "json_object_field": total(_json_member),
        "json_array_element": total(_json_member),
        "json_object_field_text": total(lambda t, k: json_text(_json_member(t, k))),
        "json_array_element_text": total(lambda t, k: json_text(_json_member(t, k))),
        "json_extract_path": total(_json_path),
        "json_extract_path_text": total(lambda t, p: json_text(_json_path(t, p))),
        "json_typeof": total(_typeof),
        "json_array_length": _length,
        "json_strip_nulls": _json_stripped,
        "jsonb_object_field": total(_field(False)),
        "jsonb_array_element": total(_field(False)),
        "jsonb_object_field_text": total(_field(True)),
        "jsonb_array_element_text": total(_field(True)),
        "jsonb_extract_path": total(_path(False)),
        "jsonb_extract_path_text": total(_path(True)),
        "jsonb_contains": total(_contained_in),
        "jsonb_contained": total(lambda a, b: _contained_in(b, a)),
        "jsonb_exists": total(_exists),
        "jsonb_exists_any": total(_exist(any)),
        "jsonb_exists_all": total(_exist(all)),
        "jsonb_concat": _concat,
        "jsonb_delete": _delete,
        "jsonb_delete_array": _delete_all,
        "jsonb_delete_idx": _delete_index,
        "jsonb_delete_path": _delete_path,
        "jsonb_set": _set,
        "jsonb_insert": _insert,
        "jsonb_typeof": total(_typeof),
        "jsonb_array_length": _length,
        "jsonb_strip_nulls": lambda t: dump(_stripped(load(t))),
        "jsonb_pretty": _pretty,
        "json_object": _object,
        "json_object_two_arg": _object,
        "jsonb_object": lambda p: jsonb.canonical(_object(p)),
        "jsonb_object_two_arg": lambda k, v: jsonb.canonical(_object(k, v)),
        "kvorum_row_json": nulls(typed(_row(False))),
        "kvorum_row_jsonb": nulls(typed(_row(True))),
        "to_json": typed(_to(False)),
        "to_jsonb": typed(_to(True)),
        "array_to_json": typed(_to(False)),
        "json_build_array": nulls(typed(_build_array(False))),
        "json_build_array_noargs": typed(_build_array(False)),
        "jsonb_build_array": nulls(typed(_build_array(True))),
        "jsonb_build_array_noargs": typed(_build_array(True)),
        "json_build_object": nulls(typed(_build_object(False))),
        "json_build_object_noargs": typed(_build_object(False)),
        "jsonb_build_object": nulls(typed(_build_object(True))),
        "jsonb_build_object_noargs": typed(_build_object(True)),
    }
)
