"""Functions of the system's relations: names of OIDs, definitions, comments, sizes, privileges.

They ask `Env.catalog`, which whoever runs a statement has brought before it runs, as `ASKS` says
of each. A function is declared for all of PostgreSQL's rows of its name; where it depends on the
types of its arguments, it is made of them (`_typed`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

from sqlproxy.catalog.privileges import ALL, LETTERS, WORDS
from sqlproxy.front.bound.env import OWN_SCHEMA, Env, path_of, searched_before
from sqlproxy.front.functions import object_names
from sqlproxy.front.functions.asking_rights import check_usage, may, of_schema, roles_of
from sqlproxy.front.functions.f_numbers import EXACT
from sqlproxy.front.functions.function import Function, nulls, total, with_env
from sqlproxy.front.functions.regclass import name_parts
from sqlproxy.front.types import registry as r
from sqlproxy.front.types.quoting import quote_ident
from sqlproxy.pg import oids
from sqlproxy.values.enums import is_enum
from sqlproxy.values.errors import (
    INVALID_PARAMETER,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    WRONG_OBJECT_TYPE,
    SqlError,
)
from sqlproxy.values.words import words

Call = Callable[..., Any]
Make = Callable[[tuple[int, ...]], Call]

CATALOG: Final = "catalog"
"""Asked for: the rows of the system's tables, for functions."""
RELATIONS: Final = "relations"
"""Asked for: the rows of relations in FROM, of which each is asked for by its name, too."""
SIZES, SEQUENCES, TRANSACTION = "sizes", "sequences", "txid"
_PG_CATALOG, _PUBLIC = "pg_catalog", "public"
_USERS_FIRST: Final = 16_384  # of the OIDs of what users have declared
_UTF8: Final = 6
_NAME_LETTERS: Final = 64
_NUMBERS: Final = {oids.OID, oids.INT2}
_WRAPPED: Final = re.compile(r"\(([^()]*)\)")

_ALWAYS: Final = words(
    """
    pg_collation_is_visible pg_operator_is_visible pg_opclass_is_visible pg_opfamily_is_visible
    pg_conversion_is_visible pg_ts_config_is_visible pg_ts_dict_is_visible pg_ts_parser_is_visible
    pg_ts_template_is_visible pg_statistics_obj_is_visible has_foreign_data_wrapper_privilege
    has_language_privilege has_server_privilege has_tablespace_privilege
    has_parameter_privilege pg_relation_is_publishable
    """
)
_NEVER: Final = words(
    """
    pg_is_in_recovery pg_is_wal_replay_paused pg_is_other_temp_schema pg_jit_available
    row_security_active
    """
)
_NOTHING: Final = words(
    """
    pg_get_triggerdef pg_get_ruledef pg_get_partkeydef pg_get_partition_constraintdef
    pg_get_statisticsobjdef pg_get_statisticsobjdef_columns pg_get_functiondef
    pg_get_statisticsobjdef_expressions pg_relation_filepath pg_relation_filenode
    pg_get_function_sqlbody pg_get_function_arg_default inet_server_addr inet_client_addr
    pg_get_replica_identity_index pg_partition_root pg_current_logfile pg_last_wal_receive_lsn
    pg_last_wal_replay_lsn pg_current_wal_lsn pg_current_wal_insert_lsn
    pg_last_xact_replay_timestamp
    """
)
_ZERO: Final = words("pg_tablespace_size pg_trigger_depth inet_server_port inet_client_port")
_INDEX_IS: Final = words(
    "orderable asc nulls_last returnable search_array search_nulls distance_orderable"
)
_INDEX_IS_NOT: Final = frozenset(("desc", "nulls_first"))
_METHOD_CAN: Final = frozenset(("can_order", "can_unique", "can_multi_col", "can_include"))
_COUNTERS: Final = {
    proc.name: None if proc.result in (oids.TEXT, oids.TIMESTAMPTZ) else 0
    for procs in r.FUNCTIONS.values()
    for proc in procs
    if proc.name.startswith("pg_stat_get_")
    and not proc.name.startswith("pg_stat_get_backend_")
    and not (proc.returns_set or proc.result == oids.RECORD)
}
"""What is not counted here, and when it was."""
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")
_OPTION: Final = " with grant option"
_PRIVILEGES: Final = {**WORDS, "X": "EXECUTE"}
_OF_OBJECTS: Final = {
    "r": ("", ALL["table"]),
    "s": ("", ALL["sequence"]),
    "d": ("Tc", ALL["database"]),
    "n": ("", ALL["schema"]),
    "f": ("X", "X"),
    "T": ("U", "U"),
}
"""What everybody may, and the owner, by the letter that acldefault takes."""


