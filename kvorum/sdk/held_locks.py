"""Locks that a user's code holds, outside of procedures.

    async with db.lock("table/shop/orders", ttl_ms=10_000) as lock:
        ...                                  # others wait
        await db.batch([Put(..., fence=lock.fence)])   # refused once the lock is lost

A procedure of the cluster holds the lock (procedures/engine/lock_procedure.py); a task of this
object's sends its heartbeats. If this process dies, the lock ends ttl_ms later by itself. If it
cannot reach the cluster for ttl_ms, counted from before the last heartbeat that was answered, the
lock counts as lost here, too: `held` is false and `check` raises. Between the moment when it is
lost and the one when the code notices, only the fencing token helps.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from kv.base.adapters import LoopTimers
from kv.base.errors import Busy, InvalidArgument, KvorumError, NotFound, Refused, UnknownOutcome
from kv.base.limits import LOCK_TTL_MS_MAX, LOCK_TTL_MS_MIN, OWNER_CHARS_MAX, WAIT_MS_MAX
from kv.base.ports import Rng
from kvorum.api.backend import Backend
from procedures.engine.lock_procedure import ENDED, HELD, LOCK
from procedures.engine.resources import check_resource

_BEATS_PER_TTL: Final = 3  # so that one that fails can be tried again in time
_SUBMIT_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.1  # after a heartbeat that could not be delivered


class AsyncLock:
    """A lock that is held. Release it, or use it in `async with`."""

    def __init__(self, backend: Backend, id: int, resource: str, token: int, ttl_ms: int) -> None:
        self.id = id
        """The procedure that holds it."""
        self.resource = resource
        self.token = token
        """The fencing token: larger than that of every earlier holder."""
        self._backend, self._ttl_s = backend, ttl_ms / 1000
        self._good_until = 0.0
        self._lost = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None

    @property
    def fence(self) -> tuple[str, int]:
        """For `Put` and `Delete`: the batch is refused (FENCED_OFF) once the lock has ended."""
        return self.resource, self.token

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this process can know."""
        return not self._lost.is_set() and _now_s() < self._good_until

    def check(self) -> None:
        """Raises Refused (LOCK_LOST) unless it is held."""
        if not self.held:
            raise Refused(
                f"the lock of {self.resource} (token {self.token}) is lost: the cluster did not "
                "hear of this process for too long, or somebody took it away",
                code="LOCK_LOST",
                details={"resource": self.resource, "token": str(self.token)},
            )

    async def lost(self) -> None:
        """Wait until it is lost or released."""
        await self._lost.wait()

    async def release(self) -> None:
        """Give it back; others have it or may have it when this returns. A second time it does
        nothing. What cannot be released expires.
        """
        beats, self._beats = self._beats, None
        self._lost.set()
        if beats is None:
            return
        beats.cancel()
        await asyncio.wait([beats])
        try:
            await self._backend.end_lock(self.id)
        except NotFound:
            return  # forgotten: it ended long ago

    def _keep(self, sent: float) -> None:
        """It was held at `sent`: send heartbeats from now on."""
        self._good_until = sent + self._ttl_s
        loop = asyncio.get_running_loop()
        self._beats = loop.create_task(self._beating(), name=f"lock-{self.id}")

    async def _beating(self) -> None:
        pause_s = self._ttl_s / _BEATS_PER_TTL
        while _now_s() < self._good_until:
            await asyncio.sleep(min(pause_s, max(0.0, self._good_until - _now_s())))
            sent = _now_s()
            try:
                async with asyncio.timeout(self._good_until - sent):
                    state = await self._backend.beat_lock(self.id, 0)
            except NotFound:
                break
            except (KvorumError, TimeoutError):
                pause_s = min(_PAUSE_S, self._ttl_s / 10)
                continue
            if state != (HELD, self.token):
                break
            self._good_until = sent + self._ttl_s
            pause_s = self._ttl_s / _BEATS_PER_TTL
        self._lost.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except KvorumError as e:
            if error is None:
                raise
            error.add_note(f"(the lock could not be released, it will expire: {e})")


