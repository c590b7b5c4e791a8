"""What comes of a step that is executed once more, with other code (kvorum/sdk/replaying.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from procedures.engine.plain_data import Plain


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that one of the two writes otherwise, or not; in words, long values cut."""

    table: str
    key: bytes
    wrote: str
    writes: str

    def __str__(self) -> str:
        return f"{self.table} {shown(self.key)}: {self.wrote} → {self.writes}"


Rows = dict[tuple[str, bytes], bytes | None]
"""Table ("ns/name") and key → the value; None: removed."""


@dataclass(slots=True)
class Replay:
    """What came of it.

    at, version         the snapshot that it read; the version of what it is compared with
    before, after       how the execution ended then, and ends now, in a few words
    wrote, writes       rows by (table, key): then, and now
    differences         where they are not the same
    effects             outside effects that were refused
    state, new_state    of the procedure after it: phase, next step, ctx.state or result
    """

    procedure: int
    step: str
    at: int
    version: int
    before: str
    after: str = ""
    error: Plain | None = None
    state: Plain = field(default_factory=dict)
    new_state: Plain = field(default_factory=dict)
    wrote: Rows = field(default_factory=dict)
    writes: Rows = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[Difference]:
        found = []
        for place in sorted({*self.wrote, *self.writes}):
            there = place in self.wrote, place in self.writes
            if there != (True, True) or self.wrote[place] != self.writes[place]:
                words = _said(self.wrote, place), _said(self.writes, place)
                found.append(Difference(*place, *words))
        return found

    @property
    def same(self) -> bool:
        """It would do what it did."""
        return not self.differences and self.before == self.after and self.state == self.new_state

    def to_plain(self) -> Plain:
        """For people and JSON."""
        return {
            "id": str(self.procedure),
            "step": self.step,
            "at": str(self.at),
            "version": str(self.version),
            "same": self.same,
            "before": self.before,
            "after": self.after,
            "error": self.error,
            "state": self.state,
            "new_state": self.new_state,
            "differences": [
                {
                    "table": one.table,
                    "key": shown(one.key),
                    "wrote": one.wrote,
                    "writes": one.writes,
                }
                for one in self.differences
            ],
            "writes": len(self.writes),
            "effects_refused": list(self.effects),
        }


def shown(data: bytes) -> str:
    """A key or value for people."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else repr(text)[1:-1]


def _said(rows: Rows, place: tuple[str, bytes]) -> str:
    if place not in rows:
        return "not written"
    value = rows[place]
    if value is None:
        return "removed"
    return f"{shown(value[:80])}{'…' * (len(value) > 80)}"
