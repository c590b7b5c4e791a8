"""A definition's procedure, to its end, whatever becomes of the node that is asked.

Once it is submitted it goes on by itself: that somebody could not be asked for a while says nothing
about it. So who waits asks again until DEADLINE_MS_MAX have passed without a word, and then
says that its outcome is not known (40003), never that nothing was done. The submission has a nonce:
a lost answer to it is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from kv.base.errors import KvorumError, UnknownOutcome
from kv.base.ids import ProcedureId
from kv.base.limits import DEADLINE_MS_MAX, RETRY_WAIT_MS_MAX, SQL_NOTICE_MS, SQL_NOTICE_MS_FIRST
from kv.base.ports import Timers
from kv.client.calls import CUT_OFF
from procedures.engine.client import ENDED, ProcedureInfo, error_of
from sqlproxy.ddl.change.jobs import progress_line

Tell = Callable[[str], None]


class Procedures(Protocol):
    """What is needed of `procedures.engine.client.ProcedureClient`."""

    async def submit(
        self, name: str, args: object = None, *, nonce: str | None = None
    ) -> ProcedureId: ...

    async def get(self, id: int, *, wait_ms: int = 0) -> ProcedureInfo: ...

    async def acknowledge(self, id: int) -> None: ...


async def carried_out(
    procedures: Procedures,
    timers: Timers,
    procedure: str,
    args: Mapping[str, object],
    *,
    nonce: str,
    tell: Tell,
) -> object:
    """Its result; `tell` hears now and then where it is. Raises what ended it, and UnknownOutcome:
    it goes on, or has ended.
    """
    started = await procedures.submit(procedure, dict(args), nonce=nonce)
    info = await _ended(procedures, timers, procedure, started, tell)
    with suppress(KvorumError):  # who looks after old results forgets it, if this does not
        await procedures.acknowledge(started)
    if info["state"] != "SUCCESS":
        raise error_of(info)
    return info["result"]


async def _ended(
    procedures: Procedures, timers: Timers, procedure: str, started: ProcedureId, tell: Tell
) -> ProcedureInfo:
    """Its last state."""
    said, wait_ms = "", SQL_NOTICE_MS_FIRST
    heard = timers.monotonic()
    while True:
        try:
            info = await procedures.get(started, wait_ms=wait_ms)
        except KvorumError as error:
            late = (timers.monotonic() - heard) * 1000 >= DEADLINE_MS_MAX
            if late or error.disposition == "no" or error.code == CUT_OFF:
                raise UnknownOutcome(
                    f"{procedure} was begun as procedure {started}, which goes on or has ended; "
                    f"SHOW JOBS tells. It could not be asked: {error.message}",
                    details={"procedure": str(started)},
                ) from error
            await asyncio.sleep(RETRY_WAIT_MS_MAX / 1000)
            continue
        heard = timers.monotonic()
        if info["state"] in ENDED:
            return info
        if (text := await _where(procedures, info)) and text != said:
            tell(text)
        said, wait_ms = text, SQL_NOTICE_MS


async def _where(procedures: Procedures, info: ProcedureInfo) -> str:
    """Where it is, or the part of it that runs."""
    text, rounds = progress_line(info), info.get("children")
    if text or not rounds:
        return text
    try:
        return progress_line(await procedures.get(int(rounds[-1]["first"])))
    except KvorumError:
        return ""  # it has just ended, or nobody can be asked for a moment
