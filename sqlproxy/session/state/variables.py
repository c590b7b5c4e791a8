"""SET and SHOW as a client sees them: some settings are modes of the transaction under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlproxy.front.bound import statements as s
from sqlproxy.session.state.block import Block, Modes
from sqlproxy.session.state.permits import Permits
from sqlproxy.session.state.settings import CAUSAL_TOKEN, Settings, shown_name
from sqlproxy.wire.seam import Channel

_OF_TRANSACTION: Final = {
    "transaction_isolation": "isolation",
    "transaction_read_only": "read_only",
    "transaction_deferrable": "deferrable",
}


class Variables:
    """Of one session. `modes`: of a transaction that begins now; `token`: what the store's client
    has seen.
    """

    def __init__(
        self,
        settings: Settings,
        block: Block,
        permits: Permits,
        channel: Channel,
        modes: Callable[[], Modes],
        token: Callable[[], int],
    ) -> None:
        self._settings, self._block, self._permits = settings, block, permits
        self._channel, self._modes, self._token = channel, modes, token

    def shown(self) -> dict[str, str]:
        """All as SHOW has them."""
        found = {name: value for name, value, _ in self._settings.all()}
        return found | {name: self.get(name) for name in (*_OF_TRANSACTION, CAUSAL_TOKEN)}

    def get(self, name: str) -> str:
        """One as SHOW has it: modes are those of the transaction, or of the next one. Raises
        SqlError.
        """
        key = name.lower()
        if key == CAUSAL_TOKEN and (token := self._token()):
            return str(token)  # not what was set: all that was seen since
        of = _OF_TRANSACTION.get(key)
        if of is None:
            return self._settings.get(name)
        value = getattr(self._block.modes if self._block.settled else self._modes(), of)
        return value if isinstance(value, str) else "on" if value else "off"

    def assign(self, name: str, value: str | None, *, local: bool = False) -> None:
        """SET; `value` None: its default. Raises SqlError."""
        key = name.lower()
        if key == "role" and value is not None:
            self._permits.check_role(value)
        of = _OF_TRANSACTION.get(key)
        if of is not None or key.removeprefix("default_") in _OF_TRANSACTION:
            self._block.settle(self._modes())  # what is a default now is the next one's
        if of is None:
            self._settings.set(name, value, local=local)
            self._changed(shown_name(name))
            return
        checked = self._settings.checked(key, value or self._settings.get("default_" + key))
        wanted: dict[str, Any] = {of: checked if of == "isolation" else checked == "on"}
        self._block.change(s.Begin(**wanted))

    def _changed(self, name: str) -> None:
        """It is reported to the client if it is one of those."""
        reported = self._settings.reported()
        if name in reported:
            self._channel.parameters[name] = reported[name]

    def report(self, changed: Mapping[str, str]) -> None:
        """What is reported to the client of settings that have changed."""
        self._channel.parameters.update(changed)

    def reset_all(self) -> None:
        """RESET ALL."""
        self.report(self._settings.reset_all())
