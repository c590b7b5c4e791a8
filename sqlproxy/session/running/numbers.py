"""Values of sequences for what one statement computes: reserved before, handed out one by one; what
is left over is a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kv.base.limits import SEQUENCE_RUN_MAX
from sqlproxy.front.bound.env import Wanting
from sqlproxy.front.bound.exprs import Once
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.shared.services import Numbers as Pool
from sqlproxy.values.errors import NOT_IN_SEQUENCE, SqlError


class _Block:
    """Values of a sequence that were reserved: `run` of the pool."""

    __slots__ = ("asked", "run", "sequence", "values")

    def __init__(self, sequence: SequenceRow) -> None:
        self.sequence, self.values = sequence, deque[int]()
        self.asked, self.run = 0, 0


_NOTHING: Final[dict[str, _Block]] = {}  # never changed: nearly all statements take no number


class Numbers:
    """Values of sequences that were reserved for one run, by name; `currval` of the session.

    Expressions never wait. What may want more numbers than were reserved, or sets a sequence, is
    computed between `begin` and `end`: Wanting says what it waits for, and when that is there
    (`add`, `was_set`) it is computed `again`, with the same answers to what it asked before.
    """

    __slots__ = ("_blocks", "_currvals", "_log", "_place", "_undo")

    def __init__(self, currvals: dict[str, int | str]) -> None:
        """`currvals`: by name; under "" the name that lastval() is about."""
        self._blocks = _NOTHING
        self._currvals = currvals
        self._log: list[tuple[Any, Any]] | None = None
        self._place = 0
        self._undo: dict[str, int | str | None] = {}

    def left(self, name: str) -> int:
        block = self._blocks.get(name)
        return 0 if block is None else len(block.values)

    def add(self, name: str, sequence: SequenceRow, values: Sequence[int], run: int) -> None:
        """Values that were taken after those that are left."""
        block = self._blocks.get(name)
        if block is None:
            if self._blocks is _NOTHING:
                self._blocks = {}
            block = self._blocks[name] = _Block(sequence)
        block.values.extend(values)
        block.run = run

    def more(self, name: str, most: int) -> int:
        """How many to reserve when one is wanted: twice as many as the last time."""
        block = self._blocks.get(name)
        if block is None:
            return 1
        block.asked = min(max(1, block.asked * 2), SEQUENCE_RUN_MAX)
        return max(1, min(block.asked, most))

    def give_back(self, pool: Pool) -> None:
        """The run is over: what is left may be given out to others."""
        for block in self._blocks.values():
            if block.values:
                pool.give_back(block.sequence, list(block.values), block.run)
                block.values.clear()

    # -- what is computed together

    def begin(self) -> None:
        self._log, self._place = [], 0
        self._undo.clear()

    def again(self) -> None:
        self._place = 0
        for name, old in self._undo.items():
            if old is None:
                self._currvals.pop(name, None)
            else:
                self._currvals[name] = old
        self._undo.clear()

    def end(self) -> None:
        self._log = None

    def _known(self, name: str, kind: type) -> Any:
        """The answer that was given before; None: there is none."""
        log = self._log
        if log is None or self._place >= len(log):
            return None
        asked, answer = log[self._place]
        if asked != name or not isinstance(answer, kind):
            del log[self._place :]  # it went another way this time, by chance
            return None
        self._place += 1
        return answer

    # -- what expressions ask

    def nextval(self, name: str) -> int:
        """Raises Wanting."""
        value: int | None = self._known(name, int)
        if value is None:
            block = self._blocks.get(name)
            if block is None or not block.values:
                raise Wanting(name)
            value = block.values.popleft()
            self._note(name, value)
        self._set(name, value)
        self._set("", name)  # of lastval()
        return value

    def setval(self, name: str, value: int, called: bool) -> bool:
        """False: nobody waits for it now. Raises Wanting."""
        if self._log is None:
            return False
        known = self._known(name, tuple)
        if known is None:
            raise Wanting(name, value, called)
        if known != (value, called):
            self._place -= 1
            del self._log[self._place :]
            raise Wanting(name, value, called)
        self.set(name, value, called)
        return True

    def once(self, once: Once, given: Sequence[object]) -> object:
        """Raises Wanting."""
        key = repr(given)
        if key not in once.known:
            raise Wanting("", once=once, given=given)
        log = self._log
        if log is not None and self._place < len(log) and log[self._place][0] is once:
            for name, value in log[self._place][1].items():  # it was computed for this row
                self._set(name, value)
            self._place += 1
        return once.known[key]

    def standing(self) -> dict[str, int | str]:
        """`currval` of all sequences now, for `was_done`."""
        return dict(self._currvals)

    def was_done(self, once: Once, before: Mapping[str, int | str]) -> None:
        """What it took shows where it stands in the row, not before."""
        taken = {n: v for n, v in self._currvals.items() if before.get(n) != v}
        self._currvals.clear()
        self._currvals.update(before)
        self._note(once, taken)

    def was_set(self, name: str, value: int, called: bool) -> None:
        """What setval() wanted was done: what was reserved before is not used."""
        if (block := self._blocks.get(name)) is not None:
            block.values.clear()
        self._note(name, (value, called))

    def _note(self, asked: object, answer: object) -> None:
        if self._log is not None:
            self._log.append((asked, answer))
            self._place = len(self._log)

    def _set(self, name: str, value: int | str) -> None:
        if self._log is not None:
            self._undo.setdefault(name, self._currvals.get(name))
        self._currvals[name] = value

    def currval(self, name: str) -> int:
        """Raises SqlError (55000)."""
        if name not in self._currvals:
            raise SqlError(
                NOT_IN_SEQUENCE, f'currval of sequence "{name}" is not yet defined in this session'
            )
        return int(self._currvals[name])

    def lastval(self) -> int:
        """Raises SqlError (55000)."""
        if "" not in self._currvals:
            raise SqlError(NOT_IN_SEQUENCE, "lastval is not yet defined in this session")
        name = self._currvals[""]
        assert isinstance(name, str)  # with its schema
        return self.currval(name)

    def set(self, name: str, value: int, called: bool) -> None:
        if called:
            self._set(name, value)