# -- by OID


def _value(relation: str, key: str, column: str) -> Call:
    """The column of the row with this key."""
    return lambda env, oid, *rest: env.catalog.get(relation, column, **{key: oid})


def _visible(relation: str, column: str) -> Call:
    def visible(env: Env, oid: int) -> bool | None:
        schema = env.catalog.get(relation, column, oid=oid)
        if schema is None:
            return None
        name = env.catalog.get("pg_namespace", "nspname", oid=schema)
        return name == _PG_CATALOG or name in path_of(env)

    return visible


def _relation_visible(env: Env, oid: int) -> bool | None:
    """Whether its name alone means it: no schema that is searched before has another one."""
    catalog = env.catalog
    schema = catalog.get("pg_class", "relnamespace", oid=oid)
    if schema is None:
        return None
    order = [*searched_before(env), *path_of(env)]
    name = catalog.get("pg_namespace", "nspname", oid=schema)
    if name not in order:
        return False
    named = catalog.get("pg_class", "relname", oid=oid)
    others = set(catalog.find("pg_class", "relnamespace", relname=named)) - {schema}
    before = order[: order.index(name)]
    return not any(catalog.get("pg_namespace", "nspname", oid=one) in before for one in others)


def _own_schema(env: Env) -> int:
    found = env.catalog.get("pg_namespace", "oid", nspname=env.session.get(OWN_SCHEMA, ""))
    return int(found or 0)


def _format_type(env: Env, oid: int | None, typmod: int | None) -> str | None:
    if oid is None:
        return None
    of = oids.by_oid(oid)
    if of is not None and not is_enum(of.element or oid):  # of users' the catalog knows the schema
        return oids.format_type(oid, typmod)
    return object_names.type_name(env, oid) or ("???" if oid else "-")


def _user(env: Env, oid: int) -> str:
    found: str | None = env.catalog.get("pg_authid", "rolname", oid=oid)
    return f"unknown (OID={oid})" if found is None else found


def _constraint(env: Env, oid: int, pretty: bool = False) -> str | None:
    found: str | None = env.catalog.get("pg_constraint", "_short" if pretty else "_def", oid=oid)
    return found


def _index(env: Env, oid: int, column: int = 0, pretty: bool = False) -> str | None:
    wanted = "_short" if pretty else "_def"
    if not column:
        found: str | None = env.catalog.get("pg_index", wanted, indexrelid=oid)
        return found
    names: Sequence[str] | None = env.catalog.get("pg_index", "_columns", indexrelid=oid)
    if names is None:
        return None
    return names[column - 1] if 0 < column <= len(names) else ""


def _view(types: tuple[int, ...]) -> Call:
    def view(env: Env, one: int | str, *pretty: object) -> str | None:
        oid = _relation_oid(env, one)
        found: str | None = env.catalog.get("pg_class", "_view", oid=oid)
        return found

    return view


def _described(relation: str) -> Call:
    def described(env: Env, oid: int, system: str | None = None) -> str | None:
        where: dict[str, object] = {"objoid": oid}
        if relation == "pg_description":
            where["objsubid"] = 0
        if system is not None:
            where["classoid"] = env.catalog.get(
                "pg_class", "oid", _path=f"{_PG_CATALOG}\x1f{system}"
            )
        found: str | None = env.catalog.get(relation, "description", **where)
        return found

    return described


def _column_described(env: Env, oid: int, column: int) -> str | None:
    if not column:
        return None
    of = env.catalog.get("pg_class", "oid", _path=f"{_PG_CATALOG}\x1fpg_class")
    found: str | None = env.catalog.get(
        "pg_description", "description", objoid=oid, objsubid=column, classoid=of
    )
    return found


