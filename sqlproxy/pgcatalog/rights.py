"""What reports privileges: has_table_privilege and its like, pg_has_role, acldefault, aclexplode.

`_acl` of a relation or a database is a list of `OID=letters`, 0 for PUBLIC, with what is as made
spelt out; NULL: the system's own, which everybody reads. `_roles` of a role is what it is a member
of, itself included; a superuser's has -1 in it. A user who is no role may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kv.base.rights import OWNER
from sqlproxy.catalog.privileges import ALL, WORDS, Place, default, shown
from sqlproxy.pg import oids as types
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Cluster, Contents, Role
from sqlproxy.rows.schema import Acl, Relation
from sqlproxy.rows.schema import Sequence as SequenceRow

_ARGUMENTS: Final = {  # how many without the user
    "has_table_privilege": 2,
    "has_sequence_privilege": 2,
    "has_schema_privilege": 2,
    "has_database_privilege": 2,
    "has_any_column_privilege": 2,
    "has_column_privilege": 3,
    "pg_has_role": 2,
}
NAMES: Final = frozenset(_ARGUMENTS)
_ME: Final = (
    "coalesce((SELECT min(w._roles) FROM k_pg_authid w WHERE w.rolname = $user), "
    "CAST([-1] AS BIGINT[]))"
)
_LETTERS: Final = " ".join(f"WHEN '{word}' THEN '{letter}'" for letter, word in WORDS.items())
_WORDS: Final = " ".join(f"WHEN '{letter}' THEN '{word}'" for letter, word in WORDS.items())

MACROS: Final = (
    f"""CREATE MACRO pgc.kv_letters(p) AS list_transform(string_split(upper(p), ','), lambda kv_e:
        CASE trim(replace(kv_e, ' WITH GRANT OPTION', '')) {_LETTERS} WHEN 'TEMP' THEN 'T' END)""",
    """CREATE MACRO pgc.kv_may(acl, roles, letters) AS acl IS NULL OR list_contains(roles, -1) OR
       len(list_filter(acl, lambda kv_g: (split_part(kv_g, '=', 1) = '0' OR
           list_contains(roles, CAST(split_part(kv_g, '=', 1) AS BIGINT))) AND
           list_has_any(string_split(split_part(kv_g, '=', 2), ''), letters))) > 0""",
    """CREATE MACRO pgc.kv_member(roles, role) AS CASE WHEN role IS NOT NULL THEN
       list_contains(roles, -1) OR list_contains(roles, role) END""",
)

# The list of what an aclitem[] says; the names of roles are looked up in one map.
EXPLODED: Final = (
    "(SELECT flatten(list_transform({0}, lambda kv_a: list_transform("
    "string_split(replace(split_part(split_part(kv_a, '=', 2), '/', 1), '*', ''), ''), "
    "lambda kv_l: {{'grantor': kv_z.kv_m[replace(split_part(kv_a, '/', 2), '\"', '')], "
    "'grantee': coalesce(kv_z.kv_m[replace(split_part(kv_a, '=', 1), '\"', '')], 0), "
    f"'privilege_type': CASE kv_l {_WORDS} WHEN 'X' THEN 'EXECUTE' END, "
    "'is_grantable': false}}))) "
    "FROM (SELECT map(list(rolname), list(oid)) kv_m FROM k_pg_authid) kv_z)"
)
_OF_OBJECTS: Final = {"r": "table", "s": "sequence", "d": "database", "n": "schema"}
DEFAULT: Final = (
    "(SELECT CASE "
    + " ".join(
        f"WHEN CAST({{0}} AS VARCHAR) = '{kind}' THEN ["
        + "".join(f"'={letters}/' || z.kv_n, " for _, letters in default(of, "")[:-1])
        + f"z.kv_n || '={ALL[of]}/' || z.kv_n]"
        for kind, of in _OF_OBJECTS.items()
    )
    + " WHEN CAST({0} AS VARCHAR) = 'f' THEN ['=X/' || z.kv_n, z.kv_n || '=X/' || z.kv_n] "
    "WHEN CAST({0} AS VARCHAR) = 'T' THEN ['=U/' || z.kv_n, z.kv_n || '=U/' || z.kv_n] "
    "ELSE CAST([] AS VARCHAR[]) END "
    "FROM (SELECT kv_quoted(rolname) kv_n FROM k_pg_authid WHERE oid = {1}) z)"
)


def asked(name: str, arguments: Sequence[int]) -> str:
    """The text of a call with arguments of these types."""
    count, base = len(arguments), _ARGUMENTS[name]
    first = count - base
    who = _ME
    if first:
        key = "w.oid" if arguments[0] == types.OID else "w.rolname"
        who = f"coalesce((SELECT min(w._roles) FROM k_pg_authid w WHERE {key} = {{0}}), [])"
    by_oid = arguments[first] == types.OID
    at, letters = f"{{{first}}}", f"{{{count - 1}}}"
    match name:
        case "pg_has_role":
            role = at
            if not by_oid:
                role = f"(SELECT min(z.oid) FROM k_pg_authid z WHERE z.rolname = {at})"
            return f"kv_member({who}, {role})"
        case "has_database_privilege":
            where = f"z.oid = {at}" if by_oid else f"z.datname = {at}"
            return _may("z._acl", "k_pg_database z", where, who, letters)
        case "has_schema_privilege":
            where = f"z.oid = {at}" if by_oid else f"z.nspname = {at}"
            acl = "CASE WHEN z.nspname = 'public' THEN x.acl ELSE coalesce(z._acl, ['0=U']) END"
            public = "(SELECT _schema_acl acl FROM k_pg_database WHERE datname = $database) x"
            return _may(acl, f"k_pg_namespace z, {public}", where, who, letters)
        case _:
            where = f"z.oid = {at}"
            if not by_oid:
                where = (
                    f"(z._path = kv_path({at}) OR (z.relname = kv_path({at}) AND "
                    "list_contains(CAST($visible AS BIGINT[]), z.relnamespace)))"
                )
            return _may("z._acl", "k_pg_class z", where, who, letters)


def _may(acl: str, source: str, where: str, who: str, letters: str) -> str:
    """NULL: there is no such object. Lambdas take columns, no subqueries."""
    asked = f"(SELECT {who} roles, kv_letters({letters}) letters) y"
    return (
        f"(SELECT bool_and(kv_may({acl}, y.roles, y.letters)) FROM {source}, {asked} WHERE {where})"
    )


# -- columns of rows


def number(role: str) -> int:
    """The OID of a role; of PUBLIC 0."""
    return oids.role(role, first=role == OWNER) if role else 0


def listed(acl: Acl) -> list[str]:
    """As `_acl`."""
    return [f"{number(grantee)}={letters}" for grantee, letters in acl]


def of_relation(contents: Contents, one: Relation) -> dict[str, object]:
    """What pg_class has of a relation's own row; of its indexes only `relowner`."""
    holder: Relation | None = one
    if isinstance(one, SequenceRow) and one.owned_by is not None:
        holder = contents.relations.get(one.owned_by[0])
    owner = (holder.owner if holder is not None else "") or OWNER
    return {
        "relowner": number(owner),
        "relacl": None if one.acl is None else shown(one.acl, owner),
        "_acl": listed(default(one.kind, owner) if one.acl is None else one.acl),
    }


