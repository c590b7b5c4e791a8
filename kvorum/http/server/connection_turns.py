"""Turns of one HTTP connection (kv/base/fair_turns.py): who asked last asks next, mostly. So what
he sends is not even parsed before his turn, when he has used his share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kv.base.accounts import Account
from kv.base.fair_turns import HTTP_US, FairTurns, Go
from kv.base.limits import TENANT_WAITING_MAX
from kvorum.http.wire.request import Scope

NAME: Final = "kvorum.turn"  # in the scope of a request, where it comes from a connection


class ConnectionTurn:
    """Of one connection; who has asked by it is told by `asked`; that he is known, to `known`."""

    __slots__ = ("_account", "_had", "_known", "_said", "_turns", "asks")

    def __init__(self, known: Callable[[], object] = lambda: None) -> None:
        self._known = known
        self._account: Account | None = None
        self._said = b""
        self._turns: FairTurns | None = None
        self._had = False  # before the request was parsed
        self.asks: Account | None = None  # whose request is worked on; None: that is not known yet

    def asked(self, account: Account, said: bytes, turns: FairTurns) -> bool:
        """A request with the header `said` is this one's; whether it has had its turn."""
        had, self._had, self.asks = self._had, False, account
        if account is not self._account or said != self._said:
            self._known()
            self._account, self._said, self._turns = (account if said else None), said, turns
            return False  # a proxy's connection has requests of many users
        return had

    def wait(self, data: bytes, go: Go) -> bool:
        """Whether a request that begins with this has to wait: then `go` is called."""
        account, turns = self._account, self._turns
        if account is None or turns is None or account.worked_us <= account.free_us:
            return False
        if self._said not in data or len(account.waiting) >= TENANT_WAITING_MAX:
            return False
        if not turns.over(account):
            return False
        turns.wait(account, go)
        return True

    def begin(self) -> None:
        """Its turn has come."""
        assert self._account is not None, "it has waited"
        self._account.worked_us += HTTP_US
        self._had = True


def turn_of(scope: Scope) -> ConnectionTurn | None:
    """None: the request comes from no connection of ours."""
    found: ConnectionTurn | None = scope.get(NAME)
    return found
