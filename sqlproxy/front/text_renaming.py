"""What is kept as SQL text, under new names: checks and generated columns when a column is renamed,
views when a column or a relation that they read is, all of it when a schema is.

A view's own answer keeps its names: what was called by the old name without saying so is called so
explicitly (`SELECT a` → `SELECT b AS a`, `FROM t` → `FROM u AS t`). Which references mean the
column says the bound query, so the same name of another table stays. The new text is bound against
what will be declared, and must answer the same; what does not is refused, and so are USING and
NATURAL over a renamed column: they would have to become ON.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Final

from sqlproxy.front import front
from sqlproxy.front.binding.scope import Names
from sqlproxy.front.binding.typenames import column_name
from sqlproxy.front.bound.exprs import Column, Const
from sqlproxy.front.bound.statements import Item, JoinItem, Select, SelectItem, TableItem
from sqlproxy.front.bound.trees import inside
from sqlproxy.front.ddl.ddl_texts import query_text, text_of
from sqlproxy.front.syntax.syntax import Node, find, parse, parse_expression, strings
from sqlproxy.front.types.quoting import read_relation, written_relation
from sqlproxy.pg import oids
from sqlproxy.rows.naming import PUBLIC, bare, named, schema_in
from sqlproxy.rows.schema import Table, View
from sqlproxy.values.errors import SqlError, unsupported


def expression(sql: str, old: str, new: str) -> str:
    """An expression over one table, with its column under another name."""
    node = copy.deepcopy(parse_expression(sql))
    for reference in find(node, "ColumnRef"):
        _rename_last(reference, old, new)
    return text_of(node)


def view_of_column(view: View, names: Names, after: Names, table: Table, old: str, new: str) -> str:
    """The text of a view that reads the column. `after`: what is declared then. Raises SqlError."""
    number = table.column(old).id
    select, body = _bound(view, names), _tree(view)
    for join in find(body, "JoinExpr"):
        if join.get("isNatural") or old in strings(join.get("usingClause")):
            raise _refused(view, "joins by the names of columns (USING, NATURAL)")
    wanted = {expr.pos for expr in _meaning(select, int(table.id), number, [])}
    for target in find(body, "ResTarget"):
        val = target.get("val")
        if "name" not in target and val is not None:
            before = column_name(val)
            _rename_at(val, wanted, old, new)
            if column_name(val) != before:
                target["name"] = before
    _rename_at(body, wanted, old, new)
    return _checked(view, body, select, after)


def view_of_relation(view: View, names: Names, after: Names, old: str, new: str) -> str:
    """The text of a view that reads the relation; `new`: with its schema. Raises SqlError."""
    select, body = _bound(view, names), _tree(view)
    held, schema, old = old, schema_in(old), bare(old)
    if any(cte.get("ctename") in (old, bare(new)) for cte in find(body, "CommonTableExpr")):
        raise _refused(view, f'has a WITH query that is called "{old}" or "{new}", too')
    for item in find(body, "RangeVar"):
        if item["relname"] == old and item.get("schemaname", PUBLIC) == schema:
            item["relname"] = bare(new)
            item.pop("schemaname", None)
            if schema_in(new) != PUBLIC:
                item["schemaname"] = schema_in(new)
            if bare(new) != old:
                item.setdefault("alias", {"aliasname": old})
    places = {
        one.pos
        for one in inside(select)
        if isinstance(one, Const) and one.oid == oids.REGCLASS and one.value is not None
    }
    for constant in find(body, "A_Const"):
        text = constant.get("sval", {}).get("sval")
        if constant.get("location", 0) in places and read_relation(text or "-") == held:
            constant["sval"] = {"sval": written_relation(new)}
    for reference in find(body, "ColumnRef"):  # schema.relation.column: by the alias
        if _words(reference["fields"])[-3:-1] == [schema, old]:
            del reference["fields"][:-2]
    return _checked(view, body, select, after)


def of_schema(sql: str, old: str, new: str) -> str:
    """An expression where a schema has another name."""
    node = copy.deepcopy(parse_expression(sql))
    _rename_schema(node, old, new)
    return text_of(node)


def view_of_schema(view: View, old: str, new: str) -> str:
    """A view's text where a schema has another name; `check_answer` says whether it is right."""
    body = _tree(view)
    _rename_schema(body, old, new)
    return query_text(body)


