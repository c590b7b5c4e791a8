"""A cluster's roles and databases, and a schema's comment → rows of the shared system tables.
Pure.
"""

from __future__ import annotations

from typing import Final

from sqlproxy.catalog.privileges import Place
from sqlproxy.pgcatalog import oids, rights
from sqlproxy.pgcatalog.contents import Cluster
from sqlproxy.pgcatalog.row_bases import Row, Rows

SHARED: Final = (
    *("pg_database", "pg_authid", "pg_auth_members", "pg_shdescription"),
    "pg_db_role_setting",
)
_STANDARD: Final = "standard public schema"  # PostgreSQL's comment on it


def of_schema(comment: str | None) -> list[Row]:
    """What pg_description has of the schema `public`. None: as made."""
    text = _STANDARD if comment is None else comment
    row: Row = {
        "objoid": oids.PUBLIC_SCHEMA,
        "classoid": oids.PG_NAMESPACE,
        "objsubid": 0,
        "description": text,
        "_owner": 0,
    }
    return [row] if text else []


def of_cluster(cluster: Cluster) -> Rows:
    roles = {role.name: oids.role(role.name, first=not n) for n, role in enumerate(cluster.roles)}
    places = {place.name: place for place in cluster.places}
    members = rights.of_roles(cluster)
    made: Rows = {
        "pg_authid": [
            {
                "oid": roles[r.name],
                "rolname": r.name,
                "rolsuper": r.superuser,
                "rolinherit": r.inherit,
                "rolcreaterole": r.create_role,
                "rolcreatedb": r.create_database,
                "rolcanlogin": r.login,
                "rolreplication": r.superuser,
                "rolbypassrls": r.superuser,
                "rolconnlimit": -1,
                "_roles": members[r.name],
            }
            for r in cluster.roles
        ],
        "pg_auth_members": [
            {
                "roleid": roles[of],
                "member": roles[r.name],
                "grantor": oids.BOOTSTRAP_ROLE,
                "admin_option": False,
            }
            for r in cluster.roles
            for of in r.member_of
            if of in roles
        ],
        "pg_database": [
            {
                "oid": oids.database(name),
                "datname": name,
                "encoding": 6,
                "datlocprovider": "c",
                "datistemplate": False,
                "datallowconn": True,
                "datconnlimit": -1,
                "datfrozenxid": 0,
                "datminmxid": 0,
                "dattablespace": 1663,
                "datcollate": "C.UTF-8",
                "datctype": "C.UTF-8",
                **rights.of_database(places.get(name) or Place(name)),
            }
            for name in cluster.databases
        ],
    }
    made["pg_db_role_setting"] = [
        {
            "setdatabase": oids.database(database) if database else 0,
            "setrole": roles.get(role, 0) if role else 0,
            "setconfig": list(config),
        }
        for role, database, config in cluster.defaults
    ]
    made["pg_shdescription"] = [
        {
            "objoid": oids.database(place.name),
            "classoid": oids.PG_DATABASE,
            "description": place.comment,
        }
        for place in cluster.places
        if place.comment
    ]
    return made
