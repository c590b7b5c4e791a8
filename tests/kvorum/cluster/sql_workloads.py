"""What clients of the simulated cluster do in SQL, and what must hold. Who runs it:
tests/kvorum/cluster/sql_simulated.py.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kvorum.verify.anomaly import Anomaly
from kvorum.verify.checkers import linearizable
from kvorum.verify.client import Client
from kvorum.verify.history import History
from kvorum.verify.workloads.base import ISOLATIONS, READ_COMMITTED
from tests.kvorum.cluster.sql_clients import Sql, SqlWorkload


class _Register(SqlWorkload):
    """Keys that are left after some operations."""

    read: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._keys = [self._new_key(i) for i in range(3)]
        self._used = [0] * 3
        self._left: list[str] = []
        self._seen: dict[str, str] = {}

    def _new_key(self, slot: int) -> str:
        return f"{'amt'[slot]}{self.unique()}"

    def _key(self, client: Client) -> str:
        slot = client.chance.below(3)
        self._used[slot] += 1
        if self._used[slot] > 150:
            self._left.append(self._keys[slot])
            self._keys[slot], self._used[slot] = self._new_key(slot), 0
        return self._keys[slot]

    async def look(self, client: Client, f: str, key: str, *, steady: bool = False) -> bool:
        async def run(sql: Sql) -> str | None:
            _, rows = await sql.do(self.read, key, steady=steady)
            value = rows[0][0] if rows else None
            if value is not None:
                self._seen[key] = value
            return value

        return await self.record(client, f, {"key": key}, run, reads=True)

    async def cas(
        self, client: Client, key: str, old: str | None, new: str | None, text: str, *values: Any
    ) -> None:
        async def run(sql: Sql) -> bool:
            tag, _ = await sql.do(text, *values)
            return not tag.endswith(" 0")

        await self.record(client, "cas", {"key": key, "old": old, "new": new}, run)

    async def write(
        self, client: Client, key: str, value: str | None, text: str, *values: Any
    ) -> None:
        async def run(sql: Sql) -> None:
            await sql.do(text, *values)

        await self.record(client, "write", {"key": key, "value": value}, run)

    async def final(self, client: Client) -> bool:
        for key in [*self._left, *self._keys]:
            if not await self.look(client, "final read", key, steady=True):
                return False
        return True


class Register(_Register):
    name: ClassVar = "sql-register"
    about: ClassVar = "one row by every single statement: linearizable"
    tables: ClassVar = ("CREATE TABLE r (k text PRIMARY KEY, v text, n int DEFAULT 0)",)
    read: ClassVar = "SELECT v FROM r WHERE k = $1"

    async def step(self, client: Client) -> None:
        key, new, roll = self._key(client), f"v{self.unique()}", client.chance.rng.random()
        old = self._seen.get(key, "nothing")
        if roll < 0.4:
            await self.look(client, "read", key)
        elif roll < 0.55:
            text = "INSERT INTO r (k, v) VALUES ($1, $2)"
            await self.cas(client, key, None, new, text, key, new)
        elif roll < 0.62:
            text = (
                "INSERT INTO r (k, v) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
            )
            await self.write(client, key, new, text, key, new)
        elif roll < 0.82:
            text = "UPDATE r SET v = $1, n = n + 1 WHERE k = $2 AND v = $3"
            await self.cas(client, key, old, new, text, new, key, old)
        elif roll < 0.92:
            text = "DELETE FROM r WHERE k = $1 AND v = $2"
            await self.cas(client, key, old, None, text, key, old)
        else:
            await self.write(client, key, None, "DELETE FROM r WHERE k = $1", key)


class Unique(_Register):
    name: ClassVar = "sql-unique"
    about: ClassVar = "a unique column: one winner, and its index is its table"
    tables: ClassVar = (
        "CREATE TABLE u (id text PRIMARY KEY, name text UNIQUE, note text)",
        "CREATE INDEX u_note ON u (note)",
    )
    read: ClassVar = "SELECT id FROM u WHERE name = $1"

    async def step(self, client: Client) -> None:
        key, new, roll = self._key(client), f"v{self.unique()}", client.chance.rng.random()
        old = self._seen.get(key, "nothing")
        if roll < 0.4:
            await self.look(client, "read", key)
        elif roll < 0.7:
            text = "INSERT INTO u VALUES ($1, $2, $3)"
            await self.cas(client, key, None, new, text, new, key, "x")
        elif roll < 0.8:
            text = "UPDATE u SET id = $1, note = $1 WHERE name = $2 AND id = $3"
            await self.cas(client, key, old, new, text, new, key, old)
        else:
            text = "DELETE FROM u WHERE name = $1 AND id = $2"
            await self.cas(client, key, old, None, text, key, old)

    async def final(self, client: Client) -> bool:
        if not await super().final(client):
            return False

        async def run(sql: Sql) -> list[Any]:
            _, rows = await sql.do("SELECT name, id FROM u", steady=True)
            return sorted(rows)

        return await self.record(client, "final read", {"key": "all"}, run, reads=True)


def index_is_table(history: History) -> list[Anomaly]:
    """The rows are what the index says."""
    ends = [o for o in history.operations("final read") if o.acknowledged]
    rows = next((o.result for o in ends if o.args["key"] == "all"), [])
    by_name: dict[str, list[str]] = {}
    for name, id_ in rows:
        by_name.setdefault(name, []).append(id_)
    found = [Anomaly("twice", f"{n} has {ids}") for n, ids in by_name.items() if len(ids) > 1]
    for o in ends:
        key = o.args["key"]
        if key != "all" and by_name.get(key, [None]) != [o.result]:
            found.append(Anomaly("index", f"{key}: {o.result}, but rows {by_name.get(key)}"))
    return found


def linearizable_by_name(history: History) -> list[Anomaly]:
    events = [e for e in history.events if not (e.value and e.value == {"key": "all"})]
    if len(events) == len(history.events):
        return linearizable.check(history)
    return [
        anomaly
        for key, operations in linearizable.by_key(history.operations()).items()
        if key != "all" and (anomaly := linearizable.check_key(key, operations)) is not None
    ]


class Counters(SqlWorkload):
    name: ClassVar = "sql-counters"
    about: ClassVar = "UPDATE n = n + 1: none lost, none twice"
    tables: ClassVar = ("CREATE TABLE c (k text PRIMARY KEY, n int)",)
    rows: ClassVar = ("INSERT INTO c VALUES ('a', 0)", "INSERT INTO c VALUES ('z', 0)")

    async def step(self, client: Client) -> None:
        key = client.chance.pick("az")

        async def run(sql: Sql) -> int:
            _, rows = await sql.do("UPDATE c SET n = n + 1 WHERE k = $1 RETURNING n", key)
            return int(rows[0][0])

        await self.record(client, "increment", {"key": key}, run)

    async def final(self, client: Client) -> bool:
        async def run(sql: Sql) -> int:
            _, rows = await sql.do("SELECT n FROM c WHERE k = $1", key, steady=True)
            return int(rows[0][0])

        for key in "az":
            if not await self.record(client, "final", {"key": key}, run, reads=True):
                return False
        return True


class Bank(SqlWorkload):
    name: ClassVar = "sql-bank"
    about: ClassVar = "transfers in blocks, with savepoints and a journal"
    isolations: ClassVar = (*ISOLATIONS, READ_COMMITTED)
    tables: ClassVar = (
        "CREATE TABLE b (id text PRIMARY KEY, v int NOT NULL CHECK (v >= 0))",
        "CREATE TABLE j (id text PRIMARY KEY, a text, b text, amount int)",
    )
    _names: ClassVar = [f"a{i}" for i in range(6)]
    rows: ClassVar = ("INSERT INTO b VALUES " + ", ".join(f"('a{i}', 100)" for i in range(6)),)

    def parameters(self) -> dict[str, Any]:
        return {"accounts": self._names, "balance": 100}

    async def step(self, client: Client) -> None:
        if client.chance.happens(0.3):
            await self._look(client, "read")
            return
        a, b = client.chance.some(self._names, 2)
        args = {"id": self.unique(), "from": a, "to": b, "amount": 1 + client.chance.below(9)}

        async def run(sql: Sql) -> dict[str, int]:
            name, amount = str(args["id"]), args["amount"]
            if client.chance.happens(0.3):
                await sql.do("SAVEPOINT s")
                await sql.do("UPDATE b SET v = v + 1000 WHERE id = $1", b)
                await sql.do("INSERT INTO j VALUES ($1, 'x', 'y', 0)", name)
                await sql.do("ROLLBACK TO s")
            text = "UPDATE b SET v = v - $1 WHERE id = $2 RETURNING v"
            _, left = await sql.do(text, amount, a)
            _, right = await sql.do("UPDATE b SET v = v + $1 WHERE id = $2 RETURNING v", amount, b)
            await sql.do("INSERT INTO j VALUES ($1, $2, $3, $4)", name, a, b, amount)
            return {a: left[0][0], b: right[0][0]}

        await self.block(client, "transfer", args, run, _begin(client))

    async def _look(self, client: Client, f: str, *, steady: bool = False) -> bool:
        async def scan(sql: Sql) -> dict[str, int]:
            _, rows = await sql.do("SELECT id, v FROM b", steady=steady)
            return dict(rows)

        async def keys(sql: Sql) -> dict[str, int]:
            found: dict[str, int] = {}
            for name in self._names:
                _, rows = await sql.do("SELECT id, v FROM b WHERE id = $1", name)
                found |= dict(rows)
            return found

        args = {"how": "sql"}
        if steady or client.chance.happens(0.5):
            return await self.record(client, f, args, scan, reads=True)
        return await self.block(client, f, args, keys, SNAPSHOT, reads=True)

    async def final(self, client: Client) -> bool:
        async def journal(sql: Sql) -> dict[str, Any]:
            _, rows = await sql.do("SELECT id, a, b, amount FROM j", steady=True)
            return {name: list(rest) for name, *rest in rows}

        if not await self._look(client, "final read", steady=True):
            return False
        return await self.record(client, "final journal", None, journal, reads=True)


SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LEVELS: Final = {
    "snapshot": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "serializable": "BEGIN ISOLATION LEVEL SERIALIZABLE",
    READ_COMMITTED: "BEGIN",
}


def _begin(client: Client) -> str:
    return _LEVELS[client.isolation]


class Appends(SqlWorkload):
    name: ClassVar = "sql-appends"
    about: ClassVar = "lists of text that statements and blocks append to"
    tables: ClassVar = ("CREATE TABLE l (k text PRIMARY KEY, v text)",)
    _UPSERT: ClassVar = (
        "INSERT INTO l VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = l.v || excluded.v"
    )
    _UPDATE: ClassVar = "UPDATE l SET v = v || $1 WHERE k = $2"

    def __init__(self) -> None:
        super().__init__()
        self._keys = [self._new_key(i) for i in range(4)]
        self._used = [0] * 4
        self._left: list[str] = []
        self._there: set[str] = set()

    def _new_key(self, slot: int) -> str:
        return f"{'agmt'[slot]}{self.unique()}"

    async def step(self, client: Client) -> None:
        ops: list[list[Any]] = []
        for _ in range(client.chance.pick((1, 1, 1, 2, 3))):
            slot = client.chance.below(4)
            if client.chance.happens(0.4):
                ops.append(["r", self._keys[slot], None])
                continue
            self._used[slot] += 1
            if self._used[slot] > 50:
                self._left.append(self._keys[slot])
                self._keys[slot], self._used[slot] = self._new_key(slot), 0
            ops.append(["append", self._keys[slot], self.unique()])

        async def run(sql: Sql) -> list[list[Any]]:
            return [await self._one(sql, op, client) for op in ops]

        async def before_one_sync(sql: Sql) -> list[list[Any]]:
            done = [await self._one(sql, op, client, sync=False) for op in ops]
            await sql.sync()
            return done

        reads = all(op[0] == "r" for op in ops)
        if len(ops) == 1:
            await self.record(client, "txn", ops, run, reads=reads)
        elif client.isolation == "snapshot" and client.chance.happens(0.4):
            await self.record(client, "txn", ops, before_one_sync, reads=reads)
        else:
            await self.block(client, "txn", ops, run, _begin(client), reads=reads)

    async def _one(
        self, sql: Sql, op: list[Any], client: Client, *, sync: bool = True
    ) -> list[Any]:
        what, key, element = op
        if what == "r":
            _, rows = await sql.do("SELECT v FROM l WHERE k = $1", key, sync=sync)
            if rows:
                self._there.add(key)
            return ["r", key, _list(rows)]
        tag = "UPDATE 0"
        if key in self._there and client.chance.happens(0.8):
            tag, _ = await sql.do(self._UPDATE, f"{element},", key, sync=sync)
        if tag == "UPDATE 0":  # what was read may have been of a block that was rolled back
            await sql.do(self._UPSERT, key, f"{element},", sync=sync)
        return op

    async def final(self, client: Client) -> bool:
        for key in [*self._left, *self._keys]:

            async def run(sql: Sql, key: str = key) -> list[list[Any]]:
                _, rows = await sql.do("SELECT v FROM l WHERE k = $1", key, steady=True)
                return [["r", key, _list(rows)]]

            if not await self.record(client, "final txn", [["r", key, None]], run, reads=True):
                return False
        return True


def _list(rows: list[Any]) -> list[int]:
    return [int(part) for part in rows[0][0].split(",") if part] if rows else []


class Skew(SqlWorkload):
    name: ClassVar = "sql-skew"
    about: ClassVar = "SERIALIZABLE blocks: of each group at most one row, in two ranges"
    tables: ClassVar = ("CREATE TABLE s (side text, g int, n int, PRIMARY KEY (side, g, n))",)
    isolations: ClassVar = ("serializable",)

    def __init__(self) -> None:
        super().__init__()
        self._groups, self._claims = [self.unique()], 0

    async def step(self, client: Client) -> None:
        self._claims += 1
        if self._claims > 8:
            self._claims = 1
            self._groups.append(self.unique())
        group, side, number = self._groups[-1], client.chance.pick("at"), self.unique()

        async def run(sql: Sql) -> bool:
            for other in client.chance.some("at", 2):
                text = "SELECT n FROM s WHERE side = $1 AND g = $2"
                if (await sql.do(text, other, group))[1]:
                    return False
            await sql.do("INSERT INTO s VALUES ($1, $2, $3)", side, group, number)
            return True

        begin = "BEGIN ISOLATION LEVEL SERIALIZABLE"
        await self.block(client, "claim", {"group": group, "side": side}, run, begin)

    async def final(self, client: Client) -> bool:
        async def run(sql: Sql) -> list[str]:
            _, rows = await sql.do("SELECT side, n FROM s WHERE g = $1", group, steady=True)
            return [f"{side}{n}" for side, n in rows]

        for group in self._groups:
            if not await self.record(client, "final", {"group": group}, run, reads=True):
                return False
        return True


class Family(SqlWorkload):
    name: ClassVar = "sql-family"
    about: ClassVar = "foreign keys, also deferred and cascading: no orphan in any snapshot"
    isolations: ClassVar = (*ISOLATIONS, READ_COMMITTED)
    tables: ClassVar = (
        "CREATE TABLE p (id int PRIMARY KEY, note text)",
        "CREATE TABLE strict (id int PRIMARY KEY, p int REFERENCES p (id))",
        "CREATE TABLE casc (id int PRIMARY KEY, p int REFERENCES p (id) ON DELETE CASCADE)",
        "CREATE TABLE late (id int PRIMARY KEY, p int REFERENCES p (id) "
        "DEFERRABLE INITIALLY DEFERRED)",
        "CREATE INDEX ON casc (p)",
    )

    async def step(self, client: Client) -> None:
        parent, child, roll = client.chance.below(4), self.unique(), client.chance.rng.random()
        table = client.chance.pick(("strict", "casc", "late"))
        if roll < 0.25:
            await self._look(client, "read")
        elif roll < 0.8:
            text, values = client.chance.pick(
                (
                    ("INSERT INTO p VALUES ($1, 'p')", (parent,)),
                    ("DELETE FROM p WHERE id = $1", (parent,)),
                    ("DELETE FROM p WHERE id = $1", (parent,)),
                    (f"INSERT INTO {table} VALUES ($1, $2)", (child, parent)),
                    (f"INSERT INTO {table} VALUES ($1, $2)", (child, parent)),
                    (f"DELETE FROM {table} WHERE p = $1", (parent,)),
                    ("UPDATE p SET note = 'n' WHERE id = $1", (parent,)),
                )
            )
            args = [text, *values]
            await self.record(client, "change", args, lambda sql: sql.do(text, *values))
        else:
            child_first = client.chance.happens(0.5)

            async def run(sql: Sql) -> None:
                if child_first:
                    await sql.do("INSERT INTO late VALUES ($1, $2)", child, parent)
                    await sql.do("INSERT INTO p VALUES ($1, 'p') ON CONFLICT DO NOTHING", parent)
                else:
                    await sql.do("DELETE FROM strict WHERE p = $1", parent)
                    await sql.do("DELETE FROM p WHERE id = $1", parent)

            args = ["child first" if child_first else "take away", parent, child]
            await self.block(client, "change", args, run, _begin(client))

    async def _look(self, client: Client, f: str, *, steady: bool = False) -> bool:
        async def run(sql: Sql) -> list[Any]:
            _, rows = await sql.do("SELECT id FROM p", steady=steady)
            parents = {id_ for (id_,) in rows}
            orphans: list[Any] = []
            for table in ("strict", "casc", "late"):
                _, rows = await sql.do(f"SELECT id, p FROM {table}", steady=steady)
                orphans += [[table, *row] for row in rows if row[1] not in parents]
            return orphans

        return await self.block(client, f, None, run, SNAPSHOT, reads=True)

    async def final(self, client: Client) -> bool:
        return await self._look(client, "final read", steady=True)


def no_orphans(history: History) -> list[Anomaly]:
    return [
        Anomaly("orphan", f"#{o.id} saw {o.result}", (o.id,))
        for o in history.operations("read", "final read")
        if o.acknowledged and o.result
    ]


class Seats(SqlWorkload):
    name: ClassVar = "sql-seats"
    about: ClassVar = "deferrable unique values that change places: each is there once"
    isolations: ClassVar = (*ISOLATIONS, READ_COMMITTED)
    tables: ClassVar = (
        "CREATE TABLE s (id int PRIMARY KEY, n int UNIQUE DEFERRABLE, "
        "m int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    )
    rows: ClassVar = ("INSERT INTO s VALUES " + ", ".join(f"({i}, {i}, {i})" for i in range(5)),)

    async def step(self, client: Client) -> None:
        roll, column = client.chance.rng.random(), client.chance.pick(("n", "m"))
        if roll < 0.3:
            await self._look(client, "read")
        elif roll < 0.6:
            text = client.chance.pick(
                (
                    f"UPDATE s SET {column} = ({column} + 1) % 5",
                    f"UPDATE s SET {column} = 4 - {column}",
                    f"UPDATE s SET {column} = 3 - {column} WHERE {column} IN (1, 2)",
                )
            )
            await self.record(client, "change", [text], lambda sql: sql.do(text))
        else:
            a, b = sorted(client.chance.some(range(5), 2))
            back = client.chance.happens(0.2)

            async def run(sql: Sql) -> None:
                found = []
                for one in (a, b):
                    text = f"SELECT {column} FROM s WHERE id = $1 FOR UPDATE"
                    found += (await sql.do(text, one))[1]
                await sql.do("SET CONSTRAINTS ALL DEFERRED")
                text = f"UPDATE s SET {column} = $1 WHERE id = $2"
                await sql.do(text, found[1][0], a)
                if back:
                    await sql.do("SAVEPOINT one")
                    await sql.do(text, 7, b)
                    await sql.do("SET CONSTRAINTS ALL IMMEDIATE")
                    await sql.do("ROLLBACK TO one")
                await sql.do(text, found[0][0], b)

            await self.block(client, "change", ["swap", column, a, b], run, _begin(client))

    async def _look(self, client: Client, f: str, *, steady: bool = False) -> bool:
        async def run(sql: Sql) -> list[Any]:
            _, rows = await sql.do("SELECT id, n, m FROM s", steady=steady)
            wrong = [row for row in zip(*rows, strict=True) if sorted(row) != list(range(5))]
            for at, column in ((1, "n"), (2, "m")):
                for row in rows:
                    text = f"SELECT id FROM s WHERE {column} = $1"
                    _, found = await sql.do(text, row[at], steady=steady)
                    if [one for (one,) in found] != [row[0]]:
                        wrong.append((column, row, found))
            return [list(map(str, one)) for one in wrong]

        return await self.block(client, f, None, run, SNAPSHOT, reads=True)

    async def final(self, client: Client) -> bool:
        return await self._look(client, "final read", steady=True)


def each_once(history: History) -> list[Anomaly]:
    return [
        Anomaly("twice", f"#{o.id} saw {o.result}", (o.id,))
        for o in history.operations("read", "final read")
        if o.acknowledged and o.result
    ]


class Loads(SqlWorkload):
    name: ClassVar = "sql-loads"
    about: ClassVar = "COPY, sent while it comes, and INSERT of many rows: all or nothing"
    tables: ClassVar = (
        "CREATE TABLE plain (b int, n int, PRIMARY KEY (b, n))",
        "CREATE TABLE indexed (b int, n int, PRIMARY KEY (b, n))",
        "CREATE INDEX indexed_n ON indexed (n, b)",
    )

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[int, str, int]] = []

    async def step(self, client: Client) -> None:
        if self._batches and client.chance.happens(0.4):
            await self._look(client, "read", client.chance.pick(self._batches[-10:]))
            return
        number, table = self.unique(), client.chance.pick(("plain", "indexed"))
        count = client.chance.pick((2, 9, 30, 60))
        self._batches.append((number, table, count))
        rows = [(number, n) for n in range(count)]
        args = {"batch": number, "count": count}
        if count < 30 or client.chance.happens(0.4):
            values = ", ".join(f"({b}, {n})" for b, n in rows)
            text = f"INSERT INTO {table} VALUES {values}"
            await self.record(client, "write", args, lambda sql: sql.do(text))
        else:
            gives_up = client.chance.happens(0.1)
            await self.record(client, "write", args, lambda sql: sql.copy(table, rows, gives_up))

    async def _look(
        self, client: Client, f: str, batch: tuple[int, str, int], *, steady: bool = False
    ) -> bool:
        number, table, _ = batch

        async def run(sql: Sql) -> int:
            if table == "indexed" and client.chance.happens(0.3):
                _, rows = await sql.do(f"SELECT b FROM {table} WHERE n = 0", steady=steady)
                _, more = await sql.do(f"SELECT b FROM {table} WHERE n = 1", steady=steady)
                return ((number,) in [tuple(r) for r in rows]) + (
                    (number,) in [tuple(r) for r in more]
                )
            _, rows = await sql.do(f"SELECT n FROM {table} WHERE b = $1", number, steady=steady)
            return len(rows)

        return await self.record(client, f, {"batch": number}, run, reads=True)

    async def final(self, client: Client) -> bool:
        for batch in self._batches:

            async def run(sql: Sql, batch: tuple[int, str, int] = batch) -> int:
                text = f"SELECT n FROM {batch[1]} WHERE b = $1"
                return len((await sql.do(text, batch[0], steady=True))[1])

            args = {"batch": batch[0]}
            if not await self.record(client, "final read", args, run, reads=True):
                return False
        return True


def all_or_nothing(history: History) -> list[Anomaly]:
    writes = {o.args["batch"]: o for o in history.operations("write")}
    found = []
    for o in history.operations("final read"):
        write = writes[o.args["batch"]]
        count = write.args["count"]
        right = {"ok": (count,), "fail": (0,)}.get(write.outcome, (0, count))
        if o.acknowledged and o.result not in right:
            text = f"{o.result} rows of {write.args}, which was {write.outcome} {write.error}"
            found.append(Anomaly("batch", text, (write.id, o.id)))
    return found
