"""Text → syntax trees of PostgreSQL's own grammar (libpg_query's, as plain dicts), and its syntax
errors.

A node is `{"A_Expr": {…}}`: one entry, the kind and its fields, exactly libpg_query's JSON; fields
that have their zero value are missing. `location` counts bytes of UTF-8 from 0 (missing = 0, -1 =
unknown).

The JSON form, not the protobuf one: it is read three times as fast (13 against 37 µs for a short
SELECT), and protobuf's reader refuses what is nested more than about 45 operators deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import postgast
from postgast.native import lib

from kv.base.limits import (
    SQL_CACHED_CHARS_MAX,
    SQL_COMMENT_DEPTH_MAX,
    SQL_MESSAGE_STATEMENTS_MAX,
    SQL_PLANS_MAX,
    SQL_TEXT_BYTES_MAX,
    SQL_TOKENS_MAX,
)
from sqlproxy.front.syntax import bulk_lists, bulk_reading, dialect
from sqlproxy.pg.oids import VOID
from sqlproxy.values.errors import (
    LIMIT_EXCEEDED,
    STATEMENT_TOO_COMPLEX,
    SYNTAX_ERROR,
    WINDOWING_ERROR,
    SqlError,
)

Node = dict[str, Any]
# What the parser says of its own accord that is no syntax error.
_STATES: Final = (
    ("memory exhausted", STATEMENT_TOO_COMPLEX),
    ("frame start", WINDOWING_ERROR),
    ("frame end", WINDOWING_ERROR),
)
TOO_DEEP: Final = "stack depth limit exceeded"
# libpg_query writes its trees by recursion in C and does not look how much stack is left: chains of
# about 100,000
# operators end the process (8 MiB of stack). What has more than this is refused before it is
# parsed.
_CHAIN_MAX: Final = 20_000
_MAKES_DEPTH: Final = re.compile(
    r"[-+*/<>=~!@#%^&|?]+|::|\[|\b(?:not|is|isnull|notnull|union|except|intersect|case|collate|join|select|values|like"
    r"|ilike|similar|between|at|in|overlaps|with)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement. `kind` is libpg_query's name of it (`SelectStmt`), `body` its fields."""

    text: str
    kind: str
    body: Node
    extras: dialect.Extras = field(default_factory=dialect.Extras)
    rows: bulk_reading.Rows | None = None
    """Of an INSERT whose `body` has the first of them alone."""
    lists: Sequence[bulk_lists.Rows] = ()
    """What the parameters from `bulk_lists.FIRST` on stand for."""

    @property
    def whole(self) -> bool:
        """Whether `body` has all of it."""
        return self.rows is None and not self.lists


_PARTS: Final = (
    *"+-*/<>=~!@#%^&|?[",
    *[
        "not",
        "null",
        "union",
        "except",
        "intersect",
        "case",
        "collate",
        "join",
        "select",
        "values",
        "like",
        "similar",
        "between",
        "with",
        "overlaps",
    ],
    *("::", "is", "in", "at"),
)


def split(text: str) -> list[str]:
    """The statements of a text, without semicolons. Raises SqlError (42601) for the whole."""
    if (parsed := _long_insert(text) or _long_lists(text)) is not None:
        part = text.strip().rstrip(";").rstrip()
        _split_off[:] = [replace(parsed, text=part)]
        return [part]
    tree, extras = _tree(text)
    raw = text.encode()
    found = []
    statements = tree.get("stmts", ())
    for statement in statements:
        start = statement.get("stmt_location", 0)
        length = statement.get("stmt_len", 0)
        part = raw[start : start + length if length else None].decode()
        found.append(part.strip())
    if len(found) == 1 and len(text) > SQL_CACHED_CHARS_MAX and text.startswith(found[0]):
        kind, body = unwrap(statements[0]["stmt"])
        _split_off[:] = [Parsed(found[0], kind, body, extras)]
    return found


def parse(text: str) -> Parsed | None:
    """The one statement in a text; None: there is none. Raises SqlError: syntax, or more than one
    statement.

    Short texts are remembered.
    """
    return _short(text) if len(text) <= SQL_CACHED_CHARS_MAX else _parse(text)


def _parse(text: str) -> Parsed | None:
    with suppress(IndexError):  # another thread may have taken it
        if (parsed := _split_off.pop()).text == text:
            return parsed
    return _long_insert(text) or _long_lists(text) or whole(text)


_LISTING: Final = frozenset(("SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt"))
_split_off: list[Parsed] = []  # the long statement that was split off last, until it is asked for


def _long_insert(text: str) -> Parsed | None:
    """An INSERT of many plain rows, without a look at all of them; None: it is something else."""
    found = bulk_reading.read(text)
    if found is None:
        return None
    template, rows = found
    try:
        parsed = whole(template)
    except SqlError:
        return None
    if parsed is None or parsed.kind != "InsertStmt":
        return None
    return replace(parsed, text=text, rows=rows)


def _long_lists(text: str) -> Parsed | None:
    """A query or a change with long lists of literals; None: it has none, or is something else."""
    found = bulk_lists.read(text)
    if found is None:
        return None
    template, lists = found
    try:
        parsed = whole(template)
    except SqlError:
        return None
    if parsed is None or parsed.kind not in _LISTING:
        return None
    if parsed.kind == "InsertStmt" and _lists_rows(parsed.body):
        return None
    return replace(parsed, text=text, lists=lists)


def _lists_rows(insert: Node) -> bool:
    """Whether it is VALUES itself that is inserted."""
    return "valuesLists" in insert.get("selectStmt", {}).get("SelectStmt", {})


def whole(text: str) -> Parsed | None:
    """`parse`, by the parser alone."""
    tree, extras = _tree(text)
    statements = tree.get("stmts", ())
    if not statements:
        return None
    if len(statements) > 1:
        raise SqlError(SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
    kind, body = unwrap(statements[0]["stmt"])
    return Parsed(text, kind, body, extras)


_short = lru_cache(maxsize=SQL_PLANS_MAX)(_parse)


_ALONE: Final = {"targetList", "limitOption", "op"}  # of a SELECT of nothing but an expression


def parse_expression(text: str) -> Node:
    """The tree of an expression as catalogs keep it (a default, a check), or as users write a
    condition: what stands after it (LIMIT, UNION, a second one) would be forgotten silently.
    Raises SqlError.
    """
    parsed = parse(f"SELECT {text}")
    assert parsed is not None
    targets = parsed.body.get("targetList", ())
    if len(targets) != 1 or not parsed.body.keys() <= _ALONE or "name" in targets[0]["ResTarget"]:
        raise SqlError(SYNTAX_ERROR, f"{text!r:.200} is more than one expression")
    value: Node = targets[0]["ResTarget"]["val"]
    return value


def unwrap(node: Node) -> tuple[str, Node]:
    """The kind of a node and its fields."""
    for kind, body in node.items():
        return kind, body
    return "", {}


def at(body: Node) -> int:
    """Where a node stands, as SqlError's position counted in bytes; `in_characters` corrects it for
    the whole text.
    """
    where: int = body.get("location", 0)
    return where + 1


def in_characters(error: SqlError, text: str) -> SqlError:
    """The error with its position in characters, as clients count; it was in bytes so far."""
    if error.position > 1 and not text.isascii():
        error.position = len(text.encode()[: error.position - 1].decode(errors="ignore")) + 1
    return error


def strings(nodes: list[Node] | None) -> list[str]:
    """The words of a list of String nodes."""
    return [node["String"].get("sval", "") for node in nodes or () if "String" in node]


def without_void(node: object, oids: Sequence[int]) -> Any:
    """A tree whose calls do not have the parameters that were declared void: so a client says where
    the result of its `{? = call f(?)}` belongs.
    """
    if isinstance(node, list):
        return [without_void(one, oids) for one in node]
    if not isinstance(node, dict):
        return node
    found = {name: without_void(value, oids) for name, value in node.items()}
    if "FuncCall" in found:
        call = found["FuncCall"]
        call["args"] = [one for one in call.get("args", ()) if not _is_void(one, oids)]
    return found


def _is_void(node: Node, oids: Sequence[int]) -> bool:
    number = int(node.get("ParamRef", {}).get("number", 0))
    return 1 <= number <= len(oids) and oids[number - 1] == VOID


def find(node: object, kind: str, *, but: str = "") -> Iterator[Node]:
    """The fields of every node of a kind, anywhere inside. `but`: a kind not to look into."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            if kind in one and isinstance(one[kind], dict):
                yield one[kind]
            stack.extend(part for name, part in one.items() if name != but)
        elif isinstance(one, list):
            stack.extend(one)


def _tree(text: str) -> tuple[Node, dialect.Extras]:
    if len(text) > SQL_TEXT_BYTES_MAX or len(text) * 4 > SQL_TEXT_BYTES_MAX < len(text.encode()):
        raise SqlError(
            LIMIT_EXCEEDED,
            f"the statement is longer than {SQL_TEXT_BYTES_MAX} bytes",
            hint="Send it in parts, values as parameters, or use COPY.",
        )
    if "\0" in text:
        raise SqlError(SYNTAX_ERROR, "the statement holds a zero byte")
    _check_counts(text)
    if dialect.suspected(text):
        plain, extras = dialect.separate(text)
        if extras.any:
            return _parsed(plain), extras
    return _parsed(text), dialect.NOTHING


_LEXICAL: Final = re.compile(
    r"""[eE]'(?:[^'\\]++|\\.|'')*+'|'[^']*+'|"[^"]*+"|--[^\n]*+|\$\w*\$|/\*|[\w$]++|\S""",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")


