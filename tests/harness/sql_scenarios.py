"""Scenarios of what SQL declares: tables with all their parts, views, sequences, names. Each is
(prepare, check, how the same submission ends again).

The checks look at everything of the namespace at once: whoever did half of something leaves a name,
an id or a reference that leads nowhere.
"""

from __future__ import annotations

from typing import Any, Final

from kv.base import ops
from kv.base.keys import table_prefix, table_range
from sqlproxy.catalog import catalog, relations, sequences
from sqlproxy.rows.rows import codec
from sqlproxy.rows.schema import DROPPING, EnumType, Index, Table
from sqlproxy.tables.entries import index_codec
from sqlproxy.values import enums
from tests.harness.world import Place

NS: Final = {"namespace": "default"}
PEOPLE: Final[dict[str, Any]] = {
    **NS,
    "name": "people",
    "replicas": 3,
    "columns": [
        {"name": "id", "type": "int4", "sequence": {}},
        {"name": "email", "type": "text", "nullable": False},
        {"name": "age", "type": "int4"},
    ],
    "primary_key": ["id"],
    "indexes": [{"columns": ["email"], "unique": True, "constraint": True}, {"columns": ["age"]}],
    "checks": [{"sql": "age > 0", "columns": ["age"]}],
}
ORDERS: Final[dict[str, Any]] = {
    **NS,
    "name": "orders",
    "replicas": 3,
    "columns": [{"name": "n", "type": "int8"}, {"name": "who", "type": "int4"}],
    "primary_key": ["n"],
    "indexes": [{"columns": ["who"]}],
    "foreign_keys": [{"columns": ["who"], "table": "people"}],
}
VIEW: Final[dict[str, Any]] = {
    **NS,
    "name": "mails",
    "sql": "SELECT email FROM people",
    "columns": [["email", "text"]],
    "uses": [["people", ["email"]]],
}
NAMES: Final = {"t", "people", "people_pkey", "people_email_key", "people_age_idx", "people_id_seq"}


async def coherent(place: Place) -> Any:
    """Every reference leads to something that is there."""
    there = await relations.list_relations(place.txn, "default")
    ids = {one.id for one in there}
    for table in there.tables:
        for number in table.storage_ids:
            if await catalog.find_owner(place.txn, number) != table:
                return f"the id {number} of {table.name} leads elsewhere"
        if not {key.table for key in table.foreign_keys} | set(table.referenced_by) <= ids:
            return f"{table.name} refers to what is not there"
        if not {column.sequence for column in table.columns if column.sequence} <= ids:
            return f"{table.name} takes numbers from what is not there"
    for view in there.views:
        if not {number for number, _ in view.uses} <= ids:
            return f"view {view.name} reads what is not there"
    for sequence in there.sequences:
        if sequence.owned_by is not None and sequence.owned_by[0] not in ids:
            return f"sequence {sequence.name} is owned by what is not there"
    return None


async def has(place: Place, names: set[str]) -> Any:
    """Exactly these have a name, and all is coherent."""
    found = await relations.taken(place.txn, "default")
    for table in await catalog.list_tables(place.txn, "default"):
        if table.state == DROPPING:
            return f"{table.name} is being dropped"
    if set(found) != names:
        return f"{sorted(set(found) ^ names)}"
    return await coherent(place)


async def people(place: Place) -> Table:
    return await catalog.lookup(place.txn, "default", "people")


async def _made(place: Place, *more: tuple[str, dict[str, Any]]) -> None:
    await place.table()
    for name, args in (("CreateTable", PEOPLE), *more):
        await place.run(name, args)


async def _new_view(place: Place) -> Any:
    await _made(place)
    return VIEW


async def _view_is_there(place: Place, args: Any, happened: bool) -> Any:
    return await has(place, NAMES | ({"mails"} if happened else set()))


async def _a_view(place: Place) -> Any:
    await _made(place, ("CreateView", VIEW))
    return {**NS, "names": ["mails"]}


async def _view_is_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _view_is_there(place, args, not happened)


