"""Awaits a method of users' code, and distinguishes its own cancellation from the engine's.

A task may cancel itself: `asyncio.current_task().cancel()`, in a step. What then comes out of the
step looks like the end of the engine, which must not be taken for the step's failure, nor the other
way round: a step that is not failed would be run again for ever. But whoever cancels from outside
does it while the step waits; so a cancellation that is asked for while the step's own code runs is
its own. The code is driven here from wait to wait, as `await` would, and this is looked at between.

Left out: a step that has itself cancelled later (`loop.call_soon(task.cancel)`); that is taken for
somebody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator


class OwnCancellation(Exception):
    """The step cancelled the task that it runs in."""


class GivenUp:
    """`await GivenUp(error)`, in code that cannot be made to end: it is left where it is, and
    `Driven` raises the error.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __await__(self) -> Generator[GivenUp, None, None]:
        yield self


class Driven:
    """`await Driven(coroutine)` is `await coroutine`. Raises OwnCancellation."""

    __slots__ = ("_code",)

    def __init__(self, code: Coroutine[object, object, object]) -> None:
        self._code = code

    def __await__(self) -> Generator[object, object, object]:
        task = asyncio.current_task()
        assert task is not None, "steps run in tasks of the engine"
        code, own = self._code, 0
        throw: BaseException | None = None
        value: object = None
        while True:
            before = task.cancelling()
            try:
                waits = code.send(value) if throw is None else code.throw(throw)
            except StopIteration as end:
                own = max(0, own + task.cancelling() - before)
                if not own:
                    return end.value
                break
            except asyncio.CancelledError:
                own = max(0, own + task.cancelling() - before)
                if not own:
                    raise
                break
            except (GeneratorExit, KeyboardInterrupt) as error:
                if isinstance(throw, GeneratorExit):
                    raise  # nobody awaits this any more
                # The one would look as if nobody did, the other would end this process.
                raise RuntimeError(f"{type(error).__name__} left a step") from error
            if type(waits) is GivenUp:
                raise waits.error
            own = max(0, own + task.cancelling() - before)  # timeouts take back what they asked for
            value = throw = None
            try:
                value = yield waits
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the step's
                throw = error
        if task.cancelling() > own:  # the engine, too, is done with it
            raise asyncio.CancelledError
        yield from self._calm(task, own)
        raise OwnCancellation(
            "the step cancelled its own task; to end a procedure return fail(…), to end something "
            "that the step began cancel that"
        )

    @staticmethod
    def _calm(task: asyncio.Task[object], own: int) -> Generator[None, object, None]:
        """Let what was asked for last happen here, or it would meet the engine's next wait."""
        for _ in range(own):
            task.uncancel()
        try:
            yield
        except asyncio.CancelledError:
            if task.cancelling():
                raise