def _check_counts(text: str) -> None:
    """Raise SqlError for comments inside of comments, for which the parser takes a time that is the
    square of their depth (54001), for more words than a tree may have, which is read in one piece
    (54001), and for more statements than one message may have (54000).
    """
    if (
        len(text) <= SQL_TOKENS_MAX
        and text.count(";") <= SQL_MESSAGE_STATEMENTS_MAX
        and text.count("/*") <= SQL_COMMENT_DEPTH_MAX
    ):
        return
    at = count = tokens = 0
    while found := _LEXICAL.search(text, at):
        at = found.end()
        tokens += 1
        if tokens > SQL_TOKENS_MAX:
            raise SqlError(
                STATEMENT_TOO_COMPLEX,
                f"a message has more than {SQL_TOKENS_MAX} words and signs",
                hint="Send it in parts, values as parameters or as lists of plain literals, or "
                "use COPY.",
            )
        if found[0] == ";":
            count += 1
            if count > SQL_MESSAGE_STATEMENTS_MAX:
                raise SqlError(
                    LIMIT_EXCEEDED,
                    f"a message has more than {SQL_MESSAGE_STATEMENTS_MAX} statements",
                    hint="Send them in several messages.",
                )
        elif found[0][0] == "$" == found[0][-1]:
            at = text.find(found[0], at) + len(found[0])
            if at < len(found[0]):
                return  # it has no end: the parser says so
        elif found[0] == "/*":
            depth = 1
            while depth and (mark := _COMMENT.search(text, at)):
                at = mark.end()
                depth += 1 if mark[0] == "/*" else -1
                if depth > SQL_COMMENT_DEPTH_MAX:
                    raise SqlError(
                        STATEMENT_TOO_COMPLEX,
                        f"comments are nested more than {SQL_COMMENT_DEPTH_MAX} deep",
                        position=mark.start() + 1,
                    )
            if depth:
                return  # it has no end: the parser says so


def _check_depth(text: str) -> None:
    """Raise SqlError (54001) for what is nested so deeply that the parser itself would not survive
    it.
    """
    if len(text) <= 2 * _CHAIN_MAX:
        return
    small = text.lower()
    if sum(map(small.count, _PARTS)) <= _CHAIN_MAX:  # too many rather than too few, and quick
        return
    raw, total = text.encode(), 0
    chains = [0]  # operators since the last comma, of each open parenthesis
    for token in postgast.scan(text).tokens:
        word = raw[token.start : token.end].decode(errors="replace")
        if word == "(":
            chains.append(0)
        elif word in (")", ",", ";"):
            total -= chains[-1]
            chains[-1] = 0
            if word == ")" and len(chains) > 1:
                chains.pop()
        elif _MAKES_DEPTH.fullmatch(word):
            chains[-1] += 1
            total += 1
            if total > _CHAIN_MAX:
                raise SqlError(STATEMENT_TOO_COMPLEX, TOO_DEEP, position=token.start + 1)


def _parsed(text: str) -> Node:
    _check_depth(text)
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise SqlError("22021", 'invalid byte sequence for encoding "UTF8"') from None
    result = lib.pg_query_parse(raw)
    try:
        if result.error:
            problem = result.error.contents
            message = problem.message.decode(errors="replace")
            state = next((s for head, s in _STATES if message.startswith(head)), SYNTAX_ERROR)
            raise SqlError(state, message, position=problem.cursorpos)  # counts characters
        tree: Node = msgspec.json.decode(result.parse_tree)
        return tree
    except RecursionError:
        raise SqlError(
            STATEMENT_TOO_COMPLEX,
            TOO_DEEP,
            hint="Write the expression in parts that are nested less deeply.",
        ) from None
    finally:
        lib.pg_query_free_parse_result(result)
