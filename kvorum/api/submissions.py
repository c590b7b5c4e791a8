"""What a submission of a procedure needs, by its type and arguments: the same over every surface.

    types of users          submit on the type; of Spark's jobs, too, whose signals name tables:
                            write on these
    CreateTable, …          define on what they change: a table that is named, else its namespace
    kvorum.lock             write on the lock
    kvorum.bulk             operate on the cluster; for signals, and where what goes back gets other
                            arguments or another state, submit on the types that it is for, too
    others of the database  operate on the cluster: they move, copy and repair things

A schedule needs what its type and arguments do, whoever sets, changes, runs or removes it.

Who has a procedure go back, or forks it, with other arguments or another state needs submit on its
type besides: he says what it is to do.

The database's own types have a capital and no dot, or begin with its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kv.base.rights import CLUSTER, Action, Kind, Resource, table
from procedures.engine.lock_procedure import LOCK
from procedures.pools.bulk import BULK
from procedures.sink.format.sink_parts import JOB_SIGNAL, SPARK_JOB

_DEFINE: Final = frozenset({Action.DEFINE})
_OPERATE: Final = frozenset({Action.OPERATE})
_OF_TABLES: Final = frozenset(
    {
        *("AlterTable", "DropTable", "DisableTable", "EnableTable", "ModifyTable"),
        *(
            "TruncateTable",
            "AddConstraint",
            "DropColumn",
            "RenameColumn",
            "ChangeType",
            "AlterType",
        ),
    }
)
"""Whose `name` or `names` are tables that are there."""


class Needed(NamedTuple):
    """All of these actions on that."""

    actions: frozenset[Action]
    resource: Resource


def is_own(type_: str) -> bool:
    """Whether it is one of the database's."""
    return type_.startswith("kvorum.") or (type_[:1].isupper() and "." not in type_)


def needed(type_: str, args: object) -> list[Needed]:
    """All of these. Arguments that are not well formed are refused later; here they need the most
    that their type can.
    """
    if not is_own(type_) or type_ == SPARK_JOB:
        return [Needed(frozenset({Action.SUBMIT}), Resource(Kind.PROCEDURE_TYPE, type_))]
    given = args if isinstance(args, Mapping) else {}
    namespace, named = given.get("namespace"), given.get("name")
    if type_ == BULK:
        return [Needed(_OPERATE, CLUSTER), *_in_bulk(given)]
    if type_ == LOCK and isinstance(resource := given.get("resource"), str):
        return [Needed(frozenset({Action.WRITE}), Resource(Kind.LOCK, resource))]
    if type_.startswith("kvorum.") or not isinstance(namespace, str):
        return [Needed(_OPERATE, CLUSTER)]
    names = given.get("names", [named])
    if type_ in _OF_TABLES and isinstance(names, list) and names:
        return [Needed(_DEFINE, table(namespace, str(name))) for name in names]
    return [Needed(_DEFINE, Resource(Kind.NAMESPACE, namespace))]


def scheduled(type_: object, args: object) -> list[Needed]:
    """What setting a schedule that starts this needs, and changing or running it: it is what its
    type and arguments need of who submits them. Of one of the database's own the clock says when,
    so that needs the cluster, too.
    """
    name = type_ if isinstance(type_, str) else ""
    needs = needed(name, args)
    return [Needed(_OPERATE, CLUSTER), *needs] if is_own(name) else needs


def restated(said: object) -> bool:
    """Whether who has a procedure go back, or forks it, says what it is to do instead."""
    return isinstance(said, Mapping) and any(said.get(n) is not None for n in ("args", "state"))


def _in_bulk(args: Mapping[str, object]) -> list[Needed]:
    """What is said to procedures is said to those of the types that are named; else of all."""
    if args.get("what") != "signal" and not restated(args.get("options")):
        return []
    wanted = args.get("filter")
    types = wanted.get("type") if isinstance(wanted, Mapping) else None
    named = types if isinstance(types, list | tuple) else [types]
    return [
        Needed(
            frozenset({Action.SUBMIT}),
            Resource(Kind.PROCEDURE_TYPE, one if isinstance(one, str) and one else "*"),
        )
        for one in named or [""]
    ]


def signalled(
    signal: Mapping[str, object], tables: Mapping[int, Resource]
) -> tuple[tuple[frozenset[Action], Resource], ...]:
    """What a signal needs, if it is for a Spark job, besides that of all signals: its parts replace
    and delete rows of the table whose id they say. `tables`: by id.
    """
    payload = signal.get("payload")
    part = payload.get("part") if isinstance(payload, Mapping) else None
    if signal.get("name") != JOB_SIGNAL or not isinstance(part, Mapping):
        return ()
    number = part.get("table")
    known = tables.get(number) if type(number) is int else None
    return ((frozenset({Action.WRITE}), known or CLUSTER),)
