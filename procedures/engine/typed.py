"""Declared types of arguments and results: plain data to values of a class and back, by msgspec.

A record keeps plain data only (plain.py), so that every later program can read it; a class is a way
to look at it. What is wrong is told with its place: `arguments of transfer: the field amount:
Expected int, got str`.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any, Final

import msgspec

from kv.base.errors import InvalidArgument

_KEPT: Final = (bytes,)  # plain data have them; msgspec would ask for base64


@dataclass(frozen=True, slots=True)
class Shape:
    """One declared type."""

    kind: Any

    def read(self, value: Any, what: str) -> Any:
        """A value of the type from plain data (or from such a value). Raises InvalidArgument."""
        try:
            return msgspec.convert(
                value, self.kind, builtin_types=_KEPT, from_attributes=True, strict=True
            )
        except msgspec.ValidationError as error:
            raise InvalidArgument(
                f"{what}: {_told(str(error))}", code="BAD_ARGUMENTS", details={"what": what}
            ) from None

    def plain(self, value: Any, what: str) -> Any:
        """The plain data of a value of the type, checked. Raises InvalidArgument."""
        data = plain_of(value, what)
        self.read(data, what)
        return data


def shape(kind: Any, what: str) -> Shape:
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


def plain_of(value: Any, what: str) -> Any:
    """A dataclass or Struct as a plain dict; anything else as it is."""
    if isinstance(value, type) or not (is_dataclass(value) or isinstance(value, msgspec.Struct)):
        return value
    try:
        return msgspec.to_builtins(value, builtin_types=_KEPT, str_keys=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not plain data: {error}") from None


def _told(text: str) -> str:
    """msgspec's words: "Expected `int`, got `str` - at `$.amount`" → the place first."""
    says, at, place = text.rpartition(" - at `")
    if not at:
        return text
    field = place.rstrip("`").removeprefix("$")
    return f"the field {field.lstrip('.') or 'itself'}: {says}"
