"""Functions of text and bytea: PostgreSQL's, by the names of its C functions."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final

from kv.base.limits import SQL_VALUE_BYTES_MAX
from sqlproxy.front.functions.function import OfSite, Site, declared, nulls, total, typed
from sqlproxy.front.types import letters
from sqlproxy.front.types.quoting import quote_ident, quote_literal, quote_nullable
from sqlproxy.front.types.value_texts import writer
from sqlproxy.pg.style import Style
from sqlproxy.values.breaks import pause, paused
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    LIMIT_EXCEEDED,
    SYNTAX_ERROR,
    SqlError,
)
from sqlproxy.values.memory import bytes_of, room

_NEGATIVE: Final = "negative substring length not allowed"


# -- parts of strings


def growing(call: Callable[..., Any]) -> Callable[..., object]:
    """A function whose result may be some times longer than its arguments: 54000 if it is too
    large, so that calls inside of calls do not double it again and again.
    """

    def checked(*args: Any) -> object:
        made = call(*args)
        if made is not None:
            room(len(made))
        return made

    return checked


_SLICE: Final = 1 << 16


def by_slices(call: Callable[[str], str], value: str) -> str:
    """What a function that looks at each character by itself makes of a text, with breaks."""
    if len(value) <= _SLICE:
        return call(value)
    starts = paused(range(0, len(value), _SLICE), 1)
    return "".join([call(value[at : at + _SLICE]) for at in starts])


class Pieces:
    """A text that is put together, within the bound."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, part: str) -> None:
        """Raises SqlError (54000, 53200)."""
        self._size += bytes_of(part)
        room(self._size)
        self._parts.append(part)

    def whole(self) -> str:
        return "".join(self._parts)


def _substr(value: Any, start: int, count: int | None = None) -> object:
    if count is None:
        return value[max(start - 1, 0) :]
    if count < 0:
        raise SqlError("22011", _NEGATIVE)
    end = start + count
    return value[max(start - 1, 0) : max(end - 1, 0)]


def _overlay(value: Any, new: Any, start: int, count: int | None = None) -> object:
    if start <= 0:
        raise SqlError("22011", _NEGATIVE)
    size = len(new) if count is None else count
    return _substr(value, 1, start - 1) + new + value[max(start + size - 1, 0) :]


def _left(value: str, n: int) -> str:
    return value[:n] if n >= 0 else value[: max(len(value) + n, 0)]


def _right(value: str, n: int) -> str:
    if n >= 0:
        return value[-n:] if n else ""
    return value[-n:]


def _repeat(value: str, n: int) -> str:
    room(bytes_of(value) * max(n, 0))
    return value * max(n, 0)


def _pad(left: bool) -> Callable[..., str]:
    def call(value: str, size: int, fill: str = " ") -> str:
        if size <= 0:
            return ""
        room(size)
        if len(value) >= size or not fill:
            return value[:size]
        missing = size - len(value)
        padding = (fill * (missing // len(fill) + 1))[:missing]
        return padding + value if left else value + padding

    return call


def _strip(which: str) -> Callable[..., object]:
    def call(value: object, chars: object = " ") -> Any:
        if not chars:
            return value
        return getattr(value, which)(chars)

    return call


def _initcap(value: str) -> str:
    """The first letter of each word large, the others small."""
    out, inside = [], False
    for char in paused(value):
        out.append(letters.lower(char) if inside else letters.upper(char))
        inside = letters.in_word(char)
    return "".join(out)


def _split_part(value: str, delimiter: str, n: int) -> str:
    if n == 0:
        raise SqlError(INVALID_PARAMETER, "field position must not be zero")
    if not value:
        return ""
    if not delimiter:
        return value if n in (1, -1) else ""
    if n < 0:  # fields are told apart from the left all the same
        n += value.count(delimiter) + 2
        if n <= 0:
            return ""
    low = 0
    for _ in paused(range(n - 1)):
        at = value.find(delimiter, low)
        if at < 0:
            return ""
        low = at + len(delimiter)
    at = value.find(delimiter, low)
    return value[low:] if at < 0 else value[low:at]


def _translate(value: str, source: str, target: str) -> str:
    table: dict[int, str | None] = {}
    for i, char in enumerate(paused(source)):
        table.setdefault(ord(char), target[i] if i < len(target) else None)
    return by_slices(lambda part: part.translate(table), value)


def _ascii(value: str) -> int:
    return ord(value[0]) if value else 0


def _chr(n: int) -> str:
    if n < 0:
        raise SqlError(INVALID_PARAMETER, "character number must be positive")
    if n == 0:
        raise SqlError("54000", "null character not permitted")
    if n > 0x10FFFF:
        raise SqlError("54000", f"requested character too large for encoding: {n}")
    if 0xD800 <= n <= 0xDFFF:
        raise SqlError("54000", f"requested character not valid for encoding: {n}")
    return chr(n)


def _replace(value: str, old: str, new: str) -> str:
    if not old:
        return value
    room(bytes_of(value) + value.count(old) * bytes_of(new))
    return value.replace(old, new)


def _hex(bits: int) -> Callable[[int], str]:
    return lambda value: format(value & (1 << bits) - 1, "x")


_HOW_CHARS_MAX: Final = 16  # of "hex", "base64" and "escape"


def _encode(value: bytes, how: str) -> str:
    room(2 * len(value))
    match how[:_HOW_CHARS_MAX].lower():
        case "hex":
            return value.hex()
        case "base64":
            text = base64.b64encode(value).decode()
            return "\n".join(text[i : i + 76] for i in paused(range(0, len(text), 76)))
        case "escape":
            return "".join(
                "\\\\" if b == 0x5C else f"\\{b:03o}" if b == 0 or b >= 0x80 else chr(b)
                for b in paused(value)
            )
        case _:
            raise SqlError(INVALID_PARAMETER, f'unrecognized encoding: "{how}"')


def _decode(text: str, how: str) -> bytes:
    from sqlproxy.front.types.value_texts import read_bytea

    match how[:_HOW_CHARS_MAX].lower():
        case "hex":
            return read_bytea("\\x" + text)
        case "base64":
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except ValueError:
                raise SqlError(INVALID_PARAMETER, "invalid base64 end sequence") from None
        case "escape":
            return read_bytea(text)
        case _:
            raise SqlError(INVALID_PARAMETER, f'unrecognized encoding: "{how}"')


def _convert_from(value: bytes, encoding: str) -> str:
    try:
        return value.decode("utf-8" if encoding.upper() in ("UTF8", "UTF-8") else encoding)
    except UnicodeDecodeError as error:
        bad = value[error.start : error.start + 1].hex()
        raise SqlError(
            "22021", f'invalid byte sequence for encoding "{encoding.upper()}": 0x{bad}'
        ) from None
    except LookupError:
        raise SqlError(INVALID_PARAMETER, f'invalid source encoding name "{encoding}"') from None


def _convert_to(value: str, encoding: str) -> bytes:
    try:
        return value.encode("utf-8" if encoding.upper() in ("UTF8", "UTF-8") else encoding)
    except LookupError:
        raise SqlError(
            INVALID_PARAMETER, f'invalid destination encoding name "{encoding}"'
        ) from None
    except UnicodeEncodeError:
        raise SqlError(
            "22P05", f'character has no equivalent in encoding "{encoding.upper()}"'
        ) from None


def _digest(name: str) -> Callable[[bytes], bytes]:
    return lambda value: hashlib.new(name, value).digest()


def _unistr(value: str) -> str:
    def one(found: re.Match[str]) -> str:
        pause()
        if found[0] == "\\\\":
            return "\\"
        if found[0] == "\\":
            raise SqlError(
                SYNTAX_ERROR,
                "invalid Unicode escape",
                hint="Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.",
            )
        return chr(int(re.sub(r"^\\[+uU]?", "", found[0]), 16))

    return re.sub(
        r"\\\\|\\\+[0-9A-Fa-f]{6}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\[0-9A-Fa-f]{4}|\\",
        one,
        value,
    )


# -- functions that take values of any type


def output(oid: int, style: Style) -> Callable[[Any], str]:
    """The type's output function, as concat and format use it: bool is t or f."""
    if oid == 16:
        return lambda value: "t" if value else "f"
    return writer(oid, style)


def _concat(site: Site) -> Callable[..., object]:
    if site.variadic:
        writers = [writer_of_elements(site.types[-1], site.style)]
        return lambda values: (
            None if values is None else "".join(v for v in writers[0](values) if v is not None)
        )
    outputs = [output(t, site.style) for t in site.types]

    def call(*values: object) -> str:
        return "".join(w(v) for w, v in zip(outputs, values, strict=True) if v is not None)

    return call


def writer_of_elements(array: int, style: Style) -> Callable[[list[object]], list[str | None]]:
    from sqlproxy.front.types.registry import element_of

    write = output(element_of(array), style)
    return lambda values: [None if v is None else write(v) for v in values]


def _concat_ws(site: Site) -> Callable[..., object]:
    if site.variadic:
        spread = writer_of_elements(site.types[-1], site.style)

        def of_array(separator: str | None, values: list[object] | None) -> str | None:
            if separator is None or values is None:
                return None
            return separator.join(v for v in spread(values) if v is not None)

        return of_array
    outputs = [output(t, site.style) for t in site.types[1:]]

    def call(separator: str | None, *values: object) -> str | None:
        if separator is None:
            return None
        return separator.join(w(v) for w, v in zip(outputs, values, strict=True) if v is not None)

    return call


_WIDTH_DIGITS: Final = 10
_FORMAT: Final = re.compile(r"%(?:(\d+)\$)?(-)?(?:(\d+)|(\*)(?:(\d+)\$)?)?(.|$)", re.DOTALL)


def _format(site: Site) -> Callable[..., object]:
    if site.variadic:
        spread = writer_of_elements(site.types[-1], site.style)
        return lambda text, values: None if text is None else _formatted(text, spread(values or []))
    outputs = [output(t, site.style) for t in site.types[1:]]

    def call(text: str | None, *values: object) -> str | None:
        if text is None:
            return None
        shown = [None if v is None else w(v) for w, v in zip(outputs, values, strict=True)]
        return _formatted(text, shown)

    return call


def _formatted(text: str, values: Sequence[str | None]) -> str:
    used = 0

    def one(found: re.Match[str]) -> str:
        nonlocal used
        number, minus, width, star, star_number, kind = found.groups()
        if kind == "%":
            return "%"
        if not kind:
            raise SqlError(
                INVALID_PARAMETER,
                "unterminated format() type specifier",
                hint='For a single "%" use "%%".',
            )
        size = int(width or 0) if len(width or "") < _WIDTH_DIGITS else SQL_VALUE_BYTES_MAX + 1
        if star:
            used = int(star_number) if star_number else used + 1
            size = int(_argument(values, used) or 0)
            if size < 0:
                minus, size = "-", -size
        if kind not in "sIL":
            raise SqlError(
                INVALID_PARAMETER,
                f'unrecognized format() type specifier "{kind}"',
                hint='For a single "%" use "%%".',
            )
        if number == "0":
            raise SqlError(
                INVALID_PARAMETER, "format specifies argument 0, but arguments are numbered from 1"
            )
        used = int(number) if number else used + 1
        value = _argument(values, used)
        if kind == "I":
            if value is None:
                raise SqlError("22004", "null values cannot be formatted as an SQL identifier")
            value = quote_ident(value)
        elif kind == "L":
            value = quote_nullable(value)
        value = value or ""
        room(size)
        return value.ljust(size) if minus else value.rjust(size)

    out, last = Pieces(), 0
    for found in paused(_FORMAT.finditer(text)):
        out.add(text[last : found.start()])
        out.add(one(found))
        last = found.end()
    out.add(text[last:])
    return out.whole()


def _argument(values: Sequence[str | None], number: int) -> str | None:
    if number > len(values):
        raise SqlError(INVALID_PARAMETER, "too few arguments for format()")
    return values[number - 1]


def _anycat(left: bool) -> OfSite:
    """text || anything, and the other way round: the other as a cast to text writes it."""

    def of_site(site: Site) -> Callable[..., object]:
        write = writer(site.types[0] if left else site.types[1], site.style)
        if left:
            return lambda a, b: write(a) + b
        return lambda a, b: a + write(b)

    return of_site


def _any_literal(site: Site) -> Callable[..., object]:
    write = writer(site.types[0], site.style)
    return lambda value: quote_literal(write(value))


def _any_nullable(site: Site) -> Callable[..., object]:
    write = writer(site.types[0], site.style)
    return lambda value: "NULL" if value is None else quote_literal(write(value))


def _nulls(count_null: bool) -> OfSite:
    def of_site(site: Site) -> Callable[..., object]:
        if site.variadic:
            return lambda values: (
                None if values is None else sum((v is None) is count_null for v in values)
            )
        return lambda *values: sum((v is None) is count_null for v in values)

    return of_site


def _form(name: str) -> Any:
    if name.upper() not in ("NFC", "NFD", "NFKC", "NFKD"):
        raise SqlError(INVALID_PARAMETER, f"invalid normalization form: {name}")
    return name.upper()


def _normalized(value: str, form: str = "NFC") -> str:
    """By parts that begin with ASCII, which never joins what is before it. Marks after one letter
    are sorted in a time that is the square of their number.
    """
    shape = _form(form)
    if value.isascii():
        return value
    out = Pieces()
    for part in paused(_FROM_ASCII.finditer(value), 1):
        if len(part[0]) > _MARKS_MAX and _MARKS.search(part[0]):
            raise SqlError(
                LIMIT_EXCEEDED, f"more than {_MARKS_MAX} characters beyond ASCII in a row"
            )
        out.add(unicodedata.normalize(shape, part[0]))
    return out.whole()


_MARKS_MAX: Final = 10_000
_MARKS: Final = re.compile(rf"[^\x00-\x7f]{{{_MARKS_MAX}}}")
_FROM_ASCII: Final = re.compile(rf"[\x00-\x7f]{{0,{_SLICE}}}[^\x00-\x7f]*")
FUNCTIONS: Final = declared(
    {
        "textcat": growing(lambda a, b: a + b),
        "byteacat": growing(lambda a, b: a + b),
        "textlen": total(len),
        "bpcharlen": total(lambda v: len(v.rstrip(" "))),
        "textoctetlen": total(lambda v: len(v.encode())),
        "bpcharoctetlen": total(lambda v: len(v.encode())),
        "byteaoctetlen": total(len),
        "bit_length(25)": lambda v: 8 * len(v.encode()),
        "bit_length(17)": lambda v: 8 * len(v),
        "bytea_bit_count": lambda v: int.from_bytes(v).bit_count(),
        "lower": total(lambda v: by_slices(letters.lower, v)),
        "upper": total(lambda v: by_slices(letters.upper, v)),
        "initcap": total(_initcap),
        "text_substr": _substr,
        "text_substr_no_len": _substr,
        "bytea_substr": _substr,
        "bytea_substr_no_len": _substr,
        "textoverlay": growing(_overlay),
        "textoverlay_no_len": growing(_overlay),
        "byteaoverlay": growing(_overlay),
        "byteaoverlay_no_len": growing(_overlay),
        "textpos": total(lambda v, part: v.find(part) + 1),
        "byteapos": lambda v, part: v.find(part) + 1,
        "text_left": total(_left),
        "text_right": total(_right),
        "text_reverse": total(lambda v: v[::-1]),
        "repeat": _repeat,
        "lpad": _pad(True),
        "lpad(25,23)": _pad(True),
        "rpad": _pad(False),
        "rpad(25,23)": _pad(False),
        "btrim": total(_strip("strip")),
        "btrim1": total(_strip("strip")),
        "ltrim": total(_strip("lstrip")),
        "ltrim1": total(_strip("lstrip")),
        "rtrim": total(_strip("rstrip")),
        "rtrim1": total(_strip("rstrip")),
        "byteatrim": _strip("strip"),
        "bytealtrim": _strip("lstrip"),
        "byteartrim": _strip("rstrip"),
        "replace_text": total(_replace),
        "split_part": _split_part,
        "translate": _translate,
        "ascii": total(_ascii),
        "chr": _chr,
        "text_starts_with": total(lambda v, part: v.startswith(part)),
        "to_hex32": _hex(32),
        "to_hex64": _hex(64),
        "quote_ident": growing(quote_ident),
        "quote_literal": growing(quote_literal),
        "quote_nullable": nulls(growing(quote_nullable)),
        "md5_text": total(lambda v: hashlib.md5(v.encode(), usedforsecurity=False).hexdigest()),
        "md5_bytea": total(lambda v: hashlib.md5(v, usedforsecurity=False).hexdigest()),
        "sha224_bytea": _digest("sha224"),
        "sha256_bytea": _digest("sha256"),
        "sha384_bytea": _digest("sha384"),
        "sha512_bytea": _digest("sha512"),
        "binary_encode": _encode,
        "binary_decode": _decode,
        "pg_convert_from": _convert_from,
        "pg_convert_to": _convert_to,
        "unistr": _unistr,
        "unicode_normalize_func": growing(_normalized),
        "unicode_is_normalized": lambda v, form="NFC": _normalized(v, form) == v,
        "booltext": total(lambda v: "true" if v else "false"),
        "name_text": total(lambda v: v),
        "text_name": total(lambda v: v.encode()[:63].decode(errors="ignore")),
        "bpchar_name": total(lambda v: v.rstrip(" ").encode()[:63].decode(errors="ignore")),
        "name_bpchar": total(lambda v: v),
        "char_text": total(lambda v: v),
        "text_char": lambda v: v[:1],
        "char_bpchar": lambda v: v,
        "text_pattern_lt": lambda a, b: a < b,
        "text_pattern_le": lambda a, b: a <= b,
        "text_pattern_gt": lambda a, b: a > b,
        "text_pattern_ge": lambda a, b: a >= b,
        "byteaGetByte": lambda v, n: _byte(v, n),
        "text_concat": nulls(typed(lambda site: growing(_concat(site)))),
        "text_concat_ws": nulls(typed(lambda site: growing(_concat_ws(site)))),
        "text_format": nulls(typed(_format)),
        "text_format_nv": nulls(typed(_format)),
        "select $1 operator(pg_catalog.||) $2::pg_catalog.text": typed(
            lambda site: growing(_anycat(False)(site))
        ),
        "select $1::pg_catalog.text operator(pg_catalog.||) $2": typed(
            lambda site: growing(_anycat(True)(site))
        ),
        "select pg_catalog.quote_literal($1::pg_catalog.text)": typed(
            lambda site: growing(_any_literal(site))
        ),
        "select pg_catalog.quote_nullable($1::pg_catalog.text)": nulls(
            typed(lambda site: growing(_any_nullable(site)))
        ),
        "pg_num_nulls": nulls(typed(_nulls(True))),
        "pg_num_nonnulls": nulls(typed(_nulls(False))),
    }
)


def _byte(value: bytes, n: int) -> int:
    if not 0 <= n < len(value):
        raise SqlError("2202E", f"index {n} out of valid range, 0..{len(value) - 1}")
    return value[n]
