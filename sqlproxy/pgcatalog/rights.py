"""What rows say of privileges, for has_table_privilege and its like (`front.functions.f_catalog`).

`_acl` of a relation or a database is a list of `OID=letters`, 0 for PUBLIC, with what is as made
spelt out; NULL: the system's own, which everybody reads. `_roles` of a role is what it is a member
of, itself included; a superuser's has -1 in it. A user who is no role may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kv.base.rights import OWNER
from sqlproxy.catalog.privileges import Place, default, shown
from sqlproxy.pgcatalog import oids
from sqlproxy.pgcatalog.contents import Cluster, Contents, Role
from sqlproxy.rows.schema import Acl, Column, Relation, Table
from sqlproxy.rows.schema import Sequence as SequenceRow


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


def of_column(table: Table, column: Column) -> dict[str, object]:
    """What pg_attribute has of a column, beside what pg_class has of its table."""
    if not column.acl:
        return {}
    return {"attacl": shown(column.acl, table.owner or OWNER), "_acl": listed(column.acl)}


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
