"""Every crash that a procedure can meet: one run of the simulation for each.

    report = explore(Transfer, {"amount": 30}, invariant, setup=setup)

The procedure runs once without faults, and its moments are counted, from the submission to its end:

    persists, persisted   a node begins to write durably, or has written, and nobody knows it yet
    sends, gets           a process writes to a connection, or is given what came
    begins STEP           a step is about to run
    asks, hears SERVICE   a step asks an outside service (services.py), or gets its answer

Then it runs once for each moment and each thing that may go wrong there, the same up to it:

    dies           the process ends without a word (a node with the loss of its power), and is
                   started again; a node that led is followed by another, if there is one
    lost, late     the message does not arrive and its connection is reset (so it is sent again, and
                   may arrive twice); or all on that link comes seconds later
    request lost, answer lost, late
                   the service does nothing, or does it and is not heard, or does it long after who
                   asked has given up

Each time the procedure must end, the invariant must hold, and crashes must not change the result.
A schedule of faults that breaks something is told with its seed, as a story, and can be replayed.
`depth` 2 explores pairs, as far as `runs_max` and `budget` go. What was covered is told.
"""

from __future__ import annotations

import inspect
import json
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from kv.base.errors import InvalidArgument, KvorumError
from kvorum.api.model import ProcedureInfo
from kvorum.sdk.database import AsyncDatabase
from kvorum.testing.cluster import Cluster, Started, simulate
from kvorum.testing.durations import Duration, milliseconds
from kvorum.testing.history import History
from kvorum.testing.running import name_of
from kvorum.testing.simulation.life import Life, State
from procedures.engine.procedure import procedure_name
from procedures.engine.registry import Declared

_AGAIN_S: Final = 0.5
"""Until a process that died is started again."""
_LATE_S: Final = 3.0
_ACTS: Final = {
    "persists": ("dies",),
    "persisted": ("dies",),
    "begins": ("dies",),
    "asks": ("dies", "answer lost", "request lost", "late"),
    "hears": ("dies",),
    "sends": ("dies", "lost", "late"),
    "gets": ("dies",),
}
"""By the first word of a moment; in the order in which they are tried."""
_OF_CONSENSUS: Final = "hears"
"""A moment of the network that is not counted: too many, and each lies between two that are."""
_ASKS: Final = "asks"
"""What the service does there may let the procedure end otherwise; that it dies there may not."""
_SIGNS: Final = str.maketrans({sign: quote(sign, safe="") for sign in "%/+\n"})
"""In a text of faults these separate; a step, service or effect may be called so."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`act` at the `count`-th time that a process comes to a moment."""

    who: str
    moment: str
    count: int
    act: str

    def __str__(self) -> str:
        return f"{self.who}/{self.moment.translate(_SIGNS)}/{self.count}/{self.act}"

    @property
    def sentence(self) -> str:
        what = {
            "persists": "it writes durably",
            "persisted": "it has written durably, before anybody knows",
            "sends": "it sends a message",
            "gets": "it gets a message",
        }.get(self.moment, f"it {self.moment}")
        act = {"lost": "loses it", "late": f"is {_LATE_S:.0f} s late"}.get(self.act, self.act)
        if self.outside:
            return f"when {self.who} {self.moment} (time {self.count}): {self.act}"
        return f"{self.who} {act} as {what} (time {self.count})"

    @staticmethod
    def of(text: str) -> Fault:
        """Raises InvalidArgument."""
        parts = text.strip().split("/")
        if len(parts) != 4 or not parts[2].isdigit():
            raise InvalidArgument(f"{text!r:.80} is no fault: WHO/MOMENT/COUNT/ACT")
        return Fault(parts[0], unquote(parts[1]), int(parts[2]), parts[3])

    @property
    def outside(self) -> bool:
        """Whether a service is to blame for it."""
        return self.moment.partition(" ")[0] == _ASKS and self.act != "dies"


@dataclass(frozen=True, slots=True)
class Ended:
    """What an invariant looks at: the cluster when all is over, healed and whole."""

    cluster: Cluster
    info: ProcedureInfo
    faults: tuple[Fault, ...]

    @property
    def db(self) -> AsyncDatabase:
        return self.cluster.db

    @property
    def history(self) -> History:
        return self.cluster.history

    @property
    def state(self) -> str:
        return self.info.state

    @property
    def result(self) -> Any:
        return self.info.result


Invariant = Callable[[Ended], object]
"""Plain or async. It raises AssertionError, or gives False, for what must not be."""


