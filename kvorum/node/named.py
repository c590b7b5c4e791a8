"""What a request to a node is about, where its verb names that in a way that only its layer reads:
kv.server.gate.Named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kv.base.rights import Book, Kind, Resource
from kv.base.verbs import Verb
from kv.server.gate import Needs
from kvorum.api.submissions import needed
from procedures.engine import plain
from procedures.verbs import PROC_SUBMIT, PROC_SUBMIT_MORE, SINK_COMMIT, WORK_ENTER


class Named:
    """Of one node, by its book of the moment."""

    def __init__(self, book: Callable[[], Book | None]) -> None:
        self._book = book

    def __call__(self, verb: Verb, row: list[Any]) -> Needs | None:
        if verb.number in (PROC_SUBMIT, PROC_SUBMIT_MORE):
            return needed(row[verb.at("name")], plain.read(row[verb.at("args")], "args"))
        resource = self._resource(verb, row)
        if resource is None:
            return None
        return ((frozenset({verb.right(row[verb.args_at :])}), resource),)

    def _resource(self, verb: Verb, row: list[Any]) -> Resource | None:
        subject = verb.resource
        if not subject.field:
            return None
        value = row[verb.at(subject.field)]
        if subject.kind is Kind.TABLE:
            if verb.number == SINK_COMMIT:
                value = value.get("table") if type(value) is dict else None
            book = self._book()
            return None if book is None or type(value) is not int else book.tables.get(value)
        if verb.number == WORK_ENTER:
            pool = plain.read(row[verb.at("registration")], "registration").get("pool")
            return Resource(Kind.POOL, pool) if type(pool) is str and pool else None
        if subject.how == "the name" and type(value) is str and value:
            return Resource(subject.kind, value)
        return None
