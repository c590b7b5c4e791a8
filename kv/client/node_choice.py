"""Whom to ask among nodes that can all be asked: one of them, until it fails or names another."""

from __future__ import annotations

from collections.abc import Sequence

from kv.client.router import Address


class Turn:
    """One address in use. Of many callers that fail there together, one moves it on."""

    __slots__ = ("_at", "_named")

    def __init__(self) -> None:
        self._at = 0
        self._named: Address | None = None  # the leader, as somebody said

    def address(self, addresses: Sequence[Address], skip: int = 0) -> Address:
        """Whom to ask next; `skip`: for once, so many further on. `addresses` is not empty and may
        change from call to call.
        """
        if self._named is not None and not skip:
            return self._named
        return addresses[(self._at + skip) % len(addresses)]

    def begin_at(self, index: int) -> None:
        """Ask this one of the addresses first."""
        self._at = index

    def name(self, address: Address) -> None:
        """Somebody said that this one is right."""
        self._named = address

    def failed(self, address: Address, addresses: Sequence[Address]) -> None:
        """`address` is not the right one, or gone. Whoever named it is not asked again at once: it
        may have nothing newer to say.
        """
        in_use = addresses[self._at % len(addresses)] if self._named is None else self._named
        if in_use == address:
            self._named = None
            self._at += 1
