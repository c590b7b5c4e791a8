"""Values of sequences for what one statement computes: reserved before, handed out one by one; what
is left over is a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from kv.base.limits import SEQUENCE_RUN_MAX
from sqlproxy.front.bound.env import Wanting
from sqlproxy.front.bound.exprs import Once
from sqlproxy.pgcatalog.oids import relation
from sqlproxy.rows.schema import ROWID
from sqlproxy.rows.schema import Sequence as SequenceRow
from sqlproxy.session.shared.services import Numbers as Pool
from sqlproxy.values.errors import NOT_IN_SEQUENCE, SqlError


class _Block:
    """Values of a sequence that were reserved: `run` of the pool."""

    __slots__ = ("asked", "oid", "run", "sequence", "values")

    def __init__(self, sequence: SequenceRow) -> None:
        self.sequence, self.values = sequence, deque[int]()
        self.oid = 0 if sequence.name == ROWID else relation(sequence.id)  # 0: nobody may ask
        self.asked, self.run = 0, 0


_NOTHING: Final[dict[str, _Block]] = {}  # never changed: nearly all statements take no number


class Numbers:
    """Values of sequences that were reserved for one run, by name; `currval` of the session, by
    the sequence: its name may become another one's.

    Expressions never wait. What may want more numbers than were reserved, or sets a sequence, is
    computed between `begin` and `end`: Wanting says what it waits for, and when that is there
    (`add`, `was_set`) it is computed `again`, with the same answers to what it asked before.
    """

    __slots__ = ("_blocks", "_currvals", "_log", "_place", "_undo")

    def __init__(self, currvals: dict[int, int]) -> None:
        """`currvals`: by a sequence's OID; under 0 the OID that lastval() is about."""
        self._blocks = _NOTHING
        self._currvals = currvals
        self._log: list[tuple[Any, Any]] | None = None
        self._place = 0
        self._undo: dict[int, int | None] = {}

    def left(self, name: str) -> int:
        block = self._blocks.get(name)
        return 0 if block is None else len(block.values)

    def add(self, name: str, sequence: SequenceRow, values: Sequence[int], run: int) -> None:
        """Values that were taken after those that are left."""
        block = self._block(name, sequence)
        block.values.extend(values)
        block.run = run

    def _block(self, name: str, sequence: SequenceRow) -> _Block:
        block = self._blocks.get(name)
        if block is None:
            if self._blocks is _NOTHING:
                self._blocks = {}
            block = self._blocks[name] = _Block(sequence)
        return block

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
        for number, old in self._undo.items():
            if old is None:
                self._currvals.pop(number, None)
            else:
                self._currvals[number] = old
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
        block = self._blocks.get(name)
        if value is None:
            if block is None or not block.values:
                raise Wanting(name)
            value = block.values.popleft()
            self._note(name, value)
        assert block is not None  # what it is known from
        if block.oid:
            self._set(block.oid, value)
            self._set(0, block.oid)  # of lastval()
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
        if called:
            self._set(self._blocks[name].oid, value)
        return True

    def once(self, once: Once, given: Sequence[object]) -> object:
        """Raises Wanting."""
        key = repr(given)
        if key not in once.known:
            raise Wanting("", once=once, given=given)
        log = self._log
        if log is not None and self._place < len(log) and log[self._place][0] is once:
            for number, value in log[self._place][1].items():  # it was computed for this row
                self._set(number, value)
            self._place += 1
        return once.known[key]

    def standing(self) -> dict[int, int]:
        """`currval` of all sequences now, for `was_done`."""
        return dict(self._currvals)

    def was_done(self, once: Once, before: Mapping[int, int]) -> None:
        """What it took shows where it stands in the row, not before."""
        taken = {n: v for n, v in self._currvals.items() if before.get(n) != v}
        self._currvals.clear()
        self._currvals.update(before)
        self._note(once, taken)

    def was_set(self, name: str, sequence: SequenceRow, value: int, called: bool) -> None:
        """What setval() wanted was done: what was reserved before is not used."""
        self._block(name, sequence).values.clear()
        self._note(name, (value, called))

    def _note(self, asked: object, answer: object) -> None:
        if self._log is not None:
            self._log.append((asked, answer))
            self._place = len(self._log)

    def _set(self, number: int, value: int) -> None:
        if self._log is not None:
            self._undo.setdefault(number, self._currvals.get(number))
        self._currvals[number] = value

    def currval(self, number: int, name: str) -> int:
        """Raises SqlError (55000)."""
        if number not in self._currvals:
            raise SqlError(
                NOT_IN_SEQUENCE, f'currval of sequence "{name}" is not yet defined in this session'
            )
        return self._currvals[number]

    def lastval(self, there: Container[int]) -> int:
        """`there`: the OIDs of the sequences that there are. Raises SqlError (55000)."""
        number = self._currvals.get(0)
        if number is None or number not in there:
            raise SqlError(NOT_IN_SEQUENCE, "lastval is not yet defined in this session")
        return self._currvals[number]

    def set(self, sequence: SequenceRow, value: int, called: bool) -> None:
        if called:
            self._set(relation(sequence.id), value)