async def _new_sequence(place: Place) -> Any:
    await _made(place)
    return {**NS, "name": "s", "options": {"start": 5}, "owned_by": ["people", "age"]}


async def _sequence_is_there(place: Place, args: Any, happened: bool) -> Any:
    return await has(place, NAMES | ({"s"} if happened else set()))


async def _a_sequence(place: Place) -> Any:
    await _made(place, ("CreateSequence", {**NS, "name": "s"}))
    return {**NS, "names": ["s"]}


async def _sequence_is_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _sequence_is_there(place, args, not happened)


async def _altered(place: Place) -> Any:
    await _made(place, ("CreateSequence", {**NS, "name": "s"}))
    return {**NS, "name": "s", "options": {"increment": 3}, "restart": 40}


async def _is_altered(place: Place, args: Any, happened: bool) -> Any:
    there = await relations.find_relation(place.txn, "default", "s")
    stand = await sequences.stand(place.txn, there)  # type: ignore[arg-type]
    found = there.increment, tuple(stand)  # type: ignore[union-attr]
    wanted = (3, (40, False)) if happened else (1, (1, False))
    return None if found == wanted else f"{found}"


async def _renamed(place: Place) -> Any:
    await _made(place, ("CreateTable", ORDERS), ("CreateView", VIEW))
    place.before["id"] = (await people(place)).id
    views = {"mails": "SELECT email FROM folk"}
    return {**NS, "name": "people", "to": "folk", "views": views}


async def _is_renamed(place: Place, args: Any, happened: bool) -> Any:
    name, other = ("folk", "people") if happened else ("people", "folk")
    rest = {"orders", "orders_pkey", "orders_who_idx", "mails"}
    if complaint := await has(place, NAMES - {"people"} | {name} | rest):
        return complaint
    table = await catalog.find(place.txn, "default", name)
    view = await relations.find_relation(place.txn, "default", "mails")
    if table is None or table.id != place.before["id"] or name not in view.sql:  # type: ignore[union-attr]
        return f"{table}, {view}"
    return await catalog.find(place.txn, "default", other)


OTHER: Final = "default:other"


async def _to_move(place: Place) -> Any:
    await _made(place)
    await place.run("CreateNamespace", {"namespace": OTHER})
    place.before["id"] = (await people(place)).id
    return {**NS, "name": "people", "to": OTHER}


async def _is_moved(place: Place, args: Any, happened: bool) -> Any:
    space, left = (OTHER, "default") if happened else ("default", OTHER)
    table = await catalog.find(place.txn, space, "people")
    if table is None or table.id != place.before["id"]:
        return f"{table}"
    names = {*table.named_parts("index"), "people"}
    if missing := names - set(await relations.taken(place.txn, space)):
        return f"{missing} are not in {space}"
    if kept := names & set(await relations.taken(place.txn, left)):
        return f"{kept} are in {left}, too"
    return None


_SHELF, _STORE = "default:shelf", "default:store"


async def _to_rename(place: Place) -> Any:
    """A schema with a table, its index and its sequence, and a view of public over it."""
    await _made(place)
    await place.run("CreateNamespace", {"namespace": _SHELF})
    columns = [{"name": "id", "type": "int4", "sequence": {}}, {"name": "v", "type": "text"}]
    books = {"namespace": _SHELF, "name": "books", "columns": columns, "primary_key": ["id"]}
    await place.run("CreateTable", {**books, "indexes": [{"columns": ["v"]}]})
    read = "SELECT v FROM shelf.books"
    view = {**NS, "name": "read", "sql": read, "columns": [["v", "text"]]}
    await place.run("CreateView", {**view, "uses": [[["shelf", "books"], ["v"]]]})
    table = await catalog.lookup(place.txn, _SHELF, "books")
    place.before["id"] = table.id
    number = str(table.column("id").default_sql)
    texts = {sql: sql.replace("shelf.", "store.") for sql in (read, number)}
    return {"namespace": _SHELF, "to": _STORE, "texts": texts}


