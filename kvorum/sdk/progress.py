"""How far a procedure is, for people: in a terminal one line that is rewritten, in a notebook one
output that is updated, elsewhere (a log file) a line at each tenth.

    with kvorum.connect("kvorum://host:7600") as db:
        id = db.submit("kvorum.export", {…})
        result = kvorum.follow(db, id)

A procedure says itself how far it is (`ctx.progress`). Deliberately missing: bars of other
libraries; this needs none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kvorum.api.model import ProcedureInfo
    from kvorum.sdk.sync import Database

LOOK_MS: Final = 500
_WIDTH: Final = 110
_BAR: Final = 20


def follow(db: Database, procedure: int, *, what: str = "") -> Any:
    """Show how far the procedure is until it ends; its result. Raises the error that ended it."""
    line = Line(what)
    while True:
        info = db.procedure(procedure, wait_ms=LOOK_MS)
        line.show(info)
        if info.finished:
            return db.wait(procedure)


class Line:
    """What is shown of one procedure, called `what` (by default by its type)."""

    def __init__(self, what: str = "") -> None:
        self._what = what
        self._tenth = -1
        self._notebook = _notebook()
        self._live = self._notebook is None and sys.stderr.isatty()

    def show(self, info: ProcedureInfo) -> None:
        """What is known of it now."""
        latest = info.extra.get("progress") or {}
        part, text = latest.get("part", 0.0), latest.get("text", info.step or "")
        if keeps := info.extra.get("waits"):
            text = str(keeps)
        if info.finished:
            part, text = (1.0, text) if info.state == "SUCCESS" else (part, info.state)
        what = self._what or info.name.removeprefix("kvorum.")
        if self._notebook is not None:
            done = round(part * _BAR)
            bar = "█" * done + "░" * (_BAR - done)
            self._notebook(_printable(f"{what} {bar} {part:4.0%}  {text}")[:_WIDTH])
            return
        line = _printable(f"{what}: {part:4.0%}  {text}")[:_WIDTH]
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line}" if not info.finished else "\r\x1b[K")
            sys.stderr.flush()
        elif latest and int(part * 10) > self._tenth:
            self._tenth = int(part * 10)
            sys.stderr.write(line + "\n")


def _printable(text: str) -> str:
    """Nothing of it moves a cursor: a procedure's words are its author's."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _notebook() -> Callable[[str], None] | None:
    """Updates an output of the notebook that this process is the kernel of; None: it is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Any = importlib.import_module(
        "IPython.display"
    ).display  # whoever is its kernel has it
    shown = display({"text/plain": ""}, raw=True, display_id=True)

    def update(text: str) -> None:
        shown.update({"text/plain": text}, raw=True)

    return update