def _updatable(env: Env, oid: int) -> bool:
    """Views are read only, whatever they are over."""
    return oid >= _USERS_FIRST and env.catalog.get("pg_class", "relkind", oid=oid) == "r"


def _index_column(oid: int, column: int, said: str) -> bool | None:
    if said in _INDEX_IS_NOT:
        return False
    return True if said in _INDEX_IS else None


def _bare(sql: str) -> str:
    """Without parentheses around the whole."""
    found = _WRAPPED.fullmatch(sql)
    return found[1] if found else sql


def _serial_sequence(env: Env, table: str, column: str) -> str | None:
    """The sequence that a column owns. Raises SqlError (42P01, 42703)."""
    catalog, oid = env.catalog, _relation_oid(env, table)
    place = catalog.get("pg_attribute", "attnum", attrelid=oid, attname=column)
    if place is None:
        raise SqlError(UNDEFINED_COLUMN, f'column "{column}" of relation "{table}" does not exist')
    for other in catalog.find("pg_depend", "objid", refobjid=oid, refobjsubid=place):
        if catalog.get("pg_class", "relkind", oid=other) == "S":
            found: str | None = catalog.get("pg_class", "_qname", oid=other)
            return found
    return None


# -- sizes


def _size(env: Env, oid: int, *fork: object) -> int:
    return int(env.catalog.fact(SIZES).get(oid, 0))


def _indexes_size(env: Env, oid: int) -> int:
    indexes = env.catalog.find("pg_index", "indexrelid", indrelid=oid)
    return sum(_size(env, index) for index in indexes)


def _database_size(types: tuple[int, ...]) -> Call:
    def size(env: Env, one: int | str) -> int:
        name = one
        if isinstance(one, int):
            name = env.catalog.get("pg_database", "datname", oid=one)
        elif env.catalog.get("pg_database", "oid", datname=one) is None:
            raise SqlError("3D000", f'database "{one}" does not exist')
        return int(env.catalog.fact("databases").get(name, 0))

    return size


def _pretty(size: Any) -> str:
    """As PostgreSQL rounds it: to the next unit from 10 of them on, halves away from zero."""
    if isinstance(size, Decimal) and not size.is_finite():
        return f"{size} {_UNITS[-1]}"
    if abs(size) < 10 * 1024:
        return f"{size:f} bytes" if isinstance(size, Decimal) else f"{size} bytes"
    value, unit = EXACT.divide_int(EXACT.abs(size), 1 << 9), 1  # twice as many
    while value >= 20 * 1024 - 1 and unit < len(_UNITS) - 1:
        value = EXACT.divide_int(value, 1024)
        unit += 1
    half = EXACT.divide_int(EXACT.add(value, 1), 2)
    return f"{'-' if size < 0 else ''}{half:f} {_UNITS[unit]}"


# -- privileges


def letters_of(said: str, known: str = "") -> set[str]:
    """`SELECT, INSERT WITH GRANT OPTION` → PostgreSQL's letters, of which these are known; "": all
    are. Raises SqlError (22023).
    """
    found = set()
    for part in said.split(","):
        word = part.strip().lower().removesuffix(_OPTION).strip()
        if word not in LETTERS or (known and LETTERS[word] not in known):
            raise SqlError(INVALID_PARAMETER, f'unrecognized privilege type: "{part.strip()}"')
        found.add(LETTERS[word])
    return found


def _of_relation(env: Env, one: int | str) -> tuple[bool, Sequence[str] | None]:
    """Whether it is there, and its list."""
    oid = _relation_oid(env, one)
    return (
        env.catalog.get("pg_class", "oid", oid=oid) is not None,
        env.catalog.get("pg_class", "_acl", oid=oid),
    )


def _of_sequence(env: Env, one: int | str) -> tuple[bool, Sequence[str] | None]:
    """The same. Raises SqlError (42809)."""
    there, acl = _of_relation(env, one)
    oid = _relation_oid(env, one)
    if there and env.catalog.get("pg_class", "relkind", oid=oid) != "S":
        name = env.catalog.get("pg_class", "relname", oid=oid)
        raise SqlError(WRONG_OBJECT_TYPE, f'"{name}" is not a sequence')
    return there, acl