def checked(resource: object, ttl_ms: object, wait_ms: object, owner: object) -> None:
    """Raises InvalidArgument, TooLarge."""
    check_resource(resource, "lock")
    if type(ttl_ms) is not int or not LOCK_TTL_MS_MIN <= ttl_ms <= LOCK_TTL_MS_MAX:
        raise InvalidArgument(
            f"ttl_ms must be {LOCK_TTL_MS_MIN} to {LOCK_TTL_MS_MAX}, got {ttl_ms!r:.40}"
        )
    if wait_ms is not None and (type(wait_ms) is not int or wait_ms < 0):
        raise InvalidArgument(f"wait_ms must be 0 or more, or None, got {wait_ms!r:.40}")
    if not isinstance(owner, str) or len(owner) > OWNER_CHARS_MAX:
        raise InvalidArgument(
            f"owner must be a text of at most {OWNER_CHARS_MAX} characters, got {owner!r:.40}"
        )


async def take(
    backend: Backend,
    rng: Rng,
    resource: str,
    *,
    exclusive: bool,
    ttl_ms: int,
    wait_ms: int | None,
    owner: str,
    patience_ms: int | None = None,
) -> AsyncLock:
    """Wait for the lock, at most `wait_ms` (None: as long as it takes). `patience_ms`: how long
    nodes may be silent. Raises Busy (LOCK_HELD).
    """
    args = {"resource": resource, "exclusive": exclusive, "ttl_ms": ttl_ms, "owner": owner}
    until = None if wait_ms is None else _now_s() + wait_ms / 1000
    attempts = _SUBMIT_ATTEMPTS if patience_ms is None else 1  # which took as long as it may
    id = await _submit(backend, args, rng.token(16).hex(), attempts)
    heard = _now_s()
    try:
        while True:
            left_ms = ttl_ms // _BEATS_PER_TTL
            if until is not None:
                left_ms = max(0, min(left_ms, int((until - _now_s()) * 1000)))
            sent = _now_s()
            try:
                state, token = await backend.beat_lock(id, min(left_ms, WAIT_MS_MAX))
            except KvorumError as error:
                if error.disposition == "no" or (until is not None and _now_s() >= until):
                    raise
                if patience_ms is not None and _now_s() >= heard + patience_ms / 1000:
                    raise
                await asyncio.sleep(_PAUSE_S)
                continue
            heard = _now_s()
            if state == HELD:
                lock = AsyncLock(backend, id, resource, token, ttl_ms)
                lock._keep(sent)
                return lock
            if state == ENDED:
                raise Refused(
                    f"the wait for the lock of {resource} was ended from outside: its procedure "
                    f"{id} was aborted, or the lock stolen",
                    code="LOCK_LOST",
                )
            if until is not None and _now_s() >= until:
                raise Busy(
                    f"the lock of {resource} was not free within {wait_ms} ms; `kvorum locks` "
                    "tells who has it",
                    code="LOCK_HELD",
                    details={"what": resource, "retry_after_ms": ttl_ms},
                )
    except BaseException:
        await asyncio.shield(_give_up(backend, id))
        raise


async def _submit(backend: Backend, args: dict[str, object], nonce: str, attempts: int) -> int:
    for left in range(attempts, 0, -1):
        try:
            return await backend.submit(LOCK, args, nonce)
        except UnknownOutcome:  # the nonce finds it again
            if left == 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _give_up(backend: Backend, id: int) -> None:
    try:
        await backend.end_lock(id)
    except KvorumError:
        return  # without heartbeats it ends by itself


def _now_s() -> float:
    """A suspension of this machine counts: the lock may have ended meanwhile."""
    return LoopTimers(asyncio.get_running_loop()).monotonic()
