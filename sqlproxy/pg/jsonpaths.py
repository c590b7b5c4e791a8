"""jsonpath: its text as a tree, and the tree as PostgreSQL prints it, which is the stored form of
the type.

    parse("strict $.a[*] ? (@ > 1)")   Expression(lax=False, path=(Item("root"), Item("key", …), …))
    canonical('$.a ? (@>1)')           '$."a"?(@ > 1)'

A path is a tuple of items: what it begins with, then what is applied to that one after the other.
An operator is one item whose `args` are paths. Source: PostgreSQL 15, jsonpath.c, jsonpath_gram.y,
jsonpath_scan.l. Deliberately missing: at which token PostgreSQL's messages see a syntax error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from kv.base.limits import SQL_PATTERN_CHARS_MAX
from sqlproxy.values import jsonb
from sqlproxy.values.errors import (
    INVALID_TEXT,
    LIMIT_EXCEEDED,
    OUT_OF_RANGE,
    SYNTAX_ERROR,
    SqlError,
    too_deep,
)
from sqlproxy.values.words import words

Path = tuple["Item", ...]
LAST: Final = (1 << 32) - 1  # `last` as a bound of **
METHODS: Final = words("abs size type floor double ceiling keyvalue")
COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
PREDICATES: Final = (
    COMPARISONS | {"&&", "||", "!", "is unknown", "exists", "starts with"} | {"like_regex"}
)
_PRIORITIES: Final = {
    "||": 0,
    "&&": 1,
    **dict.fromkeys((*COMPARISONS, "starts with"), 2),
    **dict.fromkeys(("+", "-"), 3),
    **dict.fromkeys(("*", "/", "%"), 4),
    **dict.fromkeys(("u+", "u-"), 5),
}
_HIGHEST: Final = 6
_KNOWN: Final = 256


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: root, current, last, null, bool, number, string, variable; key, any_key, any_array,
    index (`value`: pairs of paths, the second None where it is no range), any (`value`: levels),
    filter, method, datetime (`value`: its template); an operator by its sign, u+ and u- of one
    operand.
    """

    kind: str
    value: Any = None
    args: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    lax: bool
    path: Path


@lru_cache(maxsize=_KNOWN)
def parse(text: str) -> Expression:
    """Raises SqlError: 42601, 22P02, 2201B by who compiles patterns, 54000, 54001."""
    if len(text) > SQL_PATTERN_CHARS_MAX:
        raise SqlError(
            LIMIT_EXCEEDED,
            f"a jsonpath of {len(text)} characters is too long: at most {SQL_PATTERN_CHARS_MAX}",
        )
    try:
        found = _Parser(text).whole()
        _check(found.path, 0, False)
        return found
    except RecursionError:
        raise too_deep() from None


def canonical(text: str) -> str:
    """As PostgreSQL prints it. Raises SqlError."""
    found, out = parse(text), list[str]()
    try:
        _write(out.append, found.path, True)
    except RecursionError:
        raise too_deep() from None
    return ("" if found.lax else "strict ") + "".join(out)


def _check(path: Path, filters: int, subscript: bool) -> None:
    """@ stands in filters, `last` in subscripts. Raises SqlError (42601)."""
    for item in path:
        if item.kind == "current" and not filters:
            raise SqlError(SYNTAX_ERROR, "@ is not allowed in root expressions")
        if item.kind == "last" and not subscript:
            raise SqlError(SYNTAX_ERROR, "LAST is allowed only in array subscripts")
        for arg in item.args:
            _check(arg, filters + (item.kind == "filter"), subscript)
        if item.kind == "index":
            for pair in item.value:
                for one in pair:
                    if one is not None:
                        _check(one, filters, True)


# -- tokens

_SPECIAL: Final = re.escape("?%$.[]{}()|&!=<>@#,*:\\-+/")
_TOKEN: Final = re.compile(
    rf"""
      (?P<space> [ \t\n\r\f]+ | /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<operator> && | \|\| | \*\* | <= | >= | == | <> | != )
    | (?P<number> (?: (?:0|[1-9][0-9]*)(?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][-+]?[0-9]+)? )
    | (?P<variable> \$(?=[^{_SPECIAL}"\ \t\n\r\f]|") )
    | (?P<text> " )
    | (?P<word> (?:[^{_SPECIAL}"\ \t\n\r\f] | \\. )+ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD: Final = re.compile(rf'(?:[^{_SPECIAL}" \t\n\r\f]|\\.)+', re.DOTALL)
_TEXT: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL
)
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HALVES: Final = re.compile("[\ud800-\udfff]")
_KEYWORDS: Final = words(
    """
    abs ceiling datetime double exists flag floor is keyvalue last lax like_regex size starts strict
    to type unknown with
    """
)
_CONSTANTS: Final = {"null": None, "true": True, "false": False}  # in lower case only


@dataclass(frozen=True, slots=True)
class _Token:
    """`kind`: sign (also of operators and keywords, `text` in lower case), name, string, number,
    variable, end.
    """

    kind: str
    text: str
    value: Any = None


def _unescaped(text: str) -> str:
    """Raises SqlError."""
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        braced, four, two, other = found.groups()
        if other is not None:
            if other in "ux":
                what = "Unicode" if other == "u" else "hexadecimal character"
                raise _wrong(f"invalid {what} escape sequence", found[0])
            return _ESCAPED.get(other, other)
        code = int(braced or four or two, 16)
        if code > 0x10FFFF:
            raise SqlError("22P05", "unsupported Unicode escape sequence")
        if not code:
            raise SqlError(
                "22P05",
                "unsupported Unicode escape sequence",
                detail="\\u0000 cannot be converted to text.",
            )
        return chr(code)

    made = _ESCAPE.sub(one, text)
    if _HALVES.search(made):
        try:
            made = made.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise SqlError(
                INVALID_TEXT,
                "invalid input syntax for type jsonpath",
                detail="Unicode high surrogate must be followed by a low surrogate.",
            ) from None
    return made


def _wrong(what: str, near: str) -> SqlError:
    where = f'at or near "{near}"' if near else "at end"
    return SqlError(SYNTAX_ERROR, f"{what} {where} of jsonpath input")


def _tokens(text: str) -> list[_Token]:
    """Raises SqlError."""
    found, at = list[_Token](), 0
    while at < len(text):
        mark = _TOKEN.match(text, at)
        if mark is None:
            raise _wrong("syntax error", text[at : at + 1])
        kind, piece, at = mark.lastgroup or "", mark[0], mark.end()
        if kind == "space":
            continue
        if piece == "/" and text.startswith("*", at):
            raise _wrong("unexpected end of comment", "")
        if kind == "number":
            if _WORD.match(text, at):
                raise _wrong("trailing junk after numeric literal", piece + text[at])
            found.append(_Token("number", piece, _number(piece)))
        elif kind == "text" or (kind == "variable" and text.startswith('"', at)):
            whole = _TEXT.match(text, at if kind == "variable" else at - 1)
            if whole is None:
                raise _wrong("unexpected end of quoted string", "")
            at = whole.end()
            value = _unescaped(whole[0][1:-1])
            found.append(_Token("string" if kind == "text" else "variable", whole[0], value))
        elif kind == "variable":
            whole = _WORD.match(text, at)
            assert whole is not None
            at = whole.end()
            found.append(_Token("variable", whole[0], _unescaped(whole[0])))
        elif kind == "word":
            found.append(_word(piece))
        elif piece == "\\":
            raise _wrong("unexpected end after backslash", "")
        else:
            found.append(_Token("sign", {"<>": "!="}.get(piece, piece)))
    return [*found, _Token("end", "")]


def _word(text: str) -> _Token:
    value = _unescaped(text)
    if value in _CONSTANTS:
        return _Token("constant", text, value)
    if value.lower() in _KEYWORDS:
        return _Token("sign", value.lower(), value)
    return _Token("name", text, value)


def _number(text: str) -> Decimal:
    try:
        return jsonb.read_number(text)
    except ValueError:
        raise SqlError(OUT_OF_RANGE, "value overflows numeric format") from None


# -- the tree


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._text = text

    @property
    def _here(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, *signs: str) -> bool:
        return self._here.kind == "sign" and self._here.text in signs

    def _take(self, *signs: str) -> bool:
        if self._is(*signs):
            self._at += 1
            return True
        return False

    def _must(self, sign: str) -> None:
        if not self._take(sign):
            raise self._error()

    def _error(self) -> SqlError:
        return _wrong("syntax error", self._here.text)

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def whole(self) -> Expression:
        if self._here.kind == "end":
            raise SqlError(INVALID_TEXT, f'invalid input syntax for type jsonpath: "{self._text}"')
        lax = not self._take("strict")
        if lax:
            self._take("lax")
        path = self._or()
        if self._here.kind != "end":
            raise self._error()
        return Expression(lax, path)

    def _predicate(self, path: Path) -> Path:
        """Raises SqlError: it is a value."""
        if not _is_predicate(path):
            raise self._error()
        return path

    def _value(self, path: Path) -> Path:
        """Raises SqlError: it is a predicate."""
        if _is_predicate(path):
            raise self._error()
        return path

    def _or(self) -> Path:
        return self._joined("||", lambda: self._joined("&&", self._comparison))

    def _joined(self, sign: str, part: Callable[[], Path]) -> Path:
        left = part()
        while self._is(sign):
            self._predicate(left)
            self._at += 1
            left = (Item(sign, args=(left, self._predicate(part()))),)
        return left

    def _comparison(self) -> Path:
        left = self._sum()
        if self._is(*COMPARISONS):
            self._value(left)
            sign = self._next().text
            return (Item(sign, args=(left, self._value(self._sum()))),)
        if self._is("starts"):
            self._value(left)
            self._at += 1
            self._must("with")
            one = self._next()
            if one.kind not in ("string", "variable"):
                self._at -= 1
                raise self._error()
            return (Item("starts with", args=(left, (Item(one.kind, one.value),))),)
        if self._is("like_regex"):
            self._value(left)
            self._at += 1
            return (Item("like_regex", self._pattern(), (left,)),)
        return left

    def _string(self) -> str:
        if self._here.kind != "string":
            raise self._error()
        return str(self._next().value)

    def _pattern(self) -> tuple[str, str]:
        pattern = self._string()
        given = self._string() if self._take("flag") else ""
        for flag in given:
            if flag not in "ismxq":
                raise SqlError(
                    SYNTAX_ERROR,
                    "invalid input syntax for type jsonpath",
                    detail=f'Unrecognized flag character "{flag}" in LIKE_REGEX predicate.',
                )
        if "x" in given and "q" not in given:
            raise SqlError(
                "0A000", 'XQuery "x" flag (expanded regular expressions) is not implemented'
            )
        return pattern, "".join(flag for flag in "ismxq" if flag in given)

    def _sum(self) -> Path:
        return self._arithmetic(("+", "-"), lambda: self._arithmetic(("*", "/", "%"), self._signed))

    def _arithmetic(self, signs: Sequence[str], part: Callable[[], Path]) -> Path:
        left = part()
        while self._is(*signs):
            self._value(left)
            sign = self._next().text
            left = (Item(sign, args=(left, self._value(part()))),)
        return left

    def _signed(self) -> Path:
        if self._take("!"):
            if self._is("exists"):
                return (Item("!", args=(self._primary(),)),)
            self._must("(")
            inner = self._predicate(self._or())
            self._must(")")
            return (Item("!", args=(inner,)),)
        if not self._is("+", "-"):
            return self._primary()
        sign = self._next().text
        inner = self._value(self._signed())
        if len(inner) == 1 and inner[0].kind == "number":
            return inner if sign == "+" else (Item("number", -inner[0].value),)
        return (Item(f"u{sign}", args=(inner,)),)

    def _primary(self) -> Path:
        one = self._next()
        match one.kind:
            case "string" | "number" | "variable":
                return self._accessors((Item(one.kind, one.value),))
            case "constant":
                value = _CONSTANTS[one.value]
                return self._accessors((Item("null" if value is None else "bool", value),))
            case "sign":
                match one.text:
                    case "$" | "@" | "last":
                        kind = {"$": "root", "@": "current"}.get(one.text, one.text)
                        return self._accessors((Item(kind),))
                    case "exists":
                        self._must("(")
                        inner = self._value(self._or())
                        self._must(")")
                        return (Item("exists", args=(inner,)),)
                    case "(":
                        inner = self._or()
                        self._must(")")
                        if _is_predicate(inner) and self._take("is"):
                            self._must("unknown")
                            return (Item("is unknown", args=(inner,)),)
                        return self._accessors(inner)
                    case _:
                        pass
            case _:
                pass
        self._at -= 1
        raise self._error()

    def _accessors(self, path: Path) -> Path:
        found = list(path)
        while self._is(".", "[", "?"):
            match self._next().text:
                case ".":
                    found.append(self._member())
                case "[":
                    found.append(self._subscripts())
                case _:
                    self._must("(")
                    found.append(Item("filter", args=(self._predicate(self._or()),)))
                    self._must(")")
        return tuple(found)

    def _member(self) -> Item:
        if self._take("*"):
            return Item("any_key")
        if self._take("**"):
            return Item("any", self._levels())
        one = self._next()
        if one.kind == "sign" and one.text in (*METHODS, "datetime") and self._take("("):
            if one.text == "datetime":
                return self._datetime()
            self._must(")")
            return Item("method", one.text)
        if one.kind in ("name", "string", "constant"):
            return Item("key", one.value)
        if one.kind == "sign" and one.text in _KEYWORDS:
            return Item("key", one.value)
        self._at -= 1
        raise self._error()

    def _datetime(self) -> Item:
        template = None if self._is(")") else self._string()
        self._must(")")
        return Item("datetime", template)

    def _levels(self) -> tuple[int, int]:
        if not self._take("{"):
            return 0, LAST
        first = last = self._level()
        if self._take("to"):
            last = self._level()
        self._must("}")
        return first, last

    def _level(self) -> int:
        if self._take("last"):
            return LAST
        one = self._here
        if one.kind != "number" or not one.text.isdigit():
            raise self._error()
        if one.value >= 1 << 31:
            raise SqlError(OUT_OF_RANGE, f'value "{one.text}" is out of range for type integer')
        self._at += 1
        return int(one.value)

    def _subscripts(self) -> Item:
        if self._take("*"):
            self._must("]")
            return Item("any_array")
        found = list[tuple[Path, Path | None]]()
        while not found or self._take(","):
            first = self._value(self._or())
            found.append((first, self._value(self._or()) if self._take("to") else None))
        self._must("]")
        return Item("index", tuple(found))


def _is_predicate(path: Path) -> bool:
    return len(path) == 1 and path[0].kind in PREDICATES


# -- the text


def _write(put: Callable[[str], None], path: Path, brackets: bool) -> None:
    """`brackets`: an operator needs them. One that something follows has them, where PostgreSQL's
    text would mean something else.
    """
    for place, item in enumerate(path):
        followed = place + 1 < len(path)
        if followed and item.kind in ("!", "is unknown", "exists"):
            put("(")
            _write_item(put, item, False, followed)
            put(")")
        else:
            _write_item(put, item, brackets or followed, followed)


def _write_item(put: Callable[[str], None], item: Item, brackets: bool, followed: bool) -> None:
    if item.kind in _AROUND:
        before, after = _AROUND[item.kind]
        _around(put, before, item.args[0], after)
    elif item.kind == "index":
        _write_subscripts(put, item)
    elif (shown := _SHOWN.get(item.kind)) is None:
        _write_operator(put, item, brackets)
    elif item.kind == "number" and followed:
        put(f"({shown(item.value)})")
    else:
        put(shown(item.value))


def _around(put: Callable[[str], None], before: str, path: Path, after: str) -> None:
    put(before)
    _write(put, path, False)
    put(after)


def _levels_text(first: int, last: int) -> str:
    if (first, last) == (0, LAST):
        return ""
    if first == last:
        return "{last}" if first == LAST else f"{{{first}}}"
    low, high = ("last" if one == LAST else str(one) for one in (first, last))
    return f"{{{low} to {high}}}"


_AROUND: Final = {
    "filter": ("?(", ")"),
    "!": ("!(", ")"),
    "is unknown": ("(", ") is unknown"),
    "exists": ("exists (", ")"),
}
_SHOWN: Final[dict[str, Callable[[Any], str]]] = {
    "root": lambda value: "$",
    "current": lambda value: "@",
    "last": lambda value: "last",
    "null": lambda value: "null",
    "bool": lambda value: "true" if value else "false",
    "number": jsonb.number,
    "string": jsonb.quoted,
    "variable": lambda value: f"${jsonb.quoted(value)}",
    "key": lambda value: f".{jsonb.quoted(value)}",
    "any_key": lambda value: ".*",
    "any_array": lambda value: "[*]",
    "any": lambda value: f".**{_levels_text(*value)}",
    "method": lambda value: f".{value}()",
    "datetime": lambda value: f".datetime({'' if value is None else jsonb.quoted(value)})",
}


def _write_subscripts(put: Callable[[str], None], item: Item) -> None:
    put("[")
    for place, (first, last) in enumerate(item.value):
        put("," if place else "")
        _write(put, first, False)
        if last is not None:
            _around(put, " to ", last, "")
    put("]")


def _write_operator(put: Callable[[str], None], item: Item, brackets: bool) -> None:
    priority = _PRIORITIES.get(item.kind, _HIGHEST)

    def operand(path: Path) -> None:
        inner = _PRIORITIES.get(path[0].kind, _HIGHEST)
        _write(put, path, inner <= priority)

    put("(" if brackets else "")
    if item.kind in ("u+", "u-"):
        put(item.kind[1])
        operand(item.args[0])
    elif item.kind == "like_regex":
        pattern, flags = item.value
        operand(item.args[0])
        put(f" like_regex {jsonb.quoted(pattern)}" + (f' flag "{flags}"' if flags else ""))
    else:
        operand(item.args[0])
        put(f" {item.kind} ")
        operand(item.args[1])
    put(")" if brackets else "")