async def _schema_is_renamed(place: Place, args: Any, happened: bool) -> Any:
    there, left = (_STORE, _SHELF) if happened else (_SHELF, _STORE)
    table = await catalog.find(place.txn, there, "books")
    if table is None or table.id != place.before["id"]:
        return f"{table}"
    wanted = {"books", "books_pkey", "books_v_idx", "books_id_seq"}
    if (names := set(await relations.taken(place.txn, there))) != wanted:
        return f"{names} are in {there}"
    if kept := await relations.taken(place.txn, left):
        return f"{kept} are in {left}, too"
    schema = "store" if happened else "shelf"
    view = await relations.find_relation(place.txn, "default", "read")
    said = (getattr(view, "sql", ""), table.column("id").default_sql)
    if not all(f"{schema}.books" in str(sql) for sql in said):
        return f"{said}"
    spaces = [one.name for one in await catalog.list_schemas(place.txn, "default")]
    return None if spaces == ["default", there] else f"{spaces}"


async def _column(place: Place) -> Any:
    await _made(place)
    checks = {"people_age_check": "years > 0"}
    return {**NS, "name": "people", "column": "age", "to": "years", "checks": checks}


async def _column_is_renamed(place: Place, args: Any, happened: bool) -> Any:
    table = await people(place)
    found = table.columns[2].name, table.checks[0].sql
    wanted = ("years", "years > 0") if happened else ("age", "age > 0")
    return f"{found}" if found != wanted else await coherent(place)


async def _full(place: Place) -> Any:
    await _made(place, ("CreateTable", ORDERS), ("CreateView", VIEW))
    place.before["ids"] = (await people(place)).storage_ids
    return {**NS, "names": ["people"], "cascade": True, "restart_identity": True}


async def _is_empty(place: Place, args: Any, happened: bool) -> Any:
    table = await people(place)
    same = set(table.storage_ids) & set(place.before["ids"])
    if bool(same) == happened:
        return f"{table.storage_ids} after {place.before['ids']}"
    count = 1 + 3 + 2  # t; people and orders with their indexes
    if len(await place.map()) != count:
        return f"{len(await place.map())} partitions"
    return await coherent(place)


async def _indexed(place: Place) -> Any:
    await _made(place)
    return {**NS, "names": ["people_age_idx"]}


async def _index_is_gone(place: Place, args: Any, happened: bool) -> Any:
    names = NAMES - {"people_age_idx"} if happened else NAMES
    states = {index.state for index in (await people(place)).indexes}
    return f"{states}" if states != {"public"} else await has(place, names)


async def _to_index(place: Place) -> Any:
    """Rows that are there before the index, with their entries in the others."""
    await _made(place)
    table = await people(place)
    t = await place.txn.begin()
    for number in range(1, 6):
        row = (number, f"p{number}@example.org", None if number == 3 else number * 10)
        key, value = codec(table).encode_row(row)
        t.put(table_prefix(table.id) + key, value)
        for index in table.indexes:
            at, entry = index_codec(table, index).entry(row)
            t.put(table_prefix(index.id) + at, entry)
    await t.commit()
    place.before["ranges"] = len(await place.map())
    return {
        **NS,
        "name": "people",
        "index": {"columns": ["age", "email"], "unique": True, "name": "people_age_email_idx"},
    }


async def _is_indexed(place: Place, args: Any, happened: bool) -> Any:
    """Every row has its entry, and nothing else is in the index; without it nothing of it is."""
    name = "people_age_email_idx"
    table = await people(place)
    index = table.index(name)
    if (index is not None) != happened or any(i.state != "public" for i in table.indexes):
        return f"{table.indexes}"
    if (count := len(await place.map())) != place.before["ranges"] + happened:
        return f"{count} partitions"
    if index is not None and (wrong := await _unlike(place, table, index)):
        return wrong
    return await has(place, NAMES | ({name} if happened else set()))


