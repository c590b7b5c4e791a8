"""What tenants use of a process, and how much of it each may. Pure: times are milliseconds of a
clock that does not jump.

A tenant is a user, and so is a namespace: what a request costs counts for both. Each has an account
of plain numbers that only rise, which whoever does the work adds to. Limits are the same for all
users, for all namespaces, or of one by name; 0 is none:

    requests_per_s, rows_per_s, bytes_per_s, sql_ms_per_s    buckets that hold one second's worth:
                                                             who was quiet may catch up, once
    requests_max, connections_max                            at once

What rows, bytes and computing come to is known afterwards. So a bucket may go below nothing, by
DEBT_S at most, and then nothing is taken until it is paid; a refused request takes nothing from it,
so that who asks too often still gets its rate. A refusal is BUSY, with the time when to come again.

An account that is not used is forgotten: NAMES_MAX are remembered at most, and of those that have
nothing under way the oldest goes first, whose buckets are full by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kv.base.errors import Busy

DEBT_S: Final = 10.0
USER: Final = "user"
NAMESPACE: Final = "namespace"
OVER_LIMIT: Final = "tenant limit"  # details["kind"] of a refusal
_AGAIN_MS: Final = 100  # when something that is under way may have ended


class Limits(NamedTuple):
    """Of one account."""

    requests_per_s: int = 0
    rows_per_s: int = 0
    bytes_per_s: int = 0
    sql_ms_per_s: int = 0
    requests_max: int = 0
    connections_max: int = 0


RATES: Final = ("requests", "rows", "bytes", "ms of SQL")
_RATED: Final = tuple(enumerate(RATES))


class Account:
    """Of one tenant. `requests`, `rows`, `bytes`, `sql_us`: add to them what was used."""

    __slots__ = (
        *("_at_ms", "_levels", "_limits", "_now_ms", "_seen"),
        *("bytes", "connections", "kind", "limited", "name", "refused"),
        *("requests", "rows", "shown", "sql_us", "under_way", "waited"),
        *("began_us", "free_us", "looked_pass", "looked_s", "sent", "turn_s"),
        *("turned_us", "waiting", "worked_us"),
    )

    def __init__(self, kind: str, name: str, now_ms: Callable[[], int], *, shown: bool) -> None:
        """`shown`: by its name in figures."""
        self.kind, self.name, self.shown = kind, name, shown
        self._now_ms = now_ms
        # Of its turns (kv/base/fair_turns.py):
        self.worked_us = 0  # that it had of the loop, about; add to it what is worked
        self.free_us = 0.0  # above so much of that it has to be looked whether it waits
        self.looked_s, self.looked_pass = 0.0, 0
        self.began_us = 0.0  # where it stands in the order of turns …
        self.turned_us = 0  # … which has counted so much of its work
        self.waiting: deque[Callable[[], bool]] = deque()
        self.sent = 0  # native requests that are not answered
        self.turn_s = 0.0  # when it had one
        self.limited = False  # whether it has to be asked
        self.requests = self.rows = self.bytes = self.sql_us = 0
        self.refused = 0
        self.waited = 0  # times that it waited for its turn
        self.under_way = 0
        self.connections = 0
        self._limits = Limits()
        self._levels = [0.0] * len(RATES)
        self._seen: tuple[float, ...] = (0.0,) * len(RATES)
        self._at_ms = now_ms()

    def limit(self, limits: Limits) -> None:
        """From now on. Buckets keep what they have; new ones are full."""
        self._settle()
        for n in range(len(RATES)):
            full = float(limits[n])
            self._levels[n] = min(self._levels[n], full) if self._limits[n] else full
        self._limits = limits
        self.limited = any(limits)

    def ask(self) -> None:
        """Whether another request is taken now. Raises Busy."""
        most = self._limits.requests_max
        if most and self.under_way >= most:
            raise self._refusal("requests under way", most, _AGAIN_MS)
        if wait_ms := self.wait_ms():
            n = next(n for n, _ in _RATED if self._limits[n] and self._levels[n] < 1)
            raise self._refusal(f"{RATES[n]} per second", self._limits[n], wait_ms)

    def wait_ms(self) -> int:
        """How long until another request is taken; 0: it is now."""
        self._settle()
        worst = 0.0
        for n, level in enumerate(self._levels):
            rate = self._limits[n]
            if rate and level < 1:
                worst = max(worst, (1 - level) * 1_000 / rate)
        return round(worst) + 1 if worst else 0

    def connect(self, *, asked: bool = True) -> None:
        """A connection; `disconnect` follows. Raises Busy: then it does not."""
        most = self._limits.connections_max if asked else 0
        if most and self.connections >= most:
            raise self._refusal("connections", most, _AGAIN_MS)
        self.connections += 1

    def disconnect(self) -> None:
        self.connections -= 1

    def _settle(self) -> None:
        """What was used since the last look is taken from the buckets, what came is added."""
        now_ms = self._now_ms()
        used = (self.requests, self.rows, self.bytes, self.sql_us / 1_000)
        elapsed_s = (now_ms - self._at_ms) / 1_000
        for n, level in enumerate(self._levels):
            if rate := self._limits[n]:
                level += elapsed_s * rate - (used[n] - self._seen[n])
                self._levels[n] = max(min(level, float(rate)), -DEBT_S * rate)
        self._seen, self._at_ms = used, now_ms

    def _refusal(self, what: str, limit: int, wait_ms: int) -> Busy:
        self.refused += 1
        return Busy(
            f"{self.kind} {self.name} has had its {limit} {what} at this node: try again in "
            f"{wait_ms} ms, or have an admin raise it (kvorum setting list)",
            details={
                "kind": OVER_LIMIT,
                "what": what,
                self.kind: self.name,
                "limit": limit,
                "retry_after_ms": wait_ms,
            },
        )


class Use:
    """What one request, or one session, uses: whose it is."""

    __slots__ = ("_begun", "accounts", "asked")

    def __init__(self, *accounts: Account, asked: bool = True) -> None:
        """Not `asked`: it is counted, and has no limits. An operator is never kept out."""
        self.accounts, self.asked = accounts, asked
        self._begun = 0

    @property
    def limited(self) -> bool:
        """Whether it has to be asked."""
        return self.asked and any(account.limited for account in self.accounts)

    def begin(self) -> None:
        """A request, of all of them; `end` follows. Raises Busy: then it does not."""
        if self.asked:
            for account in self.accounts:
                if account.limited:
                    account.ask()
        for account in self.accounts:
            account.requests += 1
        self.enter()

    def enter(self) -> None:
        """It is under way until `end`; whether it may be was asked before."""
        for account in self.accounts:
            account.under_way += 1
        self._begun = len(self.accounts)

    def join(self, account: Account) -> None:
        """The request is this one's, too, as was found out. Raises Busy."""
        if account in self.accounts:
            return
        if account.limited and self.asked:
            account.ask()
        account.requests += 1
        account.under_way += 1
        self.accounts += (account,)
        self._begun += 1

    def spend(self, rows: int = 0, size: int = 0, sql_us: int = 0) -> None:
        """It has used that. `size` in bytes, read and written."""
        for account in self.accounts:
            account.rows += rows
            account.bytes += size
            account.sql_us += sql_us
            account.worked_us += sql_us

    def wait_ms(self) -> int:
        """How long it has to wait before it goes on, for what it has used already."""
        return max(account.wait_ms() for account in self.accounts) if self.limited else 0

    def end(self) -> None:
        """It is answered, or given up; fine twice."""
        for account in self.accounts[: self._begun]:
            account.under_way -= 1
        self._begun = 0
