"""The catalog's rows as bytes: sealed msgpack arrays (see kv.base.checksum; the seed is the storage
key).

    NAMESPACES     esc(name)                 [1, name, created, replicas, tags, state, owner, acl,
                                             acl of the schema, [[role, kind, acl], …], comment,
                                             comment of the schema or nil, shard, survive,
                                             leaders]; older rows end after `created` or `state`,
                                             rows without what follows `state` before it
    TABLES         esc(namespace) esc(name)  [f, id, namespace, name, state, columns, primary key,
                                             replicas, tags, created, version, next column id,
                                             partition bytes, extra]; older rows end after `next
                                             column id` or `partition bytes`
                   a column                  [id, name, type, nullable, default in stored form,
                                             extra]; older rows end after the default
    TABLES_BY_ID   u32 id                    [1, namespace, name]; of an index: its table's name
    RELATIONS      esc(namespace) esc(name)  [1, "index", id of the table, id]
                                             [1, "key", id of the table]       a primary key's name
                                             [1, "view", id, version, sql, columns, uses, owner,
                                             acl, [[place, comment], …]]
                                             [1, "sequence", id, version, start, increment, minimum,
                                             maximum, cycle, type, cache, owned by or nil, owner,
                                             acl, comments]; both may end before `owner`
                                             [2, "enum", id, oid, born, version, [[label, position],
                                             …], [pending label, …], owner]: a number of its own, as
                                             an older program takes an unknown kind for a free name
                                             [1, "gone", free again at (ms)]   a name that is not to
                                             be used before everybody has forgotten it
    SEQUENCES      u32 id                    [1, last value, called]; see
                                             `sqlproxy.catalog.sequences`
    SCHEMAS        esc(namespace)            [1, how often anything in it was changed, and when that
                                             was that a schema change waits for]; older rows end
                                             before the last
    NATIVE_WRITERS u32 id of a table         [1]  it is, or was, written without SQL
    PROXIES        esc(proxy)                see `sqlproxy.catalog.declaration_users`

An acl is [[role, letters], …] or nil (sqlproxy.catalog.privileges). `f` is 1 where there is no
extra (then an older program can read the row) and 2 where there is. An extra is a map of those
fields of the descriptor that are not as usual, under their names; of an index, a check and a
foreign key as below. A field that this program does not know is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, Final

import msgspec

from kv.base.checksum import CRC_BYTES, intact, seal
from kv.base.errors import Corruption
from kv.base.ids import TableId
from kv.base.wire_row import WireRow
from sqlproxy.rows.naming import made_name
from sqlproxy.rows.rows import stored_default
from sqlproxy.rows.schema import (
    PUBLIC,
    Acl,
    Check,
    Column,
    EnumType,
    ForeignKey,
    FunctionArgument,
    Index,
    IndexColumn,
    Namespace,
    Sequence,
    SqlFunction,
    Table,
    View,
)
from sqlproxy.values.enums import Enum

FORMAT: Final = 1
FORMAT_EXTRA: Final = 2
FORMAT_TYPE: Final = 2  # of a type in RELATIONS
RELATION_FORMATS: Final = (FORMAT, FORMAT_TYPE)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode

_COLUMN_EXTRA: Final = (
    *("default_sql", "identity", "generated", "on_update", "state", "hidden", "sequence"),
    *("uses", "comment"),
)
_PLAIN: Final = ("frozen", "owner", "comment", "shard", "survive", "leaders", "link")
_USUAL: Final = {f.name: f.default for f in fields(Column) if f.default is not MISSING}


def sealed(key: bytes, row: WireRow) -> bytes:
    """The stored value of a catalog row."""
    return seal(key, _encode(row))


def opened(key: bytes, value: bytes, formats: tuple[int, ...] = (FORMAT,)) -> WireRow:
    """The array, its format included. Raises Corruption."""
    if not intact(key, value):
        raise corrupt(key, "its checksum is wrong")
    try:
        row = _decode(memoryview(value)[:-CRC_BYTES])
    except msgspec.DecodeError as error:
        raise corrupt(key, str(error)) from error
    if not row or row[0] not in formats:
        raise corrupt(key, f"its format is {row[:1]}, this program reads {formats}")
    return row


def corrupt(key: bytes, why: str) -> Corruption:
    return Corruption(
        f"the catalog row {key[:64]!r} is damaged: {why}; restore this node from a copy",
        details={"key": key},
    )


# -- namespaces


def encode_namespace(n: Namespace) -> list[object]:
    row = [FORMAT, n.name, n.created, n.replicas, list(n.tags), n.state]
    comments = [n.comment, n.schema_comment] if n.comment or n.schema_comment is not None else []
    placed = [n.shard, n.survive, n.leaders]
    while placed and not placed[-1]:
        placed.pop()
    if placed and not comments:
        comments = ["", None]
    if n.owner or n.acl is not None or n.schema_acl is not None or n.defaults or comments:
        defaults = [[role, kind, _encode_acl(acl)] for role, kind, acl in n.defaults]
        row += [n.owner, _encode_acl(n.acl), _encode_acl(n.schema_acl), defaults, *comments]
    return [*row, *placed]


def decode_namespace(key: bytes, value: bytes) -> Namespace:
    """Raises Corruption."""
    row = opened(key, value)
    _, name, created, *more = row
    replicas, tags, state = more[:3] if more else (None, (), PUBLIC)
    owner, acl, schema, defaults = more[3:7] if len(more) > 3 else ("", None, None, ())
    comment, of_schema = more[7:9] if len(more) > 7 else ("", None)
    shard, survive, leaders = (*more[9:12], "", "", "")[:3]
    return Namespace(
        name,
        created,
        replicas,
        tuple(tags),
        state,
        owner,
        _decode_acl(acl),
        _decode_acl(schema),
        tuple((role, kind, _decode_acl(rights) or ()) for role, kind, rights in defaults),
        comment,
        of_schema,
        shard,
        survive,
        leaders,
    )


# -- who may do what


def _encode_acl(acl: Acl | None) -> list[list[str]] | None:
    return None if acl is None else [list(one) for one in acl]


def _decode_acl(stored: list[list[str]] | None) -> Acl | None:
    return None if stored is None else tuple((role, letters) for role, letters in stored)


def _with_rights(row: list[object], one: View | Sequence) -> list[object]:
    if one.owner or one.acl is not None or one.comments:
        row += [one.owner, _encode_acl(one.acl), [list(pair) for pair in one.comments]]
    return row


def _rights(more: WireRow) -> dict[str, Any]:
    if not more:
        return {}
    owner, acl, comments = more
    comment_pairs = tuple((place, text) for place, text in comments)
    return {"owner": owner, "acl": _decode_acl(acl), "comments": comment_pairs}


# -- tables


def encode_table(table: Table) -> list[object]:
    """The stored array of a descriptor."""
    columns = [_encode_column(column) for column in table.columns]
    extra = _encode_extra(table)
    row = [
        FORMAT,
        table.id,
        table.namespace,
        table.name,
        table.state,
        columns,
        list(table.primary_key),
        table.replicas,
        list(table.tags),
        table.created,
        table.version,
        table.next_column_id,
        table.partition_bytes,
    ]
    if extra:
        row.append(extra)
    if extra or any(len(column) > 5 for column in columns):
        row[0] = FORMAT_EXTRA
    return row


def decode_table(key: bytes, value: bytes) -> Table:
    """The descriptor in a stored row. Raises Corruption."""
    row = opened(key, value, (FORMAT, FORMAT_EXTRA))
    try:
        _, number, namespace, name, state, columns, primary_key, *rest = row
        replicas, tags, created, version, next_column_id, *more = rest
        table = Table(
            id=TableId(number),
            namespace=namespace,
            name=name,
            state=state,
            columns=tuple(_decode_column(*column) for column in columns),
            primary_key=tuple(primary_key),
            replicas=replicas,
            tags=tuple(tags),
            created=created,
            version=version,
            next_column_id=next_column_id,
            partition_bytes=more[0] if more else None,
            primary_key_name=made_name(name, "", "pkey") if primary_key else "",
        )
        return _with_extra(table, more[1]) if len(more) > 1 else table
    except (ValueError, TypeError, KeyError) as error:
        raise corrupt(key, str(error)) from error


def _encode_column(column: Column) -> list[object]:
    row = [column.id, column.name, column.type, column.nullable, stored_default(column)]
    extra: dict[str, object] = {
        name: getattr(column, name)
        for name in _COLUMN_EXTRA
        if getattr(column, name) != _USUAL[name]
    }
    if column.initial is not None:
        (value,) = column.initial
        extra["initial"] = [None if value is None else column.resolved.to_stored(value)]
    if column.acl:
        extra["acl"] = _encode_acl(column.acl)
    return [*row, extra] if extra else row


def _decode_column(
    number: int,
    name: str,
    kind: str,
    nullable: bool,
    default: object,
    extra: dict[str, Any] | None = None,
) -> Column:
    column = Column(number, name, kind, nullable)
    convert = column.resolved.from_stored

    def user(stored: object) -> Any:
        return convert(stored) if convert is not None and stored is not None else stored

    more = dict(extra or {})
    if "uses" in more:
        more["uses"] = tuple(more["uses"])
    if "initial" in more:
        more["initial"] = (user(more["initial"][0]),)
    if "acl" in more:
        more["acl"] = _decode_acl(more["acl"])
    return replace(column, default=user(default), **more)


def _encode_extra(table: Table) -> dict[str, object]:
    found: dict[str, object] = {}
    if table.indexes:
        found["indexes"] = [_encode_index(index) for index in table.indexes]
    if partial := [index for index in table.indexes if index.where]:
        # a field of its own: a program that knows no partial indexes refuses the table
        found["predicates"] = [[i.id, i.where, list(i.where_columns)] for i in partial]
    if derived := [column.id for column in table.columns if column.derived]:
        found["expressions"] = derived  # a program that knows none of them refuses the table
    if table.checks:
        found["checks"] = [[c.name, c.sql, list(c.columns), c.state] for c in table.checks]
    if table.foreign_keys:
        found["foreign_keys"] = [_encode_foreign_key(key) for key in table.foreign_keys]
    if table.referenced_by:
        found["referenced_by"] = list(table.referenced_by)
    for name in _PLAIN:
        if value := getattr(table, name):
            found[name] = value
    there = {kind: table.named_parts(kind) for kind in {note[0] for note in table.notes}}
    if notes := [list(note) for note in table.notes if note[1] in there[note[0]]]:
        found["notes"] = notes  # of what was dropped they go here
    if table.acl is not None:
        found["acl"] = _encode_acl(table.acl)
    usual = made_name(table.name, "", "pkey") if table.primary_key else ""
    if table.primary_key_name != usual:
        found["primary_key_name"] = table.primary_key_name
    return found


def _encode_index(index: Index) -> list[object]:
    columns = [[part.column, part.descending, part.nulls_first] for part in index.columns]
    row = [
        index.id,
        index.name,
        columns,
        index.unique,
        list(index.include),
        index.constraint,
        index.state,
    ]
    if index.deferrable:  # a program that does not know it takes the constraint as not deferrable
        return [*row, index.primary, index.since, index.deferred]
    return [*row, index.primary, index.since] if index.primary or index.since else row


def _encode_foreign_key(key: ForeignKey) -> list[object]:
    row = [
        key.name,
        list(key.columns),
        key.table,
        list(key.referenced),
        key.on_delete,
        key.on_update,
        key.state,
    ]
    return [*row, key.deferred] if key.deferrable else row


def _decode_index(row: WireRow) -> Index:
    number, name, columns, unique, include, constraint, state, *more = row
    parts = tuple(IndexColumn(*part) for part in columns)
    primary, since, *deferred = more if len(more) > 1 else (*more, *(False, 0)[len(more) :])
    return Index(
        TableId(number),
        name,
        parts,
        unique,
        tuple(include),
        constraint,
        state,
        bool(primary),
        since,
        deferrable=bool(deferred),
        deferred=bool(deferred and deferred[0]),
    )


def _decode_check(row: WireRow) -> Check:
    name, sql, columns, state = row
    return Check(name, sql, tuple(columns), state)


def _decode_foreign_key(row: WireRow) -> ForeignKey:
    name, columns, table, referenced, on_delete, on_update, state, *deferred = row
    return ForeignKey(
        name,
        tuple(columns),
        TableId(table),
        tuple(referenced),
        on_delete,
        on_update,
        state,
        bool(deferred),
        bool(deferred and deferred[0]),
    )


_PARTS: Final[dict[str, Callable[[list[object]], object]]] = {
    "indexes": _decode_index,
    "checks": _decode_check,
    "foreign_keys": _decode_foreign_key,
}


def _with_extra(table: Table, extra: dict[str, Any]) -> Table:
    found: dict[str, Any] = {}
    predicates: dict[int, tuple[str, tuple[int, ...]]] = {}
    for name, value in extra.items():
        if name == "primary_key_name" or name in _PLAIN:
            found[name] = value
        elif name == "acl":
            found[name] = _decode_acl(value)
        elif name == "notes":
            found[name] = tuple((kind, part, text) for kind, part, text in value)
        elif name == "expressions":
            continue  # the columns say so themselves
        elif name == "predicates":
            predicates = {number: (sql, tuple(uses)) for number, sql, uses in value}
        elif name == "referenced_by":
            found[name] = tuple(TableId(number) for number in value)
        else:
            found[name] = tuple(_PARTS[name](row) for row in value)
    if predicates:
        found["indexes"] = tuple(
            replace(i, where=predicates[i.id][0], where_columns=predicates[i.id][1])
            if i.id in predicates
            else i
            for i in found["indexes"]
        )
    return replace(table, **found)


# -- views and sequences


def encode_view(view: View) -> list[object]:
    uses = [[number, list(columns)] for number, columns in view.uses]
    row = [FORMAT, "view", view.id, view.version, view.sql, [list(c) for c in view.columns], uses]
    return _with_rights(row, view)


def encode_sequence(s: Sequence) -> list[object]:
    row = [
        FORMAT,
        "sequence",
        s.id,
        s.version,
        s.start,
        s.increment,
        s.minimum,
        s.maximum,
        s.cycle,
        s.type,
        s.cache,
        None if s.owned_by is None else list(s.owned_by),
    ]
    return _with_rights(row, s)


def decode_view(namespace: str, name: str, row: WireRow) -> View:
    """From an opened row. Raises ValueError, TypeError."""
    _, _, number, version, sql, columns, uses, *more = row
    return View(
        id=number,
        namespace=namespace,
        name=name,
        sql=sql,
        columns=tuple((column, kind) for column, kind in columns),
        uses=tuple((relation, tuple(ids)) for relation, ids in uses),
        version=version,
        **_rights(more),
    )


def decode_sequence(namespace: str, name: str, row: WireRow) -> Sequence:
    """From an opened row. Raises ValueError, TypeError."""
    _, _, number, version, start, increment, minimum, maximum, cycle, kind, cache, *rest = row
    owner, *more = rest
    return Sequence(
        id=number,
        namespace=namespace,
        name=name,
        start=start,
        increment=increment,
        minimum=minimum,
        maximum=maximum,
        cycle=cycle,
        type=kind,
        cache=cache,
        version=version,
        owned_by=None if owner is None else (owner[0], owner[1]),
        **_rights(more),
    )


# -- functions


def encode_function(one: SqlFunction) -> list[object]:
    return [
        FORMAT,
        "function",
        one.id,
        one.version,
        one.title,
        [list(argument) for argument in one.arguments],
        one.result,
        [list(column) for column in one.columns],
        one.sql,
        one.strict,
        one.volatile,
        one.owner,
    ]


def decode_function(namespace: str, row: WireRow) -> SqlFunction:
    """From an opened row. Raises ValueError, TypeError."""
    _, _, number, version, title, arguments, result, columns, sql, strict, volatile, owner = row
    return SqlFunction(
        id=number,
        namespace=namespace,
        title=title,
        arguments=tuple(FunctionArgument(*one) for one in arguments),
        result=result,
        columns=tuple((name, oid) for name, oid in columns),
        sql=sql,
        strict=strict,
        volatile=volatile,
        version=version,
        owner=owner,
    )


# -- types


def encode_type(one: EnumType) -> list[object]:
    enum = one.enum
    return [
        FORMAT_TYPE,
        "enum",
        one.id,
        enum.oid,
        enum.born,
        enum.version,
        [list(pair) for pair in enum.labels],
        list(enum.pending),
        one.owner,
    ]


def decode_type(namespace: str, name: str, row: WireRow) -> EnumType:
    """From an opened row. Raises ValueError, TypeError."""
    _, _, number, oid, born, version, labels, pending, owner = row
    placed = tuple((label, position) for label, position in labels)
    enum = Enum(oid, born, version, name, placed, tuple(pending))
    return EnumType(number, namespace, enum, owner=owner)
