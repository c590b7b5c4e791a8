"""What an ended attempt or procedure means for its caller: try again, return, raise. Pure; both
facades share it.
"""

from __future__ import annotations

from typing import Any

from kv.base.errors import (
    DeadlineExceeded,
    InvalidArgument,
    KvorumError,
    Refused,
    TxnAborted,
    UnknownOutcome,
)
from kv.base.ports import Rng
from kvorum.api.model import ProcedureInfo, TxnState
from procedures.engine.client import error_of
from procedures.engine.plain_data import Plain

ATTEMPTS_DEFAULT = 20
_PAUSE_FIRST_S = 0.002
_PAUSE_MAX_S = 0.5


class Retries:
    """The attempts of `db.run`: full jitter over a bound that doubles, as in "Exponential Backoff
    And Jitter" (AWS).
    """

    def __init__(self, rng: Rng, attempts: int) -> None:
        if type(attempts) is not int or attempts < 0:
            raise InvalidArgument(f"attempts must be a positive number, got {attempts!r}")
        self._rng = rng
        self._left = attempts or ATTEMPTS_DEFAULT
        self._bound_s = _PAUSE_FIRST_S

    def pause_s(self, error: KvorumError) -> float:
        """Seconds until the next attempt; raises `error` if none is left or it would not help: what
        ran out of time has asked again and again already.
        """
        self._left -= 1
        again = error.disposition in ("restart_txn", "retry")
        again = again and not isinstance(error, DeadlineExceeded)
        if not again or not self._left:
            raise error
        pause = self._rng.random() * self._bound_s
        self._bound_s = min(self._bound_s * 2, _PAUSE_MAX_S)
        return pause


def committed_version(txn: int, state: TxnState, error: UnknownOutcome) -> int | None:
    """The commit version of a transaction whose answer was lost. Raises TxnAborted, or `error`
    while it is open.
    """
    match state.status:
        case "committed":
            return state.commit_ts
        case "aborted":
            raise TxnAborted(
                f"transaction {txn} was aborted while its commit was under way; run it again",
                details={"txn": str(txn), "reason": "commit interrupted"},
            ) from error
        case _:
            raise error


def answer_of(found: Plain, procedure: int, name: str, key: str, timeout_ms: int) -> Any:
    """What a procedure answers to an update. Raises what it refuses it with, or DeadlineExceeded
    while there is no answer.
    """
    if not found["done"]:
        raise DeadlineExceeded(
            f"procedure {procedure} did not answer the update {name} within {timeout_ms} ms; it "
            f"may still do so: ask again with key={key!r}",
            details={"procedure": str(procedure), "key": key},
        )
    if (error := found.get("error")) is not None:
        raise Refused(str(error["message"]), code=str(error["code"]))
    return found.get("result")


def result_of(info: ProcedureInfo, timeout_ms: int) -> Any:
    """The result of an ended procedure. Raises what ended it, or DeadlineExceeded while it still
    runs.
    """
    if not info.finished:
        raise DeadlineExceeded(
            f"procedure {info.id} ({info.name}) has not ended after {timeout_ms} ms: it goes on in "
            f"state {info.state}; wait again, or longer (wait(…, timeout_ms=…))",
            details={"procedure": str(info.id), "state": info.state},
        )
    if info.state == "SUCCESS":
        return info.result
    raise error_of(
        {"id": str(info.id), "name": info.name, "state": info.state, "error": info.error}
    )
