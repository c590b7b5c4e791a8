"""Plain integers about a node's native protocol. Metrics export reads them; counting is one
addition.
"""

from __future__ import annotations

from kv.base.verbs import METHODS_MAX


class Counters:
    """All cumulative since the start, but for `connections` and `handlers`, which are how many
    there are now.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections",
        "connections_refused",
        "connections_total",
        "errors",
        "frames_in",
        "handlers",
        "logins_refused",
        "orders_refused",
        "pauses",
        "protocol_errors",
        "requests",
        "requests_refused",
        "writes",
    )

    def __init__(self) -> None:
        self.requests = [0] * METHODS_MAX  # by method number
        self.errors: dict[str, int] = {}  # by code, of those that the dispatcher itself answered
        self.handlers = 0
        self.connections = 0
        self.connections_total = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.orders_refused = 0  # of connections that have not proved to be a node's
        self.logins_refused = 0
        self.requests_refused = 0  # that whoever sent them may not send
        self.frames_in = 0
        self.writes = (
            0  # one per connection and drain, each of one frame unless it would be too large
        )
        self.bytes_in = 0
        self.bytes_out = 0
        self.pauses = (
            0  # times a connection was not read because its peer did not read, or owed too much
        )

    def as_map(self) -> dict[str, int]:
        """Every counter by a flat name; methods and error codes that never occurred are left
        out.
        """
        flat = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("requests", "errors")
        }
        flat |= {f"requests.{method}": n for method, n in enumerate(self.requests) if n}
        flat |= {f"errors.{code}": n for code, n in sorted(self.errors.items())}
        return flat
