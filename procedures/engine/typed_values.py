"""Declared types of arguments and results: plain data to values of a class and back, by msgspec.

A record keeps plain data only (plain_data.py), so that every later program can read it; a class is
a way to look at it. What is wrong is reported with its place: `arguments of transfer: the field
amount: Expected int, got str`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, get_origin

import msgspec
import msgspec.inspect

from kv.base.errors import InvalidArgument, KvorumError
from kv.base.limits import PLAIN_DEPTH_MAX
from procedures.engine.procedure import Outcome

_ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})
_KEPT: Final = (bytes,)  # plain data have them; msgspec would ask for base64


@dataclass(frozen=True, slots=True)
class Shape:
    """One declared type."""

    kind: Any

    def read(self, value: object, what: str) -> Any:
        """A value of the type from plain data (or from such a value). Raises InvalidArgument."""
        try:
            return msgspec.convert(
                value, self.kind, builtin_types=_KEPT, from_attributes=True, strict=True
            )
        except msgspec.ValidationError as error:
            raise InvalidArgument(
                f"{what}: {_place_first(str(error))}", code="BAD_ARGUMENTS", details={"what": what}
            ) from None
        except KvorumError:
            raise
        except Exception as error:  # the type's own check may raise anything
            raise InvalidArgument(
                f"{what}: the check of its type raised {type(error).__name__}: {error}",
                code="BAD_ARGUMENTS",
                details={"what": what},
            ) from error

    def plain(self, value: object, what: str) -> object:
        """The plain data of a value of the type, checked; a field that the type does not have is
        refused: it is misspelt, or meant for another version. (`read` passes it over: what was
        stored by an earlier version stays readable.) Raises InvalidArgument.
        """
        data = plain_of(value, what)
        self.read(data, what)
        if (place := _unknown(data, msgspec.inspect.type_info(self.kind), "")) is not None:
            path, known = place
            raise InvalidArgument(
                f"{what}: there is no field {path:.80}; there are {', '.join(known) or 'none'}",
                code="BAD_ARGUMENTS",
                details={"what": what},
            )
        return data

    @property
    def runs_code(self) -> bool:
        """Whether reading a value may call code of the type's author, or take any time."""
        return _runs_code(msgspec.inspect.type_info(self.kind), set())

    def canonical(self, value: object, what: str) -> object:
        """Plain data of what `plain` takes, to be compared: the same for all ways to write it, with
        the defaults of what was left out, and a float where the type says so. Raises
        InvalidArgument.
        """
        return _whole(self.read(self.plain(value, what), what))


_DEFAULTS: Final = (list, dict, set, frozenset, tuple, bytearray)


def _runs_code(info: object, met: set[object]) -> bool:
    """Of what msgspec.inspect knows of a type: a method of its author's, a default that is made by
    a function, or a pattern, which may take long on the right text.
    """
    if (cls := getattr(info, "cls", None)) is not None:
        if cls in met:
            return False
        met.add(cls)
        if _has_code(get_origin(cls) or cls):  # of Box[int] it is Box that has the methods
            return True
    if getattr(info, "pattern", None) is not None or isinstance(info, msgspec.inspect.CustomType):
        return True
    inside = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type", "type")]
    for one in getattr(info, "fields", ()):
        made = getattr(one, "default_factory", msgspec.NODEFAULT)
        if made is not msgspec.NODEFAULT and made not in _DEFAULTS:
            return True
        inside.append(one.type)
    inside += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return any(_runs_code(one, met) for one in inside if isinstance(one, msgspec.inspect.Type))


def _has_code(cls: type) -> bool:
    """Whether a class has methods that msgspec calls, its own or those of a class above it."""
    if hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_attrs__"):
        return True
    return any("_missing_" in vars(one) for one in cls.__mro__ if one.__module__ != "enum")