def check_answer(view: View, text: str, names: Names, after: Names) -> None:
    """Raises SqlError: under its new text it cannot be read, or answers something else."""
    parsed = parse(text)
    assert parsed is not None
    _checked(view, parsed.body, _bound(view, names), after)


_NUMBERED: Final = ("nextval", "currval", "setval")


def _rename_schema(node: Node, old: str, new: str) -> None:
    for item in find(node, "RangeVar"):
        if item.get("schemaname") == old:
            item["schemaname"] = new
    for kind in ("typeName", "TypeName"):
        for written in find(node, kind):
            _rename_word(written.get("names", []), -2, old, new)
    for reference in find(node, "ColumnRef"):
        _rename_word(reference["fields"], -3, old, new)
    for cast in find(node, "TypeCast"):
        if strings(cast["typeName"].get("names"))[-1:] == ["regclass"]:
            _rename_held(cast["arg"], old, new)
    for call in find(node, "FuncCall"):
        _rename_word(call["funcname"], -2, old, new)
        if strings(call["funcname"])[-1] in _NUMBERED and call.get("args"):
            _rename_held(call["args"][0], old, new)


def _rename_word(words: list[Node], at: int, old: str, new: str) -> None:
    if len(words) >= -at and words[at].get("String", {}).get("sval") == old:
        words[at] = {"String": {"sval": new}}


def _rename_held(constant: Node, old: str, new: str) -> None:
    """The text that names a relation."""
    held = constant.get("A_Const", {}).get("sval")
    if held is not None:
        name = read_relation(held.get("sval", ""))
        if schema_in(name) == old:
            held["sval"] = written_relation(named(new, name))


def _words(nodes: Sequence[Node]) -> list[str | None]:
    return [node.get("String", {}).get("sval") for node in nodes]


def _tree(view: View) -> Node:
    parsed = parse(view.sql)
    assert parsed is not None, "a view has a query"
    body: Node = copy.deepcopy(parsed.body)
    return body


def _bound(view: View, names: Names) -> Select:
    found = front.bind(parse(view.sql), names.publicly())
    assert isinstance(found, Select)
    return found


def _checked(view: View, body: Node, before: Select, after: Names) -> str:
    text = query_text(body)
    try:
        now = front.bind(parse(text), after.publicly())
    except SqlError as error:
        raise _refused(view, f"could not be read any more: {error.message}") from error
    assert isinstance(now, Select)
    if _answer(now) != _answer(before):
        raise _refused(view, "would answer other columns")
    return text


def _answer(select: Select) -> list[tuple[str, int, int]]:
    return [(t.name, t.expr.oid, t.expr.typmod) for t in select.targets]


def _refused(view: View, why: str) -> SqlError:
    return unsupported(
        f'renaming what view "{view.name}" reads: the view {why}',
        hint="Drop the view first and make it again afterwards.",
    )


def _rename_at(node: object, wanted: set[int], old: str, new: str) -> None:
    for reference in find(node, "ColumnRef"):
        if reference.get("location", 0) in wanted:
            _rename_last(reference, old, new)


def _rename_last(reference: Node, old: str, new: str) -> None:
    last = reference["fields"][-1]
    if "String" in last and last["String"].get("sval") == old:
        last["String"]["sval"] = new


def _meaning(value: object, table: int, column: int, around: list[set[str]]) -> Iterator[Column]:
    """The references in a bound query that mean the table's column itself, not a column of a
    subquery or a view that hands it on. `around`: the aliases of the table, query by query.
    """
    if isinstance(value, SelectItem) and value.view is not None:
        return
    if isinstance(value, Select):
        aliases = {leaf.alias for item in value.items for leaf in _leaves(item, table)}
        around = [*around, aliases]
    if isinstance(value, Column):
        own = value.level < len(around) and value.relation in around[-1 - value.level]
        if own and (value.table, value.attribute) == (table, column):
            yield value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _meaning(one, table, column, around)
    elif is_dataclass(value) and not isinstance(value, Table | View | type):
        for part in fields(value):
            yield from _meaning(getattr(value, part.name), table, column, around)


def _leaves(item: Item, table: int) -> Iterator[TableItem]:
    if isinstance(item, JoinItem):
        yield from _leaves(item.left, table)
        yield from _leaves(item.right, table)
    elif isinstance(item, TableItem) and item.table.id == table:
        yield item
