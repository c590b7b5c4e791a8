"""The bank: one total in every snapshot, nobody in debt, and an end that the journal explains.

The shapes are those of workloads/bank.py. Finds

    total               a read whose balances do not add up: it saw two moments, or half a transfer
    negative            an account below zero: a transfer was decided on another snapshot
    missing             an account that was not in a read
    lost                an acknowledged transfer that is not in the journal
    from-nowhere        a journal row that nobody wrote, or whose transfer was refused, or differs
    balance             a final balance that is not what the journal makes it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.history import History, Operation


def check(history: History) -> list[Anomaly]:
    """See the module."""
    accounts: list[str] = list(history.header.parameters["accounts"])
    balance = int(history.header.parameters["balance"])
    operations = history.operations()
    found: list[Anomaly] = []
    for o in operations:
        if o.acknowledged and o.f in ("read", "final read"):
            found += _snapshot(o, accounts, balance)
        elif o.acknowledged and o.f == "transfer" and o.result is not None:
            found += _debt(o, o.result)
    journals = [o for o in operations if o.f == "final journal" and o.acknowledged]
    ends = [o for o in operations if o.f == "final read" and o.acknowledged]
    if journals:
        found += _journal(journals[-1], operations)
    if journals and ends:
        found += _balances(ends[-1], journals[-1], accounts, balance)
    return found


def _snapshot(o: Operation, accounts: list[str], balance: int) -> list[Anomaly]:
    missing = [account for account in accounts if account not in o.result]
    if missing:
        text = f"#{o.id} ({_how(o)}) found no account {', '.join(missing)}"
        return [Anomaly("missing", text, (o.id,))]
    found = _debt(o, o.result)
    total, wanted = sum(o.result.values()), balance * len(accounts)
    if total != wanted:
        which = f"#{o.id} ({_how(o)}, at {o.ended_s:.3f} s)"
        text = f"{which} adds up to {total}, not {wanted}: {o.result}"
        found.append(Anomaly("total", text, (o.id,)))
    return found


def _how(o: Operation) -> str:
    how = (o.args or {}).get("how", "")
    return f"{o.f} by {how}" if how else o.f


def _debt(o: Operation, balances: Mapping[str, int]) -> list[Anomaly]:
    return [
        Anomaly("negative", f"#{o.id} ({_how(o)}): {name} has {value}", (o.id,))
        for name, value in balances.items()
        if value < 0
    ]


def _journal(end: Operation, operations: list[Operation]) -> list[Anomaly]:
    rows: Mapping[str, Any] = end.result
    transfers = {str(o.args["id"]): o for o in operations if o.f == "transfer"}
    found = []
    for number, o in transfers.items():
        if o.acknowledged and o.result is not None and number not in rows:
            text = f"#{o.id}: transfer {number} was acknowledged, but the journal does not have it"
            found.append(Anomaly("lost", text, (o.id, end.id)))
    for number, row in rows.items():
        written = transfers.get(number)
        if written is None:
            text = f"the journal has a transfer {number} that nobody made"
            found.append(Anomaly("from-nowhere", text, (end.id,)))
            continue
        if written.outcome == "fail" or (written.acknowledged and written.result is None):
            why = written.error or "there was too little"
            text = f"#{written.id}: transfer {number} was refused ({why}) and is in the journal"
            found.append(Anomaly("from-nowhere", text, (written.id, end.id)))
        elif list(row) != [written.args["from"], written.args["to"], written.args["amount"]]:
            text = f"#{written.id}: the journal has transfer {number} as {row}"
            found.append(Anomaly("from-nowhere", text, (written.id, end.id)))
    return found


def _balances(
    end: Operation, journal: Operation, accounts: list[str], balance: int
) -> list[Anomaly]:
    wanted = dict.fromkeys(accounts, balance)
    for source, target, amount in journal.result.values():
        wanted[source] -= amount
        wanted[target] += amount
    return [
        Anomaly(
            "balance",
            f"{account} ends with {end.result.get(account)}, but the journal makes it {value}",
            (end.id, journal.id),
        )
        for account, value in wanted.items()
        if end.result.get(account) != value
    ]
