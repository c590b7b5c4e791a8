"""How commands talk: results on stdout, one line of error on stderr, exit codes 0 done,
1 refused or failed, 2 usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from kv.base.errors import KvorumError, to_json
from kvorum.http.wire.codec import plain
from kvorum.http.wire.codec import show as show_as
from procedures.engine.plain_data import Plain

DONE, FAILED, USAGE = 0, 1, 2


def emit(data: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json_text(data) + "\n")


def lines(rows: Iterable[str]) -> None:
    """Lines of text on stdout. What a user's text may hold of control characters never reaches the
    terminal (`printable`).
    """
    for row in rows:
        sys.stdout.write(printable(row, "\t\n") + "\n")


def raw(data: bytes) -> None:
    """Bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns; nothing but text, so that it can be cut and piped."""
    cells = [[printable(str(c)) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [list(titles), *cells]) for i in range(len(titles))]
    for row in [list(titles), *cells]:
        text = "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))
        sys.stdout.write(text.rstrip() + "\n")


def partitions(rows: Sequence[dict[str, object]]) -> None:
    """How each partition stands, a line each."""

    def listed(row: Plain, name: str) -> str:
        return ",".join(map(str, row.get(name) or ())) or "-"

    def cells(row: Plain) -> tuple[object, ...]:
        lag = " ".join(f"{node}:{behind}" for node, behind in (row.get("lag") or {}).items())
        leader = row["leader"] if row.get("leader") is not None else "-"
        replicas = (listed(row, name) for name in ("replicas", "learners", "witnesses"))
        policy = {row.get("policy", "-"): None, row.get("policy_proposed", "-"): None}
        figures = (size(row.get("size") or 0), f"{row.get('load') or 0:g}")
        coming = f" (at {listed(row, 'moving_at')} not yet)" if row.get("moving_at") else ""
        files = ((row.get("shard") or "-") + coming, ", better ".join(policy))
        return (row["id"], leader, row.get("term", "-"), *replicas, lag or "-", *figures, *files)

    titles = ("PARTITION", "LEADER", "TERM", "VOTERS", "LEARNERS", "WITNESSES", "LAG")
    table((*titles, "SIZE", "LOAD", "SHARD", "POLICY"), [cells(row) for row in rows])
    lines(f"partition {row['id']}: {row['hint']}" for row in rows if row.get("hint"))


def size(n_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} GiB"


def die(error: KvorumError | str, *, as_json: bool = False) -> NoReturn:
    """One line on stderr, and exit code 1."""
    if as_json:
        body = (
            to_json(error)
            if isinstance(error, KvorumError)
            else {"error": {"code": "FAILED", "message": error, "retry": "no", "details": {}}}
        )
        text = json_text(body)
    else:
        text = _as_lines(error) if isinstance(error, KvorumError) else error
    sys.stderr.write("kvorum: " * (not as_json) + printable(" ".join(text.split())) + "\n")
    raise SystemExit(FAILED)


def _as_lines(error: KvorumError) -> str:
    """Of an error that users' code raised also what it is, and where."""
    place = "".join(f" ({note})" for note in getattr(error, "__notes__", ())[:1])
    return f"{error.code}: {error.message}{place}"


def show(data: bytes) -> object:
    """A key or a value in JSON: text, or `{"b64"}` for other bytes."""
    return show_as(data, packed=False)


def escaped(data: bytes) -> str:
    """A key or a value on one line of text: what is not printable ASCII or UTF-8 as \\xNN."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)
    return "".join(c if c.isprintable() and c != "\\" else _escape(c) for c in text)


def printable(text: str, keep: str = "") -> str:
    """Text with \\x1b and the like for what would move a terminal's cursor, change its colours or
    turn the direction of writing around. `keep`: characters that are our own.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def json_text(data: object) -> str:
    """One line of JSON as the HTTP API would write it: whatever a procedure returned can be read
    by any parser.
    """
    shown = plain(data, packed=False)
    text = json.dumps(shown, ensure_ascii=False, allow_nan=False)
    if text.isprintable():
        return text
    return json.dumps(shown, allow_nan=False)  # all escaped: terminals obey more than ASCII's codes