async def _unlike(place: Place, table: Table, index: Index) -> str:
    """How an index is not its table."""
    rows = (await place.txn.scan(*table_range(table.id), limit=100)).items
    wanted = {
        index_codec(table, index).entry(codec(table).decode_row(key[4:], value))
        for key, value, _ in rows
    }
    there = (await place.txn.scan(*table_range(index.id), limit=100)).items
    if {(key[4:], value) for key, value, _ in there} != wanted or len(rows) != 5:
        return f"{there} for {rows}"
    return ""


async def _plain(place: Place) -> Any:
    await _made(place)
    column = {"name": "city", "type": "text"}
    action = {"kind": "add_column", "column": column, "initial_stored": "Bonn"}
    return {**NS, "name": "people", "action": action}


async def _has_city(place: Place, args: Any, happened: bool) -> Any:
    found = [(c.name, c.missing) for c in (await people(place)).columns[3:]]
    if found != ([("city", "Bonn")] if happened else []):
        return f"{found}"
    return await has(place, NAMES)


async def _unbound(place: Place) -> Any:
    await _made(place, ("CreateTable", {**ORDERS, "foreign_keys": []}))
    return {
        **NS,
        "name": "orders",
        "foreign_key": {"name": "orders_who_fkey", "columns": ["who"], "table": "people"},
    }


async def _is_bound(place: Place, args: Any, happened: bool) -> Any:
    """The foreign key is there for all, and the table that it refers to knows; or neither."""
    orders = await catalog.lookup(place.txn, "default", "orders")
    names = [(key.name, key.state) for key in orders.foreign_keys]
    told = (await people(place)).referenced_by
    wanted = [("orders_who_fkey", "public")] if happened else []
    if names != wanted or told != ((orders.id,) if happened else ()):
        return f"{names}, {told}"
    return await coherent(place)


async def _aged(place: Place) -> Any:
    await _made(place)
    return {**NS, "name": "people", "column": "age"}


async def _is_ageless(place: Place, args: Any, happened: bool) -> Any:
    """With its index and its check; a failure may leave it without the index, seen as before."""
    table = await people(place)
    found = [c.name for c in table.columns], len(table.checks), {c.state for c in table.columns}
    wanted = ["id", "email"] if happened else ["id", "email", "age"]
    if found != (wanted, 0 if happened else 1, {"public"}):
        return f"{found}"
    lost = {"people_age_idx"} if table.index("people_age_idx") is None else set()
    if happened and not lost:
        return f"{table.indexes}"
    return await has(place, NAMES - lost)


async def _to_number(place: Place) -> Any:
    await _to_index(place)
    return {**NS, "name": "people", "column": {"name": "n", "type": "int8", "sequence": {}}}


async def _to_enlarge(place: Place) -> Any:
    """A column that is filled, what it must be, an index over it: each is undone its own way."""
    args = await _to_number(place)
    index = {"name": "people_n_idx", "columns": ["n"], "unique": True, "constraint": True}
    index |= {"deferrable": True, "deferred": True}
    return {
        **NS,
        "name": "people",
        "parts": [
            ["AddColumn", {"column": args["column"]}],
            ["AddConstraint", {"not_null": "n"}],
            ["CreateIndex", {"index": index}],
            ["AddConstraint", {"check": {"name": "few", "sql": "n < 100", "columns": ["n"]}}],
            ["AddColumn", {"column": {"name": "city", "type": "text"}}],
        ],
    }


async def _is_enlarged(place: Place, args: Any, happened: bool) -> Any:
    """All parts are there and every row has them, or nothing is."""
    table = await people(place)
    found = [(c.name, c.nullable, c.state) for c in table.columns[3:]]
    if found != ([("n", False, "public"), ("city", True, "public")] if happened else []):
        return f"{found}"
    if [c.state for c in table.checks] != ["public"] * (1 + happened):
        return f"{table.checks}"
    index = table.index("people_n_idx")
    if index is not None and (wrong := await _unlike(place, table, index)):
        return wrong
    if index is not None and not (index.deferrable and index.deferred):
        return f"{index}"
    if (count := len(await place.map())) != place.before["ranges"] + happened:
        return f"{count} partitions"
    return await has(place, NAMES | ({"people_n_seq", "people_n_idx"} if happened else set()))