def _of_database(env: Env, one: int | str) -> tuple[bool, Sequence[str] | None]:
    key = "oid" if isinstance(one, int) else "datname"
    there = env.catalog.get("pg_database", "oid", **{key: one}) is not None
    if not there and isinstance(one, str):
        raise SqlError("3D000", f'database "{one}" does not exist')
    return there, env.catalog.get("pg_database", "_acl", **{key: one})


def _known(env: Env, key: tuple[object, ...], find: Callable[[], list[Any]]) -> list[Any]:
    """What was found for a key in this run: thousands of objects have an owner, and privileges, in
    common.
    """
    if env.memo is None:
        env.memo = {}
    found: Any = env.memo.get(key)
    if found is None:
        found = env.memo[key] = find()
    return found  # type: ignore[no-any-return]


def exploded(env: Env, acl: Sequence[str]) -> list[tuple[int | None, int, str, bool]]:
    """aclexplode: `grantee=letters/grantor`, * after a letter that may be granted on."""
    return _known(env, ("aclexplode", *acl), lambda: _exploded(env, acl))


def _exploded(env: Env, acl: Sequence[str]) -> list[tuple[int | None, int, str, bool]]:
    def role(name: str) -> int | None:
        bare = name.strip('"')
        return env.catalog.get("pg_authid", "oid", rolname=bare) if bare else 0

    found = []
    for one in acl:
        held, _, grantor = one.rpartition("/")
        grantee, _, letters = held.rpartition("=")
        by, to = role(grantor), role(grantee) or 0
        found += [
            (by, to, _PRIVILEGES.get(letter, letter), letters[at : at + 1] == "*")
            for at, letter in enumerate(letters, 1)
            if letter != "*"
        ]
    return found


def _default_acl(env: Env, kind: str, owner: int) -> list[str]:
    """acldefault: what everybody may, and what the owner."""
    return _known(env, ("acldefault", kind, owner), lambda: _made_acl(env, kind, owner))


def _made_acl(env: Env, kind: str, owner: int) -> list[str]:
    name = env.catalog.get("pg_authid", "rolname", oid=owner)
    if name is None or kind not in _OF_OBJECTS:
        return []
    shown, (everybody, own) = quote_ident(name), _OF_OBJECTS[kind]
    listed = [f"={everybody}/{shown}"] if everybody else []
    return [*listed, f"{shown}={own}/{shown}"]


Finds = Callable[[Env, Any], tuple[bool, Sequence[str] | None]]


def _privilege(finds: Finds, kind: str) -> Make:
    def make(types: tuple[int, ...]) -> Call:
        first = len(types) - 2

        def privilege(env: Env, *given: Any) -> bool | None:
            roles = roles_of(env, given[0] if first else None)
            there, acl = finds(env, given[first])
            letters = letters_of(given[-1], ALL[kind])
            return may(acl, roles, letters) if there else None

        return privilege

    return make


def _column_privilege(types: tuple[int, ...]) -> Call:
    """Of the table, or of the column itself."""
    first = len(types) - 3

    def privilege(env: Env, *given: Any) -> bool | None:
        roles = roles_of(env, given[0] if first else None)
        letters = letters_of(given[-1], ALL["column"])
        there, acl = _of_relation(env, given[first])
        if not there:
            return None
        oid, column = _relation_oid(env, given[first]), given[first + 1]
        key = "attnum" if isinstance(column, int) else "attname"
        found = env.catalog.find("pg_attribute", "_acl", attrelid=oid, **{key: column})
        if not found and key == "attname":
            table = env.catalog.get("pg_class", "relname", oid=oid)
            raise SqlError(
                UNDEFINED_COLUMN, f'column "{column}" of relation "{table}" does not exist'
            )
        if not found:
            return None
        return may(acl, roles, letters) or may(found[0] or (), roles, letters)

    return privilege


def _any_column_privilege(types: tuple[int, ...]) -> Call:
    """Of the table, or of one of its columns."""
    first = len(types) - 2

    def privilege(env: Env, *given: Any) -> bool | None:
        roles = roles_of(env, given[0] if first else None)
        letters = letters_of(given[-1], ALL["column"])
        there, acl = _of_relation(env, given[first])
        if not there:
            return None
        oid = _relation_oid(env, given[first])
        lists = env.catalog.find("pg_attribute", "_acl", attrelid=oid)
        return may(acl, roles, letters) or any(
            may(one, roles, letters) for one in lists if one is not None
        )

    return privilege


