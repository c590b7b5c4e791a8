"""Asks a real PostgreSQL 15 what becomes of two sessions whose statements come in some order, and
wait for each other.

    python -m scripts.record_sql_interleavings "host=127.0.0.1 port=5432 user=postgres" [CASES]

A case is statements with the session that says each, separated by ` | `:

    a begin | b begin | a update t … | b update t … | a commit | b commit

A session that waits keeps what it is to say next until it is answered. In the end both say what
they have left, and `rollback`. What came of it is recorded in tests/sqlproxy/interleavings, line by
line: [case, [answers of a], [answers of b], {table: rows}]. An answer is the rows, how many
were changed, or the SQLSTATE, behind `waited` if it came only after the other went on.

There are two worlds of tables, each with cases of its own: ordinary ones, and some with deferrable
constraints, whose rows collide (`deferrable.txt`).
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from scripts.record_sql_conversations import begin_with

HERE: Final = Path(__file__).parent.parent / "tests" / "sqlproxy" / "interleavings"
DEADLOCK: Final = "40P01"
_STEADY: Final = 3  # looks, one after the other: then it waits


@dataclass(frozen=True)
class World:
    """Tables, what is said once, and what they have in them when a case begins."""

    tables: dict[str, str]
    rows: tuple[str, ...]
    once: str = "select 1"


_TABLES: Final = {
    "c": "create table c (id int primary key, p int references p, v int)",
    "d": "create table d (id int primary key, p int references p on delete cascade)",
    "t": "create table t (id int primary key, u int unique, a int, b int)",
    "p": "create table p (id int primary key, v int)",
}
_FILLED: Final = (
    "insert into p values (1, 0), (2, 0)",
    "insert into c values (1, 1, 0)",
    "insert into d values (1, 1)",
    "insert into t values (1, 10, 1, 0), (2, 20, 1, 0), (3, 30, 2, 0)",
)
_DEFERRABLE: Final = {
    "k": "create table k (id int primary key deferrable, v int)",
    "u": "create table u (id int primary key, n int unique deferrable, "
    "m int unique deferrable initially deferred)",
}
WORLDS: Final = {
    "": World(_TABLES, _FILLED, "create index on t (a)"),
    "deferrable": World(
        _DEFERRABLE,
        (
            "insert into k values (1, 1), (2, 2), (3, 3)",
            "insert into u values (1, 1, 1), (2, 2, 2), (3, 3, 3)",
        ),
    ),
}
WAITING: Final = (
    "select count(*) from pg_stat_activity "
    "where datname = current_database() and wait_event_type = 'Lock'"
)
Case = list[Any]


class _Session:
    def __init__(self, told: dict[str, Any], options: str) -> None:
        self._conn = psycopg.connect(**told, autocommit=True, options=options)
        self._conn.prepare_threshold = None
        self._pool = ThreadPoolExecutor(1)
        self.doing: Future[Any] | None = None
        self.waited = False
        self.ends = False  # it says COMMIT, which here may wait for others' intents for a moment
        self.left: deque[str] = deque()
        self.answers: list[Any] = []

    def begin(self) -> None:
        """Another case."""
        self._conn.execute("discard all")
        self.left.clear()
        self.answers = []

    def _said(self, text: str) -> Any:
        try:
            found = self._conn.execute(text.encode(), prepare=False)
        except psycopg.Error as error:
            return error.sqlstate
        if not found.description:
            return found.rowcount if found.rowcount >= 0 else "ok"
        return [list(row) for row in found.fetchall()]

    def go_on(self, waits: Callable[[], bool]) -> None:
        """Say what is left, until something waits."""
        while self.doing is not None or self.left:
            if self.doing is None:
                text = self.left.popleft()
                self.doing, self.waited = self._pool.submit(self._said, text), False
                self.ends = text in ("commit", "rollback")
            until, seen = time.monotonic() + 30, 0
            while not self.doing.done():
                seen = seen + 1 if waits() else 0
                if seen == _STEADY:
                    self.waited = True
                    return
                time.sleep(0.003)
                if time.monotonic() > until:
                    raise TimeoutError(self.answers)
            self._end()

    def _end(self) -> None:
        assert self.doing is not None
        found = self.doing.result()
        self.answers.append(["waited", found] if self.waited and not self.ends else [found])
        self.doing = None

    def close(self) -> None:
        self._conn.close()
        self._pool.shutdown(wait=False)


class Server:
    """One that is asked. `options`: of its two sessions. `waiting`: how many of them wait."""

    def __init__(
        self,
        address: str,
        name: str,
        *,
        options: str = "",
        waiting: str = WAITING,
        world: str = "",
    ) -> None:
        self._world = WORLDS[world]
        told: dict[str, Any] = conninfo_to_dict(f"{address} dbname=postgres")
        with psycopg.connect(**told, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name}".encode())
            connection.execute(f"create database {name}".encode())
        told["dbname"] = name
        self._told, self._options = told, options
        self._waiting = waiting
        self._open()
        for table in reversed(self._world.tables.values()):
            self._own.execute(table.encode())
        self._own.execute(self._world.once.encode())

    def _open(self) -> None:
        self._own = psycopg.connect(**self._told, autocommit=True)
        self._both = {session: _Session(self._told, self._options) for session in "ab"}

    def _waits(self, both: Sequence[_Session]) -> bool:
        """Whether all that are busy wait for a lock."""
        busy = sum(one.doing is not None and not one.doing.done() for one in both)
        ((found,),) = self._own.execute(self._waiting.encode()).fetchall()
        return int(found) >= busy

    def asked(self, case: str) -> Case:
        """The case, the answers of both, and the rows of the tables then."""
        try:
            empty = [f"delete from {table}" for table in self._world.tables]
            begin_with(self._own, [*empty, *self._world.rows])
            return self._answered(case)
        except BaseException:
            self.close()  # the next case finds sessions that do nothing
            self._open()
            raise

    def _answered(self, case: str) -> Case:
        both, every = self._both, list(self._both.values())
        for one in every:
            one.begin()

        def waits() -> bool:
            return self._waits(every)

        for step in (*case.split(" | "), "a rollback", "b rollback"):
            both[step[0]].left.append(step[2:])
            for one in (both[step[0]], *every):
                one.go_on(waits)
        until = time.monotonic() + 30
        while any(one.left or one.doing for one in every):  # a deadlock is about to be found
            if time.monotonic() > until:
                raise TimeoutError(case)
            time.sleep(0.01)
            for one in every:
                one.go_on(waits)
        rows = {
            table: [
                list(row)
                for row in self._own.execute(f"select * from {table} order by id".encode())
            ]
            for table in self._world.tables
        }
        return [case, both["a"].answers, both["b"].answers, rows]

    def close(self) -> None:
        for one in self._both.values():
            one.close()
        self._own.close()


# -- cases

_Chance = random.Random
_LOCKS: Final = ("for update", "for no key update", "for share", "for key share")
_BY: Final = (
    lambda r: f"id = {r.randint(1, 4)}",
    lambda r: f"id = {r.randint(1, 3)}",
    lambda r: f"id = {r.randint(1, 3)} and b < {r.randint(1, 12)}",
    lambda r: f"id >= {r.randint(1, 3)}",
    lambda r: f"id in ({r.randint(1, 2)}, {r.randint(3, 4)}) and a = {r.randint(1, 2)}",
    lambda r: f"a = {r.randint(1, 2)}",
    lambda r: f"a = {r.randint(1, 2)} and b = 0",
    lambda r: f"b = {r.choice((0, 0, 1, 10))}",
    lambda r: f"u = {r.randint(1, 4)}0",
    lambda r: f"u >= {r.randint(1, 3)}0 and b < 5",
    lambda r: f"a = 1 or b > {r.randint(0, 5)}",
)
_SET: Final = (
    lambda r: "b = b + 1",
    lambda r: f"b = b + {r.choice((1, 10))}",
    lambda r: "a = 3 - a",
    lambda r: f"a = {r.randint(1, 3)}, b = b + 1",
    lambda r: f"u = {r.randint(1, 5)}0",
    lambda r: "u = u + 1, b = a",
    lambda r: f"id = {r.randint(1, 6)}",
)


def _by(r: _Chance) -> str:
    return r.choice(_BY)(r)


def _update(r: _Chance) -> str:
    back = r.choice(("", "", " returning id, u, a, b"))
    return f"update t set {r.choice(_SET)(r)} where {_by(r)}{back}"


def _delete(r: _Chance) -> str:
    return f"delete from t where {_by(r)}{r.choice(('', ' returning id, b'))}"


def _insert(r: _Chance) -> str:
    row = f"({r.randint(1, 6)}, {r.randint(1, 6)}0, {r.randint(1, 3)}, {r.randint(0, 3)})"
    tail = r.choice(
        (
            "",
            "",
            " on conflict do nothing",
            " on conflict (id) do nothing",
            " on conflict (id) do update set b = t.b + excluded.b + 1",
            " on conflict (u) do update set b = t.b + 1, a = excluded.a returning id, u, b",
            " on conflict (id) do update set b = t.b + 1 where t.a = 1 returning id, b",
        )
    )
    return f"insert into t values {row}{tail}"


def _locked(r: _Chance) -> str:
    tail = r.choice(("", "", " skip locked", " nowait"))
    rows = r.choice((" order by id", " order by id limit 1", " order by id desc limit 2"))
    return f"select id, u, a, b from t where {_by(r)}{rows} {r.choice(_LOCKS)}{tail}"


def _seen(r: _Chance) -> str:
    return r.choice(
        (
            "select id, u, a, b from t order by id",
            "select count(*), sum(b) from t",
            f"select id, b from t where {_by(r)} order by id",
            "select c.id, p.v from c join p on p.id = c.p order by 1",
        )
    )


def _family(r: _Chance) -> str:
    n = r.randint(1, 3)
    return r.choice(
        (
            f"insert into c values ({r.randint(1, 5)}, {n}, 0)",
            f"insert into d values ({r.randint(1, 5)}, {n})",
            f"insert into p values ({n}, 5)",
            f"insert into p values ({n}, 5) on conflict (id) do update set v = p.v + 1",
            f"update p set v = v + 1 where id = {n}",
            f"update p set id = {r.randint(3, 4)} where id = {n}",
            f"delete from p where id = {n}",
            f"delete from c where p = {n}",
            f"delete from c where id = {n}",
            f"delete from d where p = {n}",
            f"update c set p = {n} where id = 1",
            f"update c set v = v + 1 where p = {n}",
            f"select id, v from p where id = {n} {r.choice(_LOCKS)}",
            "select id, p from c order by id",
        )
    )


def _other(r: _Chance) -> str:
    return r.choice(("savepoint s", "savepoint s", "rollback to s", "rollback to s", "release s"))


def _statement(r: _Chance, kinds: Sequence[Callable[[_Chance], str]]) -> str:
    return r.choice(kinds)(r)


def _some(r: _Chance) -> str:
    return r.choice(("", "", f" where id = {r.randint(1, 3)}", f" where id <> {r.randint(1, 3)}"))


def _key(r: _Chance) -> str:
    return r.choice(("n", "n", "m"))


def _moved(r: _Chance) -> str:
    column, n = _key(r), r.randint(1, 4)
    to = r.choice(
        (
            f"{column} = {column} + 1",
            f"{column} = {column} - 1",
            f"{column} = 4 - {column}",
            f"{column} = {n}",
            "n = m, m = n",
            f"{column} = null",
        )
    )
    back = r.choice(("", "", " returning id, n, m"))
    return f"update u set {to}{_some(r)}{back}"


def _moved_key(r: _Chance) -> str:
    to = r.choice(("id = id + 1", "id = 4 - id", f"id = {r.randint(1, 4)}", "v = id, id = v"))
    return f"update k set {to}{_some(r)}"


def _come(r: _Chance) -> str:
    if r.random() < 0.3:
        return f"insert into k values ({r.randint(1, 5)}, 0)"
    n, m = (r.choice((*range(1, 6), "null")) for _ in range(2))
    tail = r.choice(
        (
            *("", "", "", " on conflict do nothing", " on conflict (id) do nothing"),
            " on conflict (id) do update set n = excluded.n, m = u.m + 1",
        )
    )
    rows = f"({r.randint(2, 6)}, {n}, {m})"
    if not r.randint(0, 3):
        rows += f", ({r.randint(7, 9)}, {r.randint(3, 5)}, {r.randint(3, 5)})"
    return f"insert into u values {rows}{tail}"


def _gone(r: _Chance) -> str:
    return r.choice(
        (
            f"delete from u where {_key(r)} = {r.randint(1, 4)}",
            f"delete from u{_some(r)}",
            f"delete from k where id = {r.randint(1, 4)}",
        )
    )


def _set_constraints(r: _Chance) -> str:
    what = r.choice(("all", "u_n_key", "u_m_key", "k_pkey", "u_n_key, k_pkey"))
    return f"set constraints {what} {r.choice(('deferred', 'deferred', 'immediate'))}"


def _found(r: _Chance) -> str:
    return r.choice(
        (
            f"select id, n, m from u where {_key(r)} = {r.randint(1, 4)} order by 1",
            f"select id, n, m from u where {_key(r)} >= {r.randint(1, 4)} order by 1",
            "select n, id from u where n > 0 order by n, id",
            "select m from u where m is not null order by m desc limit 2",
            f"select count(*) from u where n in ({r.randint(1, 2)}, {r.randint(2, 4)})",
            f"select id, v from k where id = {r.randint(1, 4)} order by v",
            "select id, v from k order by id, v",
            "select max(n), min(m) from u",
        )
    )


_ROWS: Final = (_update, _update, _update, _delete, _insert, _insert, _locked, _seen, _other)
_KIN: Final = (_family, _family, _family, _family, _other, _seen)
_LATE: Final = (
    *(_moved, _moved, _moved, _moved_key, _come, _come, _gone),
    *(_set_constraints, _set_constraints, _found, _found, _other),
)


def generated(number: int, seed: int = 1, world: str = "") -> Iterator[str]:
    """Orders of statements of two sessions, in blocks and by themselves."""
    r = _Chance(seed)
    for _ in range(number):
        kinds, most = (_LATE, 5) if world else (r.choice((_ROWS, _ROWS, _KIN)), 3)
        left = {}
        for name in "ab":
            said = [_statement(r, kinds) for _ in range(r.randint(1, most))]
            level = r.choice(("begin", "begin", "begin", ""))
            if name == "a" or level:
                said = ["begin", *said, r.choice(("commit", "commit", "commit", "rollback"))]
            left[name] = deque(f"{name} {one}" for one in said)
        steps = []
        while any(left.values()):
            name = r.choice([name for name, said in left.items() if said])
            steps.append(left[name].popleft())
        yield " | ".join(steps)


def cases(world: str = "") -> Iterator[str]:
    """Those that somebody thought of."""
    for line in (HERE / f"{world or 'cases'}.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def is_compared(found: Case) -> bool:
    """Which one of two gives up in a deadlock is chance."""
    return not any(DEADLOCK in one for answers in found[1:3] for one in answers)


def _record(address: str, number: str = "400") -> None:
    options = "-c deadlock_timeout=20ms"
    for world in WORLDS:
        server = Server(address, "interleavings", options=options, world=world)
        made = generated(int(number), world=world)
        for name, asked in (
            (world or "cases", cases(world)),
            ("_".join(filter(None, (world, "generated"))), made),
        ):
            found = [one for one in map(server.asked, asked) if is_compared(one)]
            lines = ",\n".join(json.dumps(one) for one in found)
            (HERE / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
            print(f"{len(found)} in {name}")
        server.close()


if __name__ == "__main__":
    _record(*sys.argv[1:])
