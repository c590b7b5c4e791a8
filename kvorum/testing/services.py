"""Doubles of systems outside: banks, mail, other people's APIs.

    bank = kvorum.testing.Service("bank")

    async def charge(ctx, card: str, amount: int) -> None:
        await bank.call("charge", key=ctx.token, card=card, amount=amount)

A service lives outside of the cluster: what it was asked to do it does, whatever became of who
asked. Every effect is in the history of the run. One that is idempotent does nothing for a key that
it knows, and gives the same answer again; without a key every call is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from kv.base.errors import Refused
from kvorum.testing.durations import Duration, milliseconds
from kvorum.testing.running import Running, procedure_now, running
from kvorum.testing.simulation.life import living
from kvorum.testing.simulation.threads import in_turn


class Service:
    """See the module.

    idempotent  it knows keys
    takes       until it answers; half of that to get there
    answers     by effect, a function of the details: its answer; what it raises is raised in who
                asked, and the effect did not happen. Without one the answer is {}
    patience    so long who asked waits for an answer that does not come (TimeoutError)
    """

    def __init__(
        self,
        name: str,
        *,
        idempotent: bool = True,
        takes: Duration = 20,
        answers: Mapping[str, Callable[..., object]] | None = None,
        patience: Duration = 5_000,
    ) -> None:
        self.name, self._idempotent = name, idempotent
        self._half_s = milliseconds(takes) / 2_000
        self._patience_s = milliseconds(patience) / 1_000
        self._answers = dict(answers or {})

    async def call(self, effect: str, *, key: str = "", **details: object) -> Any:
        """Ask for an effect, from an async step. Raises what the service answers, TimeoutError."""
        now, life = running(), living()
        fate = now.at(f"asks {self.name}.{effect}")
        await now.unless_dead()
        asked = _Asked(effect, key, procedure_now.get(), details)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def tell(value: object) -> None:
            if not answer.done():
                answer.set_result(value)

        def arrive() -> None:
            now.on_their_way -= 1
            value = self._do(now, asked)
            if fate == "" and life is not None:
                now.loop.call_later(self._half_s, life.enter, tell, value, context=Context())

        if fate == "request lost":
            now.history.add("asked", self.name, effect, **asked.told)
        else:
            delay_s = self._half_s + (2 * self._patience_s if fate == "late" else 0.0)
            now.on_their_way += 1
            now.loop.call_later(delay_s, arrive, context=Context())
        try:
            async with asyncio.timeout(self._patience_s):
                value = await answer
        except TimeoutError:
            raise TimeoutError(f"{self.name} does not answer {effect}") from None
        now.at(f"hears {self.name}.{effect}")
        await now.unless_dead()
        if isinstance(value, _Raised):
            raise value.error
        return value

    def call_now(self, effect: str, *, key: str = "", **details: object) -> Any:
        """The same from a plain step."""
        now = running()
        if not in_turn():
            raise Refused(
                f"{self.name}.call_now is for plain steps; async ones await {self.name}.call(…)",
                code="NOT_IN_A_THREAD",
            )
        asked: Coroutine[Any, None, object] = self.call(effect, key=key, **details)
        return now.loop.wait_in_thread(asked)

    def _do(self, now: Running, asked: _Asked) -> Any:
        known = (self.name, asked.effect, asked.key)
        if self._idempotent and asked.key and known in now.done:
            now.history.add("repeated", self.name, asked.effect, **asked.told)
            return now.done[known]
        make = self._answers.get(asked.effect)
        try:
            value = {} if make is None else make(**asked.details)
        except Exception as error:  # noqa: BLE001 - it is the answer
            now.history.add("asked", self.name, asked.effect, **asked.told)
            return _Raised(error)
        now.history.add("effect", self.name, asked.effect, **asked.told)
        now.done[known] = value
        return value


@dataclass(frozen=True, slots=True)
class _Asked:
    effect: str
    key: str
    procedure: int
    details: Mapping[str, Any]

    @property
    def told(self) -> dict[str, Any]:
        """In a history."""
        return {"key": self.key, "procedure": self.procedure, "details": self.details}


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException
