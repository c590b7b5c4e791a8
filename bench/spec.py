"""What the client processes of one case are given."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = 100_000  # loaded before, chosen at random; as etcd's load generator does
MUX_CONNECTIONS = 4  # of the multiplexing cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One case. `clients` = requests in flight, over all processes; every process gets a share."""

    op: str  # put, get, scan, batch, txn, txn2, txn2x, bank; proc
    clients: int
    size: int  # bytes of a value
    transport: str  # native (a connection per client), mux (few connections), http
    client: str  # lean, sdk
    url: str
    native_port: int
    http_port: int
    oracle_port: int = 0  # of the node that gives out timestamps; 0 = the same node
    namespace: str = "bench"
    table: str = ""
    table_id: int = 0
    table_end: bytes = b""
    partition: int = 0
    epoch: int = 0
    rows_per_op: int = 1  # keys of a batch, rows of a page, steps of a procedure
    keys: int = KEYS
    warm_s: float = 0.5
    secs: float = 2.0


def user_key(number: int) -> bytes:
    """16 bytes, in the order of the numbers."""
    return b"k%015d" % number


def shares(total: int, parts: int) -> list[int]:
    """`total` spread over at most `parts` processes, none of them idle."""
    parts = min(parts, total)
    return [total // parts + (i < total % parts) for i in range(parts)]
