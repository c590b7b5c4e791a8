"""Results as Markdown: the goals with their verdicts, then every measurement."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.goals import OVER, Verdict, find, judge_all
from bench.stats import Record

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
_WORDS = {True: "met", False: "**missed**", None: "not measured"}


def read(lines: Iterable[str]) -> list[Record]:
    """The records of a file of JSON lines. Raises ValueError that names the bad line."""
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise ValueError(f"line {number} is not a JSON object")
        records.append(record)
    return records


def number(value: object) -> str:
    """A figure as people read it: about three digits, thousands apart."""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    value += 0.0  # no minus before a zero
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows])


def _verdict_row(verdict: Verdict) -> list[str]:
    goal = verdict.goal
    wanted = f"{'≥' if goal.relation == OVER else '≤'} {number(goal.bound)}" + (
        "×" if goal.peer else ""
    )
    value = number(verdict.value) + ("×" if goal.peer and verdict.value is not None else "")
    return [
        goal.name,
        wanted,
        value,
        number(verdict.ours),
        number(verdict.peer) if goal.peer else "",
        _WORDS[verdict.met],
    ]


def goals_table(records: list[Record]) -> str:
    head = ["goal", "wanted", "reached", "Kvorum", "peer", ""]
    return table(head, (_verdict_row(v) for v in judge_all(records)))


def _kv_row(record: Record) -> list[str]:
    rate = record.get("rows_s")
    who = record.get("peer") or f"{record['transport']}, {record['client']}"
    return [
        str(record.get("nodes", 1)),
        f"{record['op']} {record['size']} B",
        who,
        str(record["clients"]),
        number(record["ops_s"]) + (f" ({number(rate)} rows)" if rate else ""),
        number(record["p50_ms"]),
        number(record["p99_ms"]),
        number(record.get("server_us_op")),
        number(record.get("client_us_op")),
    ]


def _is_operation(record: Record) -> bool:
    return "ops_s" in record and (record["bench"] == "kv" or record.get("peer") == "etcd")


def kv_table(records: list[Record]) -> str:
    """Every KV case, the peers' beside ours."""
    rows = [r for r in records if _is_operation(r)]
    rows.sort(
        key=lambda r: (
            *(r.get("nodes", 1), r["size"], r["op"], r["clients"]),
            r.get("transport", ""),
        )
    )
    head = [
        "nodes",
        "operation",
        "who",
        "clients",
        "ops/s",
        "p50 ms",
        "p99 ms",
        "server µs/op",
        "client µs/op",
    ]
    return table(head, map(_kv_row, rows))


def _other_lines(records: list[Record]) -> list[str]:
    """The records of the other benchmarks, one line each."""
    hidden = ("bench", "op", "peer", "runs", "other_cores", "size", "first_error")
    lines = []
    for record in records:
        if record["bench"] in ("env", "kv") or _is_operation(record):
            continue
        name = " ".join(str(record[k]) for k in ("bench", "peer", "op") if k in record)
        figures = ", ".join(
            f"{k} {' '.join(map(number, v)) if isinstance(v, list) else number(v)}"
            for k, v in record.items()
            if k not in hidden and v is not None
        )
        lines.append(f"- {name}: {figures}")
    return lines


def environment_line(records: list[Record]) -> str:
    env = find(records, {"bench": "env"})
    if env is None:
        return "Machine not recorded."
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    return (
        f"{env['date']}: {env['cores']} cores ({env['cpu']}), {number(env['memory_gb'])} GB, "
        f"Linux {env['kernel']}, {env['filesystem']}, Python {env['python']}, {versions}."
    )


def render(records: list[Record]) -> str:
    """The generated part of docs/performance.md."""
    parts = [
        environment_line(records),
        "### Goals",
        goals_table(records),
        "### Operations",
        kv_table(records),
    ]
    others = _other_lines(records)
    if others:
        parts += ["### Failover, groups, procedures, Spark, memory", "\n".join(others)]
    return "\n\n".join(parts) + "\n"


def insert(page: Path, text: str) -> None:
    """Put `text` between the page's two markers. Raises ValueError if it lacks them."""
    old = page.read_text()
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} must have the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}{END}{after}")