async def _is_numbered(place: Place, args: Any, happened: bool) -> Any:
    """Every row has a number of its own; or neither the column nor its sequence is there."""
    table = await people(place)
    if [c.name for c in table.columns[3:]] != (["n"] if happened else []):
        return f"{table.columns}"
    rows = (await place.txn.scan(*table_range(table.id), limit=100)).items
    numbers = [codec(table).decode_row(key[4:], value)[-1] for key, value, _ in rows]
    if happened and (None in numbers or len(set(numbers)) != 5):
        return f"{numbers}"
    return await has(place, NAMES | ({"people_n_seq"} if happened else set()))


async def _to_retype(place: Place) -> Any:
    await _to_index(place)
    action = {"kind": "drop_constraint", "constraint": "people_age_check"}
    await place.run("AlterTable", {**NS, "name": "people", "action": action})
    return {
        **NS,
        "name": "people",
        "column": "age",
        "type": "text",
        "sql": "age::text",
        "uses": ["age"],
        "indexes": ["people_age_idx"],
    }


async def _is_retyped(place: Place, args: Any, happened: bool) -> Any:
    """All rows have the new values, or all the old ones, and everybody may write again; so has the
    index, which a failure may leave dropped; then another run does not bring it back."""
    index = (await people(place)).index("people_age_idx")
    if not happened:
        place.before["failed"] = True
    elif index is None and "failed" not in place.before:
        return "no index"
    return await _values(place, (happened,) if index or happened else (True, False))


async def _is_retyped_alone(place: Place, args: Any, happened: bool) -> Any:
    """The same without the index, which others make again."""
    index = (await people(place)).index("people_age_idx")
    return f"{index}" if happened and index else await _values(place, (happened,))


async def _values(place: Place, may: tuple[bool, ...]) -> Any:
    """Whether the values are those of before or behind, and the index's entries with them."""
    table = await people(place)
    rows = (await place.txn.scan(*table_range(table.id), limit=100)).items
    ages = [codec(table).decode_row(key[4:], value)[2] for key, value, _ in rows]
    old = [10, 20, None, 40, 50]
    new = [None if age is None else str(age) for age in old]
    wanted = [new if happened else old for happened in may]
    if ages not in wanted or table.frozen or len(table.columns) != 3:
        return f"{ages}, {table.frozen}, {table.columns}"
    index = table.index("people_age_idx")
    if index is None:
        return await has(place, NAMES - {"people_age_idx"})
    return await _unlike(place, table, index) or await has(place, NAMES)


# -- types


async def _feeling(place: Place) -> Any:
    """A table with a type, and a row of it."""
    await place.table()
    made = await place.run("CreateEnum", {**NS, "name": "mood", "labels": ["sad", "ok"]})
    kind = enums.text_of(enums.Enum(made["oid"], 0, 0, "mood"))
    columns = [{"name": "id", "type": "int4"}, {"name": "m", "type": kind}]
    args = {**NS, "name": "felt", "replicas": 3, "columns": columns, "primary_key": ["id"]}
    await place.run("CreateTable", args)
    table = await catalog.lookup(place.txn, "default", "felt")
    key, value = codec(table).encode_row((1, "ok"))
    await place.txn.write([ops.put(table_prefix(table.id) + key, value)])


async def _mood(place: Place, name: str, *, labels: tuple[str, ...]) -> Any:
    """The type is this in its own row and in the table's column, and the row is as it was."""
    there = await relations.find_relation(place.txn, "default", name)
    if not isinstance(there, EnumType) or there.enum.taken != labels:
        return f"{there}"
    table = await catalog.lookup(place.txn, "default", "felt")
    if table.column("m").type != enums.text_of(there.enum):
        return f"{table.column('m').type} is not of {there.enum}"
    found = (await place.txn.scan(*table_range(table.id), limit=10)).items
    read = [codec(table).decode_row(key[4:], value) for key, value, _ in found]
    wanted = "fine" if "fine" in labels else "ok"
    return None if read == [(1, wanted)] else f"{read}"


