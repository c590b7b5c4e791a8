"""The tenants of a process: their accounts by name, with their limits, and their turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kv.base.accounts import NAMESPACE, USER, Account, Limits
from kv.base.fair_turns import FairTurns

NAMES_MAX: Final = 10_000
NAMES_SHOWN: Final = 100  # of each kind, in figures; the others are told together


class Tenants:
    """Of one process."""

    def __init__(self, now_ms: Callable[[], int], turns: FairTurns) -> None:
        self._now_ms, self.turns = now_ms, turns
        self.limited = False  # whether anybody is; else nobody has to be asked
        self._accounts: dict[str, OrderedDict[str, Account]] = {
            USER: OrderedDict(),
            NAMESPACE: OrderedDict(),
        }
        self._forgotten = {USER: [0] * 6, NAMESPACE: [0] * 6}
        self._set: dict[tuple[str, str], dict[str, int]] = {}  # (kind, name or "" = all) → limits

    def user(self, name: str) -> Account:
        return self._account(USER, name)

    def namespace(self, name: str) -> Account:
        return self._account(NAMESPACE, name)

    def follow(self, setting: str, name: str, value: int) -> None:
        """A setting `user.rows_per_s` has this value: of all, or of who has this name; there -1 is
        that of all. What is under way ends as it would have.
        """
        kind, _, limit = setting.partition(".")
        self._set.setdefault((kind, name), {})[limit] = value
        if name and value < 0:
            del self._set[kind, name][limit]
        accounts = self._accounts[kind]
        for one in accounts if not name else {name} & accounts.keys():
            accounts[one].limit(self._limits(kind, one))
        self.limited = any(any(limits.values()) for limits in self._set.values())

    def figures(self) -> dict[str, int]:
        """For the metrics: `requests.user ann`, …"""
        found: dict[str, int] = {}
        for kind, accounts in self._accounts.items():
            others = list(self._forgotten[kind])
            for account in accounts.values():
                numbers = _numbers(account)
                if account.shown:
                    _add(found, f"{kind} {account.name}", numbers)
                else:
                    others = [a + b for a, b in zip(others, numbers, strict=True)]
            if any(others):
                _add(found, f"other {kind}s", others)
        return found

    def _limits(self, kind: str, name: str) -> Limits:
        return Limits(**self._set.get((kind, ""), {}) | self._set.get((kind, name), {}))

    def _account(self, kind: str, name: str) -> Account:
        accounts = self._accounts[kind]
        found = accounts.get(name)
        if found is not None:
            accounts.move_to_end(name)
            return found
        shown = len(accounts) < NAMES_SHOWN
        found = accounts[name] = Account(kind, name, self._now_ms, shown=shown)
        found.limit(self._limits(kind, name))
        if len(accounts) > NAMES_MAX:
            self._forget(kind)
        return found

    def _forget(self, kind: str) -> None:
        accounts = self._accounts[kind]
        for name, account in accounts.items():
            if not (account.under_way or account.connections or account.waiting):
                forgotten = self._forgotten[kind]
                self._forgotten[kind] = [
                    a + b for a, b in zip(forgotten, _numbers(account), strict=True)
                ]
                del accounts[name]
                return


_FIGURES: Final = ("requests", "rows", "bytes", "sql_us", "refused", "waited")


def _numbers(account: Account) -> list[int]:
    return [getattr(account, name) for name in _FIGURES]


def _add(found: dict[str, int], tenant: str, numbers: list[int]) -> None:
    for name, number in zip(_FIGURES, numbers, strict=True):
        found[f"{name}.{tenant}"] = number
