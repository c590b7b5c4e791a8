"""Histories written by hand."""

from __future__ import annotations

import itertools
from typing import Any

from kvorum.verify.history import Header, History, Recorder


class Story:
    """`does` is an operation that begins and ends at once; `begins` and `ends` overlap others."""

    def __init__(self, workload: str, *, isolation: str = "snapshot", **parameters: Any) -> None:
        ticks = itertools.count()
        header = Header(workload, isolation=isolation, parameters=parameters)
        self.recorder = Recorder(header, lambda: float(next(ticks)))

    def begins(self, f: str, args: Any = None, *, process: int = 0) -> int:
        return self.recorder.invoke(process, f, args)

    def ends(self, op: int, result: Any = None, **info: Any) -> Story:
        self.recorder.ok(op, result, **info)
        return self

    def does(self, f: str, args: Any = None, result: Any = None, **info: Any) -> Story:
        return self.ends(self.begins(f, args), result, **info)

    def fails(self, f: str, args: Any = None, **info: Any) -> Story:
        self.recorder.fail(self.begins(f, args), "REFUSED", **info)
        return self

    def maybe(self, f: str, args: Any = None) -> Story:
        """Its outcome stays unknown."""
        self.recorder.unknown(self.begins(f, args), "UNKNOWN_OUTCOME")
        return self

    @property
    def history(self) -> History:
        return self.recorder.history
