"""Failed logins slow the next ones down, per address and per name. Pure.

After some free failures each one more doubles the wait, from FIRST_MS to a bound; a login that
succeeds forgets its name and address, and FORGET_MS without a failure forgets everything. A name
that does not exist is treated as any other. A name has more free failures and a shorter bound than
an address: somebody who guesses from elsewhere must not keep its owner out. What is remembered is
bounded by ENTRIES_MAX, the oldest goes first: a flood of names costs no more memory than that.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

FAILED_LOGINS: Final = "failed logins"  # details["what"] of a refusal
ADDRESS: Final = "address"
NAME: Final = "name"
FREE: Final = {ADDRESS: 3, NAME: 20}
FIRST_MS: Final = 250
LONGEST_MS: Final = {ADDRESS: 30_000, NAME: 2_000}
_NAME_CHARS: Final = 200  # a client may say any
FORGET_MS: Final = 10 * 60_000
ENTRIES_MAX: Final = 10_000


@dataclass(slots=True)
class _Failures:
    count: int
    last_ms: int


class Throttle:
    """Of one process. Times are milliseconds of a clock that does not jump."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def wait_ms(self, address: str, name: str, now_ms: int) -> int:
        """How long a login from there, or under that name, has to wait yet."""
        return max(self._wait(key, now_ms) for key in _keys(address, name))

    def failed(self, address: str, name: str, now_ms: int) -> None:
        """A login failed, for whatever reason."""
        for key in _keys(address, name):
            before = self._of.pop(key, None)
            if before is None or now_ms - before.last_ms >= FORGET_MS:
                before = _Failures(0, now_ms)
            self._of[key] = _Failures(before.count + 1, now_ms)
        while len(self._of) > ENTRIES_MAX:
            self._of.popitem(last=False)

    def succeeded(self, address: str, name: str) -> None:
        """A login succeeded."""
        for key in _keys(address, name):
            self._of.pop(key, None)

    def _wait(self, key: tuple[str, str], now_ms: int) -> int:
        failures = self._of.get(key)
        free, longest = FREE[key[0]], LONGEST_MS[key[0]]
        if failures is None or failures.count < free:
            return 0
        doubled = min(longest, FIRST_MS << min(failures.count - free, 16))
        return max(0, failures.last_ms + doubled - now_ms)


def _keys(address: str, name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (ADDRESS, address), (NAME, name[:_NAME_CHARS])
