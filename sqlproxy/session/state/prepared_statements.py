"""The prepared statements of a session by name, as the wire keeps them and pg_prepared_statements
shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from sqlproxy.pg.oids import format_type
from sqlproxy.session.state.activity import moment
from sqlproxy.values.memory import Budget, Held
from sqlproxy.wire.seam import Statement

_CHARACTER: Final = 16  # bytes that each character of a statement takes, its plan included


class _Made(NamedTuple):
    us: int  # when, since 1970
    text: str  # of PREPARE; "": the client parsed it


class Statements(dict[str, Statement]):
    """The prepared statements of a session by name, "" the one without; and how those with a name
    came.
    """

    def __init__(self, now_us: Callable[[], int], budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._held: dict[str, Held] = {}
        self._now_us = now_us
        self._made: dict[str, _Made] = {}

    def __setitem__(self, name: str, statement: Statement) -> None:
        """Raises SqlError (53200)."""
        if name:
            self._release(name)
            self._held[name] = held = Held(self._budget)
            held.add(_CHARACTER * len(getattr(statement, "text", "")))
        super().__setitem__(name, statement)
        if name:
            self._made[name] = _Made(self._now_us(), "")

    def prepared(self, name: str, statement: Statement, text: str) -> None:
        """By PREPARE, of which this is the text."""
        self[name] = statement
        self._made[name] = _Made(self._now_us(), text)

    def pop(self, name: str, *default: object) -> Any:
        self._made.pop(name, None)
        self._release(name)
        return super().pop(name, *default)

    def clear(self) -> None:
        super().clear()
        for name in list(self._held):
            self._release(name)
        self._made.clear()

    def _release(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            held.end()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of pg_prepared_statements. All plans are made once, for any values."""
        for name, made in self._made.items():
            statement = self[name]
            yield {
                "name": name,
                "statement": made.text or getattr(statement, "text", ""),
                "prepare_time": moment(made.us),
                "parameter_types": [format_type(oid) for oid in statement.parameters],
                "from_sql": bool(made.text),
                "generic_plans": 0,
                "custom_plans": 0,
            }