class Violation(AssertionError):
    """A schedule of faults that breaks something."""

    def __init__(self, name: str, why: str, seed: int, faults: Sequence[Fault], story: str) -> None:
        self.why, self.seed, self.faults, self.story = why, seed, tuple(faults), story
        self.replay = f"{seed}: {' + '.join(map(str, faults)) or 'calm'}"
        schedule = "\n".join(f"  {one.sentence}" for one in faults) or "  nothing goes wrong"
        super().__init__(
            f"{name}: {why.splitlines()[0]}\nseed {seed}, what goes wrong:\n{schedule}\n"
            f"replay with explore(…, replay={json.dumps(self.replay, ensure_ascii=False)})\n"
            f"what happened:\n{story}"
        )


@dataclass(slots=True)
class Report:
    """What was covered. `left`: schedules that the bounds left out."""

    name: str
    seed: int
    runs: int = 0
    left: int = 0
    took_s: float = 0.0
    moments: Counter[str] = field(default_factory=Counter)
    """Faults that were tried, by moment and act."""

    @property
    def complete(self) -> bool:
        return not self.left

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.moments.items()))
        of = "all of them" if self.complete else f"{self.left} were left out (runs_max, budget)"
        return f"{self.name}: {self.runs} runs in {self.took_s:.1f} s, {of}: {kinds}"


@dataclass(frozen=True, slots=True)
class _Given:
    procedure: str | Declared
    args: object
    invariant: Invariant | None
    setup: Callable[[AsyncDatabase], object] | None
    within: Duration
    how: dict[str, Any]

    @property
    def name(self) -> str:
        return procedure_name(self.procedure)


class _Run:
    """One run."""

    def __init__(self, given: _Given, seed: int, faults: tuple[Fault, ...]) -> None:
        self.faults, self.seed = faults, seed
        self.counts: Counter[tuple[str, str]] = Counter()
        self.behind: Counter[tuple[str, str]] = Counter()
        """As they were when the last of the faults came."""
        self.story = ""
        self.outcome: tuple[str, Any] = ("", None)
        self.wrong = ""
        self._given = given
        self._to_come = list(faults)
        self._watching = False
        self._next = ""  # what becomes of the message that is about to be sent
        self._cluster: Cluster

    def play(self) -> None:
        try:
            simulate(self._tell, seed=self.seed, **self._given.how)
        except AssertionError as error:
            self.wrong = str(error) or "the invariant does not hold"
        except KvorumError as error:
            self.wrong = f"{error.code}: {error.message}"
        self.story = self._cluster.history.story() if hasattr(self, "_cluster") else ""

    async def _tell(self, cluster: Cluster) -> None:
        self._cluster, given = cluster, self._given
        if given.setup is not None:
            await _maybe(given.setup(cluster.db))
        network = cluster.machines.network
        cluster.running.moment = self._moment
        network.on_bytes = self._moment
        network.loses = self._loses
        cluster.machines.on_persist = lambda node: self._at_disk(node.life, "persists")
        cluster.machines.on_persisted = lambda node: self._at_disk(node.life, "persisted")
        self._watching = True
        started = await cluster.submit(given.procedure, given.args)
        info = await cluster.run_until(started.done(), within=given.within)
        self._watching = False
        await self._whole(started)
        self.outcome = (info.state, info.result)
        if given.invariant is not None:
            held = await _maybe(given.invariant(Ended(cluster, info, self.faults)))
            if held is False:
                raise AssertionError("the invariant does not hold")

    async def _whole(self, started: Started) -> None:
        """Everybody is back, and what was on its way has arrived."""
        cluster = self._cluster
        cluster.machines.network.heal()
        for node in cluster.machines.nodes.values():
            node.start()
        await cluster.run_until(cluster.machines.all_ready, within=60_000)
        await cluster.run_until(lambda: not cluster.running.on_their_way)

    # -- moments
    def _at_disk(self, life: Life | None, moment: str) -> None:
        if life is not None:
            self._moment(life, moment)

    def _moment(self, life: Life, moment: str) -> str:
        if not self._watching or life.state is not State.RUNNING:
            return ""
        who = name_of(life)
        if moment.partition(" ")[0] not in _ACTS or moment == _OF_CONSENSUS:
            return ""
        self.counts[who, moment] += 1
        count = self.counts[who, moment]
        for fault in self._to_come:
            if (fault.who, fault.moment, fault.count) == (who, moment, count):
                self._to_come.remove(fault)
                self.behind = self.counts.copy()
                return self._act(fault)
        return ""

    def _act(self, fault: Fault) -> str:
        cluster = self._cluster
        cluster.history.add("fault", "explore", fault.sentence)
        kind, _, number = fault.who.partition(" ")
        if fault.act != "dies":
            if fault.moment == "sends":
                self._next = fault.act
            return fault.act
        if kind == "node":
            node = cluster.machines.nodes[int(number)]
            node.kill(power=True)
            cluster.machines.later(_AGAIN_S, node.start)
        elif kind == "worker":
            cluster.kill_worker(int(number))
            cluster.machines.later(_AGAIN_S, partial(cluster.start_worker, int(number)))
        return fault.act

    def _loses(self, source: Life, target: Life) -> bool:
        act, self._next = self._next, ""
        network, now = self._cluster.machines.network, self._cluster.machines.loop.time()
        if act == "late":
            network.clogged_until[source.number, target.number] = now + _LATE_S
        return act == "lost"

    def further(self, who: Callable[[str], bool]) -> Iterator[Fault]:
        """What may go wrong after its last fault."""
        for moment in _ACTS:
            for (name, found), most in sorted(self.counts.items()):
                if found.partition(" ")[0] != moment or not who(name):
                    continue
                for count in range(self.behind[name, found] + 1, most + 1):
                    for act in _ACTS[moment]:
                        if act != "dies" or name != "test":
                            yield Fault(name, found, count, act)


