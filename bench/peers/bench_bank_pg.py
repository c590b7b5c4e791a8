"""PostgreSQL at repeatable read: transfers between few accounts, each repeated until it commits.

usage: PEERS_CONC=64 PEERS_REPS=1 PEERS_SECS=2 bench_bank_pg.py
       with the folder of bench_pg.py and peerlib.py in PYTHONPATH; prints one JSON line

The same work as `bank` of bench/transactions.py: read two balances, move 1 from one to the other.
pgbench repeats what could not be serialised (PostgreSQL 15 and later); only commits count.
"""

import os

import bench_pg
from peerlib import CONCS, Bench, non_root_user, reps

ACCOUNTS, BALANCE = 100, 1000
TRANSFER = f"""\\set a random(0, {ACCOUNTS - 1})
\\set b (:a + random(1, {ACCOUNTS - 1})) % {ACCOUNTS}
begin isolation level repeatable read;
select balance from bank where k = :a;
select balance from bank where k = :b;
update bank set balance = balance - 1 where k = :a;
update bank set balance = balance + 1 where k = :b;
commit;
"""


def repeating(b: Bench) -> None:
    """Have pgbench repeat transactions: its caller leaves no room for an option."""
    found = bench_pg.find
    wrapper = b.path("pgbench")
    with open(wrapper, "w") as f:
        f.write(f'#!/bin/sh\nexec {found("pgbench")} --max-tries=0 "$@"\n')
    os.chmod(wrapper, 0o755)
    bench_pg.find = lambda name: wrapper if name == "pgbench" else found(name)


with Bench("bank", user=non_root_user()) as b:
    _, sock, port = bench_pg.pg_start(b)
    rows = f"select i, {BALANCE} from generate_series(0, {ACCOUNTS - 1}) i"
    bench_pg.psql(
        b,
        sock,
        port,
        "create table bank(k int primary key, balance bigint); "
        f"insert into bank {rows}; checkpoint",
    )
    script = b.path("bank.sql")
    with open(script, "w") as f:
        f.write(TRANSFER)
    repeating(b)
    for c in CONCS:
        b.out[f"bank_c{c}"] = reps(lambda c=c: bench_pg.pgbench(b, sock, port, c, script))
    total = int(bench_pg.psql(b, sock, port, "select sum(balance) from bank"))
    b.out["total_kept"] = total == ACCOUNTS * BALANCE