def of_schema(place: Place) -> dict[str, object]:
    """What pg_namespace has of a schema beside public."""
    owner = place.owner or OWNER
    acl = place.schema
    return {
        "nspowner": number(owner),
        "nspacl": None if acl is None else shown(acl, owner),
        "_acl": listed(default("own schema", owner) if acl is None else acl),
    }


def of_database(place: Place) -> dict[str, object]:
    """What pg_database has of one."""
    owner = place.owner or OWNER
    schema = default("schema", owner) if place.schema is None else place.schema
    return {
        "datdba": number(owner),
        "datacl": None if place.acl is None else shown(place.acl, owner),
        "_acl": listed(default("database", owner) if place.acl is None else place.acl),
        "_schema_acl": listed(schema),
    }


def of_roles(cluster: Cluster) -> Mapping[str, list[int]]:
    """`_roles` of each role."""
    there = {role.name: role for role in cluster.roles}
    return {role.name: _closure(role, there) for role in cluster.roles}


def _closure(role: Role, there: Mapping[str, Role]) -> list[int]:
    reached: dict[str, None] = {role.name: None}
    wanted: list[Iterable[str]] = [role.member_of]
    while wanted:
        for name in wanted.pop():
            if name in there and name not in reached:
                reached[name] = None
                wanted.append(there[name].member_of)
    found = [number(name) for name in reached]
    return [*found, -1] if role.superuser else found  # what is not inherited
