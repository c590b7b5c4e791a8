"""What a workflow has done so far: the results of its calls, by position. Pure.

A workflow's function is run from its top in every execution. Its n-th call gives what is stored at
position n; the first that is not stored is carried out. So nothing is asked of the code between
calls but that it makes the same calls again; that it does is checked by their kind and name.

It is the procedure's state (`ctx_state` in `proc show`), plain data:

    {"round": r, "args": the arguments of this round, if it is not the first,
     "calls": [[kind, name, status, value, seq], …], "shown": {what the function lets others see}}

    step      done: its result   failed: the error
    sleep     open: due in ms
    signal    done: the payload
    update    done: [its key, its arguments]
    any       done: which one it was
    external  open: its token    done, failed: as it was completed
    child     open: its token    done, failed: as it ended
    emit      done
    row       open: [its storage key, the version that was seen]    done: [value, version]

`seq`: of a step with an undo, the execution that carried it out; −1: nothing to undo. Of a child
its id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kv.base import limits
from kv.base.errors import TooLarge
from procedures.engine.plain_data import Plain

OPEN: Final = "open"
DONE: Final = "done"
FAILED: Final = "failed"

STEP: Final = "step"
SLEEP: Final = "sleep"
SIGNAL: Final = "signal"
UPDATE: Final = "update"
ANY: Final = "any"
EXTERNAL: Final = "external"
CHILD: Final = "child"
EMIT: Final = "emit"
ROW: Final = "row"


@dataclass(slots=True)
class Entry:
    """One call."""

    kind: str
    name: str
    status: str = OPEN
    value: Any = None
    seq: int = -1

    @property
    def text(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


@dataclass(slots=True)
class Journal:
    """See the module. `at`: the calls that this execution has made."""

    round: int = 1
    args: Any = None
    entries: list[Entry] = field(default_factory=list)
    shown: Plain = field(default_factory=dict)
    at: int = 0

    @staticmethod
    def read(state: Plain) -> Journal:
        entries = [Entry(*one) for one in state.get("calls", ())]
        return Journal(state.get("round", 1), state.get("args"), entries)

    def write(self) -> Plain:
        state: dict[str, object] = {"round": self.round}
        if self.round > 1:
            state["args"] = self.args
        state["calls"] = [[e.kind, e.name, e.status, e.value, e.seq] for e in self.entries]
        if self.shown:
            state["shown"] = self.shown
        return state

    def next(self, kind: str, name: str) -> tuple[int, Entry, str]:
        """The position and entry of the next call; and what is stored there instead, if that is
        another one. Raises TooLarge.
        """
        at = self.at
        if at == len(self.entries):
            if at >= limits.PROCEDURE_CALLS_MAX:
                raise TooLarge(
                    f"a workflow made more than {limits.PROCEDURE_CALLS_MAX} calls; begin a new "
                    "round (return flow.again(args)), or give the work to children",
                    details={"limit": limits.PROCEDURE_CALLS_MAX, "actual": at + 1},
                )
            self.entries.append(Entry(kind, name))
        self.at += 1
        entry = self.entries[at]
        same = (entry.kind, entry.name) == (kind, name)
        return at, entry, "" if same else entry.text

    @property
    def left(self) -> str:
        """What is stored of calls that this execution has not made; "" = nothing."""
        return self.entries[self.at].text if self.at < len(self.entries) else ""