def _everybody(find: Callable[[Env, str], int]) -> Make:
    """What everybody may who names something that is there. `find` raises SqlError."""

    def make(types: tuple[int, ...]) -> Call:
        first = len(types) - 2

        def privilege(env: Env, *given: Any) -> bool:
            roles_of(env, given[0] if first else None)
            if isinstance(given[first], str):
                find(env, given[first])
            return True

        return privilege

    return make


def _relation_oid(env: Env, one: int | str) -> int:
    """Raises SqlError (42P01, 3F000, 42501)."""
    if isinstance(one, int):
        return one
    for schema in name_parts(one)[-2:-1]:
        check_usage(env, schema)
    return env.catalog.relation(one)


def _check_membership(said: str) -> None:
    """What pg_has_role asks for. Raises SqlError (22023)."""
    for part in said.split(","):
        word = part.strip().lower().removesuffix(_OPTION).removesuffix(" with admin option")
        if word not in ("usage", "member"):
            raise SqlError(INVALID_PARAMETER, f'unrecognized privilege type: "{part.strip()}"')


def _has_role(types: tuple[int, ...]) -> Call:
    first = len(types) - 2

    def has(env: Env, *given: Any) -> bool | None:
        roles = roles_of(env, given[0] if first else None)
        role = given[first]
        if not isinstance(role, int):
            name, role = role, env.catalog.get("pg_authid", "oid", rolname=role)
            if role is None:
                raise SqlError(UNDEFINED_OBJECT, f'role "{name}" does not exist')
        _check_membership(given[-1])
        return -1 in roles or role in roles

    return has


# -- all of them


def _fact(name: str) -> Call:
    return lambda env, *rest: env.catalog.fact(name)


def _constant(value: object) -> Call:
    return lambda *rest: value


