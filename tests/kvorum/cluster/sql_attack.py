"""An attack on SQL over a cluster of real processes: three nodes, two proxies, clients that do what
the short ways of statements, COPY and definitions promise, while all of them are killed, stopped,
cut off, and hung up on.

    python -m tests.kvorum.cluster.sql_attack --seconds 120 [--seed 7] [--only bank,register]

Each workload (tests/kvorum/cluster/sql_loads.py) writes a history or keeps what it was told, and
judges it in the end. What an error says is taken at its word: only 40003, 08xxx and a lost
connection may have been done; whatever else a client was told must not be there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from tests.kit.cables import CABLES_HOST, Cables
from tests.kit.clusters import Nodes
from tests.kit.commands import command, settings
from tests.kit.machine import ROOT, free_port_base
from tests.kvorum.cluster.sql_loads import Bank, Client, Counters, Load, Register, Unique
from tests.kvorum.cluster.sql_table_loads import Batches, Changing, Duty, Family, Numbers

LOADS: Final[dict[str, type[Load]]] = {
    load.name: load
    for load in (Bank, Counters, Register, Unique, Batches, Changing, Family, Numbers, Duty)
}
DATABASE: Final = "attack"
PROXIES: Final = 2
CONNECT_S: Final = 4
CALM_S: Final = 120.0  # to be whole again
_SQL_OFFSET: Final = 3


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Proxy:
    """`kvorum proxy` that is started again at the same port whenever it was killed."""

    def __init__(self, connect: str, log: Path) -> None:
        self.base = free_port_base()
        self._connect, self._log = connect, log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = settings()
        words = ("proxy", "--connect", self._connect, "--port", str(self.base))
        with self._log.open("ab") as out:
            self._child = subprocess.Popen(
                command(*words),
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def tell(self, what: signal.Signals) -> None:
        assert self._child is not None
        if self._child.poll() is None:
            self._child.send_signal(what)

    def end(self, what: signal.Signals = signal.SIGKILL) -> None:
        self.tell(signal.SIGCONT)
        self.tell(what)
        assert self._child is not None
        self._child.wait(30)


class Field:
    """The processes under attack, and the ways to them."""

    def __init__(self, directory: Path) -> None:
        self.nodes = Nodes(directory / "nodes", 3, "--advertise", CABLES_HOST)
        bases = {node.id: node.base for node in self.nodes.local.nodes}
        join = ",".join(f"{CABLES_HOST}:{base}" for base in bases.values())
        self.nodes.options = ("--advertise", CABLES_HOST, "--join", join)
        self.cables = Cables(bases)
        self.proxies = [Proxy(join, directory / f"proxy-{n}.log") for n in range(PROXIES)]
        self.directory = directory

    @property
    def url(self) -> str:
        return self.nodes.url

    @property
    def ports(self) -> list[int]:
        """Of SQL: the nodes' and the proxies'."""
        bases = [node.base for node in self.nodes.local.nodes]
        return [base + _SQL_OFFSET for base in (*bases, *(proxy.base for proxy in self.proxies))]

    def connect(self, port: int, database: str = DATABASE) -> psycopg.Connection:
        """An autocommit connection. Raises psycopg.Error."""
        return psycopg.connect(
            f"host=127.0.0.1 port={port} user=kvorum dbname={database} connect_timeout={CONNECT_S}",
            autocommit=True,
            prepare_threshold=0,
        )

    def patient(self, database: str = DATABASE, within_s: float = CALM_S) -> psycopg.Connection:
        """A connection, when the field is calm."""
        deadline = time.monotonic() + within_s
        while True:
            for port in self.ports:
                try:
                    return self.connect(port, database)
                except psycopg.Error:
                    if time.monotonic() > deadline:
                        raise
            time.sleep(0.2)


@contextmanager
def field(directory: Path) -> Iterator[Field]:
    """A running one; taken down whatever happens."""
    made = Field(directory)
    with made.cables:
        try:
            made.nodes.start()
            for proxy in made.proxies:
                proxy.start()
            with made.patient("postgres") as conn:
                conn.execute(f"CREATE DATABASE {DATABASE}")
            yield made
        finally:
            for proxy in made.proxies:
                with contextlib.suppress(Exception):
                    proxy.end()
            made.cables.heal()
            for number in made.nodes.numbers:
                if made.nodes.local.node(number).state() == "paused":
                    made.nodes.resume(number)
            made.nodes.local.down(within_s=10)


class Nemesis:
    """Hurts the field at random, one thing at a time beside hang-ups and cancels; then heals it."""

    def __init__(self, attacked: Field, clients: Sequence[Client], seed: int) -> None:
        self._field, self._clients = attacked, clients
        self._chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.faults: dict[str, Callable[[], None]] = {
            "kill node": self._kill_node,
            "pause node": self._pause_node,
            "cut node": self._cut_node,
            "cut node and clients": self._cut_clients,
            "restart node": self._restart_node,
            "kill proxy": self._kill_proxy,
            "pause proxy": self._pause_proxy,
            "restart proxy": self._restart_proxy,
            "hang up": self._hang_up,
            "cancel": self._cancel,
        }

    def run(self, until: float, names: Sequence[str]) -> None:
        while time.monotonic() < until:
            name = self._chance.choice(names)
            say(f"  {until - time.monotonic():6.1f} s left: {name}")
            self.faults[name]()
            self.done[name] += 1
            time.sleep(self._chance.uniform(0.1, 1.5))

    def _lasts(self) -> None:
        time.sleep(self._chance.choice((0.2, 1.0, 2.5, 5.0)))

    def _node(self) -> int:
        numbers = self._field.nodes.numbers
        if self._chance.random() < 0.5:
            with contextlib.suppress(Exception):
                return self._field.nodes.local.leader(1, within_s=2)
        return self._chance.choice(numbers)

    def _kill_node(self) -> None:
        number = self._node()
        self._field.nodes.kill(number)
        self._lasts()
        self._field.nodes.start(number)

    def _restart_node(self) -> None:
        number = self._node()
        self._field.nodes.local.stop(number)
        self._field.nodes.start(number)

    def _pause_node(self) -> None:
        number = self._node()
        self._field.nodes.pause(number)
        self._lasts()
        self._field.nodes.resume(number)

    def _cut_node(self) -> None:
        number = self._node()
        self._field.cables.part([number], [n for n in self._field.nodes.numbers if n != number])
        self._lasts()
        self._field.cables.heal()

    def _cut_clients(self) -> None:
        """One way or both: what is asked is not heard, or the answer is lost."""
        number = self._node()
        ways = [(0, number), (number, 0)]
        self._field.cables.cut(*self._chance.choice((ways, ways[:1], ways[1:])))
        self._lasts()
        self._field.cables.heal()

    def _kill_proxy(self) -> None:
        proxy = self._chance.choice(self._field.proxies)
        proxy.end()
        proxy.start()

    def _restart_proxy(self) -> None:
        proxy = self._chance.choice(self._field.proxies)
        proxy.end(signal.SIGTERM)
        proxy.start()

    def _pause_proxy(self) -> None:
        proxy = self._chance.choice(self._field.proxies)
        proxy.tell(signal.SIGSTOP)
        self._lasts()
        proxy.tell(signal.SIGCONT)

    def _hang_up(self) -> None:
        """The client is killed, as far as the server can see."""
        for client in self._chance.sample(list(self._clients), 3):
            conn = client.conn
            with contextlib.suppress(Exception):
                if conn is not None:
                    with socket.socket(fileno=os.dup(conn.fileno())) as end:
                        end.shutdown(socket.SHUT_RDWR)

    def _cancel(self) -> None:
        for _ in range(25):
            conn = self._chance.choice(list(self._clients)).conn
            with contextlib.suppress(Exception):
                if conn is not None:
                    conn.cancel_safe(timeout=1)
            time.sleep(0.02)


def _anywhere(attacked: Field, chance: random.Random) -> psycopg.Connection:
    return attacked.connect(chance.choice(attacked.ports))


def attack(
    attacked: Field,
    *,
    seconds: float,
    seed: int,
    loads: Sequence[str],
    clients: int,
    faults: Sequence[str] = (),
) -> list[str]:
    """What is wrong."""
    running: list[Load] = [LOADS[name]() for name in loads]
    with attacked.patient() as conn:
        for load in running:
            load.tables(conn)
    made = []
    for number in range(clients):
        chance = random.Random(seed * 7919 + number)
        made.append(Client(number, seed, partial(_anywhere, attacked, chance)))
    steps: Counter[str] = Counter()
    broken: list[str] = []
    stop = threading.Event()

    def work(client: Client) -> None:
        while not stop.is_set():
            load = client.chance.choice(running)
            try:
                load.step(client)
                steps[load.name] += 1
            except psycopg.Error as error:
                client.wrong(error)
                time.sleep(0.05)
            except Exception as error:  # noqa: BLE001 - a thread that ends silently proves nothing
                broken.append(f"{load.name}: {type(error).__name__}: {error}")
                return
        client.leave()

    threads = [threading.Thread(target=work, args=(client,)) for client in made]
    for thread in threads:
        thread.start()
    nemesis = Nemesis(attacked, made, seed)
    try:
        nemesis.run(time.monotonic() + seconds, list(faults) or list(nemesis.faults))
    finally:
        stop.set()
    for thread in threads:
        thread.join(CALM_S)
        if thread.is_alive():
            broken.append(f"{thread.name} does not end")
    told = sum((client.told for client in made), Counter())
    say(f"  steps {dict(steps)}\n  faults {dict(nemesis.done)}\n  told {dict(told)}")
    attacked.nodes.wait_caught_up(CALM_S)
    with attacked.patient() as conn:
        conn.execute("SELECT 1")
        for load in running:
            broken += load.judge(conn)
    return broken + checked(attacked) + logged(attacked)


def checked(attacked: Field) -> list[str]:
    """What `kvorum check` finds."""
    words = ("check", "--connect", attacked.nodes.local.connect)
    done = subprocess.run(
        command(*words),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return [] if done.returncode == 0 else [f"check: {done.stdout[-3000:]}{done.stderr[-2000:]}"]


def logged(attacked: Field) -> list[str]:
    """What no process should ever say."""
    found = []
    for path in sorted(attacked.directory.rglob("*.log")):
        text = path.read_text(errors="replace")
        for word in ("Traceback", "internal error", "never retrieved"):
            if (at := text.find(word)) >= 0:
                found.append(f"{path.name}: {text[max(0, at - 300) : at + 1500]}")
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--only", default=",".join(LOADS))
    parser.add_argument("--faults", default="")
    parser.add_argument("--clients", type=int, default=10)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sql-attack-"))
    say(f"seed {given.seed}, in {folder}")
    with field(folder) as attacked:
        found = attack(
            attacked,
            seconds=given.seconds,
            seed=given.seed,
            loads=given.only.split(","),
            clients=given.clients,
            faults=[f for f in given.faults.split(",") if f],
        )
    say("\n".join(found) or "nothing wrong")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
