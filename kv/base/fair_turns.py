"""Whose turn it is on the loop of a process: tenant by tenant, and within a tenant in order.

    work comes ─▶ its tenant has not used its share? ─▶ it is done now
                        └▶ it waits ─▶ one turn in a pass of the loop, for who had least

Whoever sends little does not wait behind who sends much: a hundred connections of one tenant have
the share of one tenant. As long as one tenant alone has work (CONTEST_S), nobody waits for that;
who has more to do than a turn takes turns all the same, so that the loop looks at its sockets.

Work is counted where it is done, in microseconds, measured or estimated (`Account.worked_us`). A
tenant may do at once what comes in at SHARE of the time, and LITTLE_US in one pass; more waits.
Strangers are none as long as they ask for FEW of it: a probe each second would be a contest.
Those that wait have turns in the order of what they have worked (start-time fair queueing, Goyal et
al. 1996): a tenant that comes to the queue begins where the others are, so none saves up. Estimates
are only that: when a pass takes more than PASS_S, what is done at once and in a turn shrinks. After
a turn some passes have none: who asks little needs several for an answer, and meets one turn. A
tenant of whom much is under way has them seldom: its writes would be one entry of the log, which is
applied and answered in one pass.

Longest wait: who does not wait meets one pass, which is one turn and a little of each tenant; who
waits meets one turn of each other tenant before its own. docs/decisions/1376.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kv.base.accounts import OVER_LIMIT, Account
from kv.base.errors import Busy
from kv.base.limits import DRAIN_ROWS_MAX, TURN_MS, TURN_REQUESTS_MAX

SHARE: Final = 0.25
LITTLE_US: Final = 400
FEW: Final = 0.1
CONTEST_S: Final = 2.0
PASS_S: Final = 0.001
SLICE_S: Final = 0.004  # that SQL computes before it waits for a turn, if one tenant is there
ROWS: Final = 100  # that reads look at in a pass, if several tenants are there
SENT: Final = 64  # native requests of a tenant that are not answered, above which it has a turn …
STANDS_S: Final = 0.005  # … only so often: they may wait for what it would send next
REQUEST_US: Final = 50  # what a native request costs, about
HTTP_US: Final = 300
BYTES_PER_US: Final = 128
_TURN_US: Final = TURN_MS * 1_000
_LEAST_US: Final = REQUEST_US
_MORE_US: Final = 25
_LESS: Final = 0.25
_RESTS: Final = 2  # passes after a turn: who asks little has mostly got its answer by then
_BEHIND_US: Final = 10 * _TURN_US  # so far at most it stands behind others when it comes

Go = Callable[[], bool]
"""Goes on with what waited; whether that was all of a turn, whatever was counted."""


def _soon(call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(call)


def _later(delay_s: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(delay_s, call)


class FairTurns:
    """Of one process."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object] = _soon,
        call_later: Callable[[float, Callable[[], None]], object] = _later,
    ) -> None:
        self.at_once = TURN_REQUESTS_MAX  # native requests that are taken without a look
        self.slice_s = SLICE_S  # that SQL computes until its next turn
        self.stands = False  # nobody has a turn before something is answered
        self._monotonic, self._call_soon, self._call_later = monotonic, call_soon, call_later
        self._last: Account | None = None  # who was looked at
        self._contested_s = -CONTEST_S  # when it was not the one before
        self._queued: dict[Account, None] = {}
        self._virtual_us = 0.0
        self._turn_us = _TURN_US
        self._gave_s = 0.0  # when the pass before this one gave a turn
        self._pass = 1  # counted while anybody asks
        self._rests = 0  # passes without a turn until the next one
        self._ticks = False
        self._claimed = 0  # the pass whose turn was

    def rows(self) -> int:
        """How many rows reads may look at in one pass now."""
        contested = self._monotonic() - self._contested_s < CONTEST_S
        return ROWS if contested else DRAIN_ROWS_MAX

    def over(self, account: Account) -> bool:
        """Whether its work has to wait now; asked when `worked_us` is above `free_us`."""
        now = self._monotonic()
        if account is not self._last:
            if self._last is not None:
                self._contested_s = now
            self._last = account
        worked = account.worked_us
        elapsed_us, account.looked_s = (now - account.looked_s) * 1_000_000, now
        if now - self._contested_s >= CONTEST_S:
            self._alone()
            account.free_us = worked + LITTLE_US
            return False
        self._shared()
        if account.looked_pass != (now_pass := self._tick()):  # however long a pass takes
            account.looked_pass = now_pass
            came = account.free_us + elapsed_us * SHARE
            little = min(LITTLE_US, self._turn_us)
            account.free_us = max(min(came, worked + little), worked - _TURN_US)
        return worked > account.free_us or bool(account.waiting)

    def seldom(self, account: Account) -> bool:
        """Whether it asks so seldom that nobody has to take turns for it; asked as `over` is, and
        before that.
        """
        now, worked = self._monotonic(), account.worked_us
        elapsed_us, account.looked_s = (now - account.looked_s) * 1_000_000, now
        account.free_us = min(account.free_us + elapsed_us * FEW, worked + 4.0 * LITTLE_US)
        return worked <= account.free_us

    def claim(self) -> bool:
        """Whether who has much to do may do it now; then nobody else in this pass."""
        if self._queued or self._claimed == self._tick():
            return False
        self._claimed = self._pass
        return True

    def wait(self, account: Account, go: Go) -> None:
        """Call when it is its turn."""
        if not account.waiting:
            least = self._virtual_us
            account.began_us = min(max(self._counted(account), least), least + _BEHIND_US)
            if not self._queued:
                self._gave_s = 0.0
                self._call_soon(self._give)
            elif self.stands:
                self.go_on()
            self._queued[account] = None
        account.waiting.append(go)
        account.waited += 1

    async def turn(self, account: Account, most: int = 0) -> None:
        """Wait for one. Raises Busy: so many of its tenant's wait, `most`, unless that is 0."""
        if most and len(account.waiting) >= most:
            account.refused += 1
            raise Busy(
                f"{len(account.waiting)} requests of {account.kind} {account.name} wait for their "
                "turns at this node, the limit, while others have theirs: try again in a moment",
                details={
                    "kind": OVER_LIMIT,
                    "what": "requests that wait",
                    account.kind: account.name,
                    "limit": most,
                    "retry_after_ms": 100,
                },
            )
        mine = asyncio.get_running_loop().create_future()

        def go() -> bool:
            if mine.done():  # cancelled
                return False
            mine.set_result(None)
            return True

        self.wait(account, go)
        await mine

    def _tick(self) -> int:
        """The number of this pass."""
        if not self._ticks:
            self._ticks = True
            self._call_soon(self._next_pass)
        return self._pass

    def _next_pass(self) -> None:
        self._ticks = False
        self._pass += 1

    def _alone(self) -> None:
        self._turn_us, self.at_once, self.slice_s = (
            _TURN_US,
            TURN_REQUESTS_MAX,
            SLICE_S,
        )

    def _shared(self) -> None:
        self.at_once = max(1, min(TURN_REQUESTS_MAX, self._turn_us // REQUEST_US))
        self.slice_s = PASS_S

    def _give(self) -> None:
        now = self._monotonic()
        able = list(self._queued)
        if now - self._contested_s >= CONTEST_S:
            self._alone()
        elif self._rests:
            self._rests -= 1
            self._fit(now)
            self._call_soon(self._give)
            return
        else:
            able = [one for one in able if one.sent < SENT or now - one.turn_s >= STANDS_S]
            if not able:
                self.stands = True
                self._call_later(STANDS_S, self.go_on)
                return
            self._rests = _RESTS
        self._gave_s = now
        account = min(able, key=_began)
        account.turn_s = now
        self._virtual_us = account.began_us
        before = account.worked_us
        try:
            self._go_on(account, before)
        finally:
            account.began_us = self._counted(account) + 1
            if not account.waiting:
                del self._queued[account]
            if self._queued:
                self._call_soon(self._give)

    def go_on(self) -> None:
        """Something was answered, or has waited long enough."""
        if self.stands:
            self.stands = False
            self._call_soon(self._give)

    def _fit(self, now: float) -> None:
        """Turns shrink, or grow again, by how long the pass took that had the last one."""
        if not self._gave_s:
            return
        took_s, self._gave_s = now - self._gave_s, 0.0
        if took_s > PASS_S:
            less = max(_LESS, PASS_S / took_s)
            self._turn_us = max(_LEAST_US, int(self._turn_us * less))
        else:
            self._turn_us = min(_TURN_US, self._turn_us + _MORE_US)
        self._shared()

    @staticmethod
    def _counted(account: Account) -> float:
        """Where it stands with what it has worked since its last turn, whenever that was known."""
        worked, account.turned_us = account.worked_us - account.turned_us, account.worked_us
        return account.began_us + worked

    def _go_on(self, account: Account, before: int) -> None:
        waiting = account.waiting
        for _ in range(len(waiting)):
            if waiting.popleft()() or account.worked_us - before >= self._turn_us:
                break


def _began(account: Account) -> float:
    return account.began_us