def _whole(value: object) -> object:
    """All fields, also those at which msgspec leaves a dataclass's default where it is."""
    if isinstance(value, msgspec.Struct):
        return {name: _whole(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {one.name: _whole(getattr(value, one.name, None)) for one in fields(value)}
    if isinstance(value, Mapping):
        items = ((msgspec.to_builtins(k, builtin_types=_KEPT), v) for k, v in value.items())
        return {key: _whole(one) for key, one in items}
    if isinstance(value, list | tuple):
        return [_whole(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((_whole(one) for one in value), key=msgspec.msgpack.encode)
    return msgspec.to_builtins(value, builtin_types=_KEPT)


def shape(kind: object, what: str) -> Shape:
    """The shape of a type. Raises InvalidArgument for one that msgspec cannot read."""
    try:
        msgspec.json.schema(kind)
        msgspec.msgpack.Decoder(kind)
    except (TypeError, NameError) as error:
        raise InvalidArgument(
            f"{what}: {kind!r:.80} cannot be read from plain data: {error}",
            code="PROCEDURE_DECLARATION",
        ) from None
    return Shape(kind)


_Fielded: Final = (
    msgspec.inspect.StructType,
    msgspec.inspect.DataclassType,
    msgspec.inspect.TypedDictType,
)


def _unknown(value: object, kind: object, path: str) -> tuple[str, list[str]] | None:
    """The first field that a type does not have, and those that it has."""
    if isinstance(kind, msgspec.inspect.UnionType):
        found = [_unknown(value, one, path) for one in kind.types if _could_be(value, one)]
        return None if None in found or not found else found[0]
    if isinstance(value, Mapping) and isinstance(kind, _Fielded):
        known = {field.encode_name: field.type for field in kind.fields}
        tag = getattr(kind, "tag_field", None)
        for name, one in value.items():
            inside = f"{path}.{name}" if path else str(name)
            if name not in known and name != tag:
                return inside, list(known)
            if name in known and (found_ := _unknown(one, known[name], inside)) is not None:
                return found_
        return None
    if isinstance(value, Mapping) and isinstance(kind, msgspec.inspect.DictType):
        items = ((kind.value_type, one, f"{path}[{name!r}]") for name, one in value.items())
    elif isinstance(value, list | tuple) and isinstance(kind, msgspec.inspect.TupleType):
        pairs = zip(kind.item_types, value, strict=True)  # `read` has compared the lengths
        items = ((k, v, f"{path}[{i}]") for i, (k, v) in enumerate(pairs))
    elif isinstance(value, list | tuple) and hasattr(kind, "item_type"):
        items = ((kind.item_type, one, f"{path}[{i}]") for i, one in enumerate(value))
    else:
        return None
    return next((f for k, v, p in items if (f := _unknown(v, k, p)) is not None), None)


def _could_be(value: object, kind: object) -> bool:
    """Which of the types of a union may be meant."""
    is_map = isinstance(kind, (*_Fielded, msgspec.inspect.DictType, msgspec.inspect.AnyType))
    return is_map == isinstance(value, Mapping)


def plain_of(value: object, what: str, depth: int = 0) -> object:
    """Dataclasses and Structs, also those in lists and dicts, as plain dicts; anything else as it
    is. Raises InvalidArgument, also for how a step of a class ends.
    """
    if type(value) in _ATOMS or depth > PLAIN_DEPTH_MAX:
        return value  # what is nested deeper is refused when it is stored
    if type(value) is dict:
        return {key: plain_of(one, what, depth + 1) for key, one in value.items()}
    if type(value) is list or type(value) is tuple:
        return [plain_of(one, what, depth + 1) for one in value]
    if isinstance(value, Outcome):
        raise InvalidArgument(
            f"{what} is kvorum.{type(value).__name__.lower()}(…), with which a step of a class "
            "ends; a function returns its result, and raises kvorum.Refused(message, code=…) to "
            "fail"
        )
    if isinstance(value, type) or not (is_dataclass(value) or isinstance(value, msgspec.Struct)):
        return value
    try:
        return msgspec.to_builtins(value, builtin_types=_KEPT, str_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not plain data: {error}") from None


def _place_first(text: str) -> str:
    """msgspec's words: "Expected `int`, got `str` - at `$.amount`" → the place first."""
    says, at, place = text.rpartition(" - at `")
    if not at:
        return text
    field = place.rstrip("`").removeprefix("$")
    return f"the field {field.lstrip('.') or 'itself'}: {says}"


def hints_of(fn: Callable[..., object]) -> dict[str, object]:
    """Annotations of a function; those that cannot be found out count as none."""
    try:
        return typing.get_type_hints(fn)
    except Exception:  # noqa: BLE001  names that exist for type checkers only
        return {}


def shape_of(kind: object, what: str) -> Shape | None:
    """None: whatever is plain. Raises InvalidArgument for a type that cannot be read."""
    if kind is None or kind is Any or kind is type(None) or kind is object:
        return None
    return shape(kind, what)