async def _maybe(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


def explore(
    procedure: str | Declared,
    args: object = None,
    invariant: Invariant | None = None,
    *,
    setup: Callable[[AsyncDatabase], object] | None = None,
    procedures: Sequence[Declared] = (),
    seed: int = 1,
    nodes: int = 1,
    workers: int = 1,
    depth: int = 1,
    runs_max: int = 5_000,
    budget: Duration = "10 min",
    within: Duration = "1 year",
    same_result: bool = True,
    only: Callable[[Fault], bool] | None = None,
    replay: str = "",
) -> Report:
    """Run a procedure through every crash, as the module says; what was covered. Raises Violation:
    the shortest schedule of faults that breaks something (those with one fault are tried first).

    setup        makes tables and rows, before anything goes wrong
    procedures   others that it starts
    workers      0: the nodes run it
    depth        faults in one run
    runs_max, budget   at most so many runs, and so much real time; what was left out is told
    same_result  crashes and lost messages must not change state and result. (After a request to a
                 service, or its answer, that was lost or late the procedure may end otherwise; the
                 invariant must hold.)
    only         leave out faults for which this is false
    replay       what a Violation says: only that run
    """
    how = {"nodes": nodes, "workers": workers}
    types = list(procedures)
    if not isinstance(procedure, str):
        types.insert(0, procedure)
    given = _Given(procedure, args, invariant, setup, within, {**how, "procedures": types})
    began = time.monotonic()
    report = Report(given.name, seed)
    if replay:
        seed, chosen = _replayed(replay)
        run = _Run(given, seed, chosen)
        run.play()
        report.seed, report.runs = seed, 1
        _judge(given, run, None)
        return report
    calm = _Run(given, seed, ())
    calm.play()
    _judge(given, calm, None)
    budget_s = milliseconds(budget) / 1000
    chance = random.Random(seed)
    level: deque[_Run] = deque([calm])
    for _ in range(depth):
        to_try = [
            (*run.faults, fault)
            for run in level
            for fault in run.further(lambda _: True)
            if only is None or only(fault)
        ]
        if level[0] is not calm:
            chance.shuffle(to_try)
        level = deque()
        for i, faults in enumerate(to_try):
            if report.runs >= runs_max or time.monotonic() - began > budget_s:
                report.left += len(to_try) - i
                break
            run = _Run(given, seed, faults)
            run.play()
            report.runs += 1
            report.moments[f"{faults[-1].moment.partition(' ')[0]}: {faults[-1].act}"] += 1
            _judge(given, run, calm if same_result else None)
            level.append(run)
        if report.left or not level:
            break
    report.took_s = time.monotonic() - began
    return report


def _judge(given: _Given, run: _Run, calm: _Run | None) -> None:
    """Raises Violation."""
    wrong = run.wrong
    outside = any(fault.outside for fault in run.faults)
    if not wrong and calm is not None and not outside and run.outcome != calm.outcome:
        wrong = f"it ended as {run.outcome}; without faults as {calm.outcome}"
    if wrong:
        raise Violation(given.name, wrong, run.seed, run.faults, run.story)


def _replayed(text: str) -> tuple[int, tuple[Fault, ...]]:
    seed, _, faults = text.partition(":")
    if not seed.strip().isdigit():
        raise InvalidArgument(f"{text!r:.80} is no replay: 'SEED: WHO/MOMENT/COUNT/ACT + …'")
    if faults.strip() in ("", "calm"):
        return int(seed), ()
    return int(seed), tuple(map(Fault.of, faults.split("+")))