async def _new_type(place: Place) -> Any:
    await place.table()
    return {**NS, "name": "mood", "labels": ["sad", "ok"]}


async def _type_is_there(place: Place, args: Any, happened: bool) -> Any:
    return await has(place, {"t", "mood"} if happened else {"t"})


async def _a_type(place: Place) -> Any:
    await place.run("CreateEnum", await _new_type(place))
    return {**NS, "names": ["mood"]}


async def _type_is_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _type_is_there(place, args, not happened)


async def _new_function(place: Place) -> Any:
    await place.table()
    typed = {"arguments": [["a", 23, None]], "result": 23, "columns": []}
    text = {"sql": "SELECT a", "strict": False, "volatile": "i"}
    return {**NS, "name": "f(23)", "title": "f", **typed, **text}


async def _function_is_there(place: Place, args: Any, happened: bool) -> Any:
    return await has(place, {"t", "f(23)"} if happened else {"t"})


async def _a_function(place: Place) -> Any:
    await place.run("CreateFunction", await _new_function(place))
    return {**NS, "names": ["f(23)"]}


async def _function_is_gone(place: Place, args: Any, happened: bool) -> Any:
    return await _function_is_there(place, args, not happened)


async def _to_relabel(place: Place) -> Any:
    await _feeling(place)
    return {**NS, "name": "mood", "label": "ok", "to": "fine"}


async def _is_relabelled(place: Place, args: Any, happened: bool) -> Any:
    return await _mood(place, "mood", labels=("sad", "fine" if happened else "ok"))


async def _to_extend(place: Place) -> Any:
    await _feeling(place)
    return {**NS, "name": "mood", "label": "so-so", "before": "ok"}


async def _is_extended(place: Place, args: Any, happened: bool) -> Any:
    between = ("so-so",) if happened else ()
    return await _mood(place, "mood", labels=("sad", *between, "ok"))


SQL_SCENARIOS: Final[dict[str, tuple[Any, ...]]] = {
    "CreateEnum": (_new_type, _type_is_there, "ALREADY_EXISTS"),
    "DropEnum": (_a_type, _type_is_gone, "NOT_FOUND"),
    "RenameEnum": (_to_relabel, _is_relabelled, "INVALID_ARGUMENT"),
    "AddLabel": (_to_extend, _is_extended, "ALREADY_EXISTS"),
    "CreateFunction": (_new_function, _function_is_there, "ALREADY_EXISTS"),
    "DropFunction": (_a_function, _function_is_gone, "NOT_FOUND"),
    "CreateView": (_new_view, _view_is_there, "ALREADY_EXISTS"),
    "DropView": (_a_view, _view_is_gone, "NOT_FOUND"),
    "CreateSequence": (_new_sequence, _sequence_is_there, "ALREADY_EXISTS"),
    "AlterSequence": (_altered, _is_altered),
    "DropSequence": (_a_sequence, _sequence_is_gone, "NOT_FOUND"),
    "RenameTable": (_renamed, _is_renamed, "NOT_FOUND"),
    "SetSchema": (_to_move, _is_moved, "NOT_FOUND"),
    "RenameSchema": (_to_rename, _schema_is_renamed, "NAMESPACE_NOT_FOUND"),
    "RenameColumn": (_column, _column_is_renamed, "NOT_FOUND"),
    "TruncateTable": (_full, _is_empty),
    "DropIndex": (_indexed, _index_is_gone, "NOT_FOUND"),
    "AlterTable": (_plain, _has_city, "ALREADY_EXISTS"),
    "AddConstraint": (_unbound, _is_bound, "ALREADY_EXISTS"),
    "AddColumn": (_to_number, _is_numbered, "ALREADY_EXISTS"),
    "AddParts": (_to_enlarge, _is_enlarged, "ALREADY_EXISTS"),
    "ChangeType": (_to_retype, _is_retyped_alone),
    "AlterType": (_to_retype, _is_retyped),
    "DropColumn": (_aged, _is_ageless, "NOT_FOUND"),
    "CreateIndex": (_to_index, _is_indexed, "ALREADY_EXISTS"),
}
