"""The prepared statements of a session by name, as the wire keeps them and pg_prepared_statements
shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sqlproxy.session.state.activity import moment
from sqlproxy.wire.seam import Statement


class _Made(NamedTuple):
    us: int  # when, since 1970
    text: str  # of PREPARE; "": the client parsed it


class Statements(dict[str, Statement]):
    """The prepared statements of a session by name, "" the one without; and how those with a name
    came.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        super().__init__()
        self._now_us = now_us
        self._made: dict[str, _Made] = {}

    def __setitem__(self, name: str, statement: Statement) -> None:
        super().__setitem__(name, statement)
        if name:
            self._made[name] = _Made(self._now_us(), "")

    def prepared(self, name: str, statement: Statement, text: str) -> None:
        """By PREPARE, of which this is the text."""
        self[name] = statement
        self._made[name] = _Made(self._now_us(), text)

    def pop(self, name: str, *default: Any) -> Any:
        self._made.pop(name, None)
        return super().pop(name, *default)

    def clear(self) -> None:
        super().clear()
        self._made.clear()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of pg_prepared_statements. All plans are made once, for any values."""
        for name, made in self._made.items():
            statement = self[name]
            yield {
                "name": name,
                "statement": made.text or getattr(statement, "text", ""),
                "prepare_time": moment(made.us),
                "parameter_types": list(statement.parameters),
                "from_sql": bool(made.text),
                "generic_plans": 0,
                "custom_plans": 0,
            }