_PURE: Final[dict[str, Call]] = {
    **dict.fromkeys(_ALWAYS, _constant(True)),
    **dict.fromkeys(_NEVER, _constant(False)),
    **dict.fromkeys(_NOTHING, _constant(None)),
    **dict.fromkeys(_ZERO, _constant(0)),
    **{name: _constant(value) for name, value in _COUNTERS.items()},
    "pg_client_encoding": _constant("UTF8"),
    "getdatabaseencoding": _constant("UTF8"),
    "pg_encoding_to_char": lambda number: {_UTF8: "UTF8", 0: "SQL_ASCII"}.get(number, ""),
    "pg_char_to_encoding": lambda name: _UTF8 if name.upper() == "UTF8" else -1,
    "pg_encoding_max_length": _constant(4),
    "pg_blocking_pids": lambda pid: [],
    "pg_tablespace_location": _constant(""),
    "pg_describe_object": lambda of, oid, part: str(oid),
    "pg_index_column_has_property": _index_column,
    "pg_index_has_property": lambda oid, said: said == "index_scan",
    "pg_indexam_has_property": lambda oid, said: said in _METHOD_CAN,
    "pg_get_expr": lambda sql, oid, pretty=False: _bare(sql) if pretty else sql,
    "pg_size_pretty": _pretty,
    "nameconcatoid": lambda name, oid: f"{name}_{oid}",
}
"""What asks nobody."""
_SIMPLE: Final[dict[str, Call]] = {
    "version": _fact("version"),
    "current_query": _fact("query"),
    "pg_postmaster_start_time": _fact("started"),
    "pg_conf_load_time": _fact("started"),
    "txid_current": _fact(TRANSACTION),
    "txid_current_if_assigned": _fact(TRANSACTION),
    "pg_table_is_visible": _relation_visible,
    "pg_my_temp_schema": _own_schema,
    "pg_type_is_visible": _visible("pg_type", "typnamespace"),
    "pg_function_is_visible": _visible("pg_proc", "pronamespace"),
    "pg_get_userbyid": _user,
    "pg_get_constraintdef": _constraint,
    "pg_get_indexdef": _index,
    "pg_get_function_result": _value("pg_proc", "oid", "_result"),
    "pg_get_function_arguments": _value("pg_proc", "oid", "_arguments"),
    "pg_get_function_identity_arguments": _value("pg_proc", "oid", "_identity"),
    "obj_description": _described("pg_description"),
    "shobj_description": _described("pg_shdescription"),
    "col_description": _column_described,
    "pg_column_is_updatable": lambda env, oid, *rest: _updatable(env, oid),
    "pg_relation_is_updatable": lambda env, oid, *rest: 28 if _updatable(env, oid) else 0,
    "pg_sequence_last_value": lambda env, oid: env.catalog.fact(SEQUENCES).get(oid),
    "pg_get_serial_sequence": _serial_sequence,
    "pg_relation_size": _size,
    "pg_table_size": _size,
    "pg_indexes_size": _indexes_size,
    "acldefault": _default_acl,
    "pg_total_relation_size": lambda env, oid: _size(env, oid) + _indexes_size(env, oid),
}
_TYPED: Final[dict[str, Make]] = {
    "pg_get_viewdef": _view,
    "pg_database_size": _database_size,
    "has_table_privilege": _privilege(_of_relation, "table"),
    "has_sequence_privilege": _privilege(_of_sequence, "sequence"),
    "has_any_column_privilege": _any_column_privilege,
    "has_column_privilege": _column_privilege,
    "has_database_privilege": _privilege(_of_database, "database"),
    "has_schema_privilege": _privilege(of_schema, "schema"),
    "has_type_privilege": _everybody(object_names.type_in),
    "has_function_privilege": _everybody(object_names.function_in),
    "pg_has_role": _has_role,
}
_TOTAL: Final = words(
    """
    format_type nameconcatoid pg_column_is_updatable pg_get_expr pg_get_userbyid
    pg_is_other_temp_schema pg_relation_is_updatable
    """
)
"""What never raises of these."""
_READS: Final[dict[str, Call]] = {
    "has_table_privilege": lambda said: letters_of(said, ALL["table"]),
    "has_any_column_privilege": lambda said: letters_of(said, ALL["column"]),
    "has_column_privilege": lambda said: letters_of(said, ALL["column"]),
    "has_schema_privilege": lambda said: letters_of(said, ALL["schema"]),
    "pg_has_role": _check_membership,
}
"""What raises for its last argument alone, where the others are numbers."""
_MORE: Final = {
    SIZES: words(
        "pg_relation_size pg_table_size pg_indexes_size pg_total_relation_size pg_database_size"
    ),
    SEQUENCES: frozenset(("pg_sequence_last_value",)),
    TRANSACTION: frozenset(("txid_current",)),
}


def _sources(names: Iterable[str]) -> Iterable[r.Proc]:
    return (proc for name in names for proc in r.FUNCTIONS.get(name, ()))


_ASKING: Final[dict[str, Function]] = {
    **{
        proc.source: Function(_SIMPLE[proc.name], with_env=True, total=proc.name in _TOTAL)
        for proc in _sources(_SIMPLE)
    },
    **{
        proc.source: Function(
            _TYPED[proc.name](proc.args),
            with_env=True,
            reads=_READS.get(proc.name) if set(proc.args[:-1]) <= _NUMBERS else None,
        )
        for proc in _sources(_TYPED)
    },
    **object_names.FUNCTIONS,
    "format_type": total(nulls(with_env(_format_type))),
}


def _letter(name: str, place: int) -> str | None:
    return name[place : place + 1] if 0 <= place < _NAME_LETTERS else None


FUNCTIONS: Final[dict[str, Function]] = {
    "kvorum_name_letter": Function(_letter),
    **{
        proc.source: Function(_PURE[proc.name], total=proc.name in _TOTAL)
        for proc in _sources(_PURE)
    },
    **_ASKING,
}
ASKS: Final = {
    **dict.fromkeys(_ASKING, CATALOG),
    **{proc.source: what for what, names in _MORE.items() for proc in _sources(names)},
}
"""What each function asks for, by the name of its C function: all of them the rows, some one fact
more: sizes, by OID, and `databases`, by name; sequences' last values, by OID; the transaction.
"""
