"""`kvorum cluster`: several real nodes on this machine, to be started, looked at and hurt."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kv.base.config import HTTP_OFFSET, ORACLE, PORT_DEFAULT, SQL_OFFSET
from kv.base.errors import InvalidArgument, KvorumError
from kv.base.tls import tls_of
from kvorum.cli import output
from kvorum.cli.connection import Clock, Json
from procedures.engine.plain_data import Plain

if TYPE_CHECKING:
    from kvorum.programs.localcluster import LocalCluster, LocalNode

app = typer.Typer(
    no_args_is_help=True,
    help="A cluster of real processes on this machine: start it, look at it, hurt it.",
)
Data = Annotated[Path, typer.Option("--data", help="Directory of the cluster.")]
Number = Annotated[int, typer.Argument(metavar="I", help="A node's number, from 1.")]
_DATA = Path("kvorum-cluster")
_ASK_MS = 5_000


@contextmanager
def _cluster(data: Path, json: bool) -> Iterator[LocalCluster]:
    """The cluster in `data`; errors end the process with one line."""
    from kvorum.programs.localcluster import LocalCluster

    try:
        cluster = LocalCluster.open(data)
        cluster.log_in()
        yield cluster
    except KvorumError as e:
        output.die(e, as_json=json)
    except OSError as e:
        output.die(f"{e.filename or data}: {e.strerror or e}", as_json=json)


@app.command()
def up(
    nodes: Annotated[
        int | None,
        typer.Option(help="How many, 1 to 9; 3 if left out. An existing cluster keeps its own."),
    ] = None,
    witnesses: Annotated[
        int | None, typer.Option(help="How many of them vote and keep no data: the last ones.")
    ] = None,
    clock: Clock = None,
    data: Data = _DATA,
    port: Annotated[int, typer.Option(help="Node I listens from PORT + 10·I on.")] = PORT_DEFAULT,
    procedure_modules: Annotated[
        str, typer.Option(metavar="MODULE,…", help="Modules whose procedures the nodes run.")
    ] = "",
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, and an administrator: files in DIR/tls."),
    ] = False,
    json: Json = False,
) -> None:
    """Start a cluster, or those of its nodes that do not run. Returns when all are ready."""
    from kvorum.programs.localcluster import LocalCluster
    from kvorum.programs.secured import admin_dir, logins

    try:
        if LocalCluster.exists(data):
            cluster = LocalCluster.open(data)
            if nodes not in (None, len(cluster.nodes)):
                raise InvalidArgument(
                    f"the cluster in {data} has {len(cluster.nodes)} nodes, not {nodes}: leave "
                    "--nodes out, or give another --data"
                )
            if secure and cluster.tls_at is None:
                raise InvalidArgument(
                    f"the cluster in {data} began without TLS: leave --secure out, or give another "
                    "--data"
                )
            if witnesses not in (None, len(cluster.witnesses)):
                raise InvalidArgument(
                    f"the cluster in {data} began with {len(cluster.witnesses)} witnesses: leave "
                    "--witnesses out, or give another --data"
                )
            if clock not in (None, cluster.clock or ORACLE):
                raise InvalidArgument(
                    f"the cluster in {data} began with --clock {cluster.clock or ORACLE}, for "
                    "good: leave --clock out, or give another --data"
                )
        else:
            count, now = 3 if nodes is None else nodes, datetime.now(UTC) if secure else None
            cluster = LocalCluster.create(
                *(data, count, port, witnesses or 0), secure_at=now, clock=clock or ""
            )
        cluster.log_in()
        options = ("--procedure-modules", procedure_modules) if procedure_modules else ()
        for node in list(cluster.nodes):
            if node.state() == "dead":
                cluster.start(node.id, options)
        cluster.wait_ready([n.id for n in cluster.nodes], on_ready=_announcer(cluster, json))
        cluster.initialise()
    except KvorumError as e:
        output.die(e, as_json=json)
    except OSError as e:
        output.die(f"{e.filename or data}: {e.strerror or e}", as_json=json)
    if json:
        how = {"tls_dir": str(admin_dir(cluster.tls_at))} if cluster.tls_at else {}
        nodes_now = [_brief(n) for n in cluster.nodes]
        output.emit({"nodes": nodes_now, "connect": cluster.connect, **how})
        return
    output.lines(
        [
            "",
            f"export KVORUM_CONNECT={cluster.connect}",
            *(logins(cluster.tls_at) if cluster.tls_at else ()),
            f"stop it with: kvorum cluster down --data {data}",
        ]
    )


def _announcer(cluster: LocalCluster, json: bool) -> Callable[[int], None]:
    def announce(number: int) -> None:
        if not json:
            node = cluster.node(number)
            s = "s" if cluster.tls_at else ""
            http = f"http{s}://127.0.0.1:{node.base + HTTP_OFFSET}"
            sql = f"sql {node.base + SQL_OFFSET}"
            output.lines(
                [f"node {number}  ready  kvorum{s}://{node.address}  {http}  {sql}  pid {node.pid}"]
            )
            sys.stdout.flush()

    return announce


def _brief(node: LocalNode) -> dict[str, object]:
    return {"id": node.id, "address": node.address, "pid": node.pid, "state": node.state()}


@app.command()
def down(data: Data = _DATA, json: Json = False) -> None:
    """Stop every node in order. The data stay."""
    with _cluster(data, json) as cluster:
        cluster.down()
        _said(json, "down", [node.id for node in cluster.nodes])


@app.command()
def start(number: Number, data: Data = _DATA, json: Json = False) -> None:
    """Start a node that was killed, and wait until it is ready."""
    with _cluster(data, json) as cluster:
        cluster.start(number)
        cluster.wait_ready([number], on_ready=lambda _number: None)
        _said(json, "running", [number])


@app.command()
def add(
    witness: Annotated[bool, typer.Option("--witness", help="It votes and keeps no data.")] = False,
    data: Data = _DATA,
    json: Json = False,
) -> None:
    """Start one more node. It fetches the data, then it votes. (To take one out: `kvorum node
    decommission`, then `remove`.)
    """
    with _cluster(data, json) as cluster:
        node = cluster.add(witness=witness)
        cluster.start(node.id)
        cluster.wait_ready([node.id], on_ready=_announcer(cluster, json))
        if json:
            output.emit(_brief(cluster.node(node.id)))


@app.command()
def remove(number: Number, data: Data = _DATA, json: Json = False) -> None:
    """Stop a node that was decommissioned and forget it. Its data directory stays."""
    with _cluster(data, json) as cluster:
        cluster.stop(number)
        cluster.forget(number)
        _said(json, "removed", [number])


@app.command()
def kill(number: Number, data: Data = _DATA, json: Json = False) -> None:
    """kill -9 a node."""
    with _cluster(data, json) as cluster:
        cluster.signal(number, signal.SIGKILL)
        _said(json, "killed", [number])


@app.command()
def pause(number: Number, data: Data = _DATA, json: Json = False) -> None:
    """SIGSTOP a node: it lives, but does nothing until `heal` or `resume`."""
    with _cluster(data, json) as cluster:
        cluster.signal(number, signal.SIGSTOP)
        _said(json, "paused", [number])


@app.command()
def resume(number: Number, data: Data = _DATA, json: Json = False) -> None:
    """SIGCONT a paused node."""
    with _cluster(data, json) as cluster:
        cluster.signal(number, signal.SIGCONT)
        _said(json, "resumed", [number])


def _said(json: bool, what: str, numbers: list[int]) -> None:
    if json:
        output.emit({"done": what, "nodes": numbers})
    else:
        output.lines([f"node {', '.join(map(str, numbers))}: {what}"])


@app.command()
def cut(
    one: Annotated[int, typer.Argument(metavar="I", help="A node's number.")],
    other: Annotated[int, typer.Argument(metavar="J", help="Another one's.")],
    one_way: Annotated[
        bool, typer.Option("--one-way", help="J does not hear I; I still hears J.")
    ] = False,
    data: Data = _DATA,
    json: Json = False,
) -> None:
    """Let nothing pass between two nodes, either way or from I to J only, until `heal`."""
    with _cluster(data, json) as cluster:
        if one == other:
            raise InvalidArgument("a link has two ends: give two different nodes")
        for here, there in ((other, one),) if one_way else ((one, other), (other, one)):
            known = {of(cut): cut for cut in links(cluster.node(here), None)}
            known[there] = [there, "in"] if one_way else there
            links(cluster.node(here), list(known.values()))
        if json:
            way = {"one_way": {"from": one, "to": other}} if one_way else {}
            done = "cut one way" if one_way else "cut"
            output.emit({"done": done, "nodes": [one, other], **way})
        elif one_way:
            answer = f"node {one} → node {other}: cut, {other} does not hear {one}"
            output.lines([answer, f"node {other} → node {one}: open"])
        else:
            output.lines([f"node {one} ↔ node {other}: cut"])


Cut = int | list[int | str]
"""An entry of the method LINKS: a node, or a node and the way that is cut."""


def of(cut: Cut) -> int:
    """The node that a cut cuts off."""
    return cut if isinstance(cut, int) else int(cut[0])


@app.command()
def heal(data: Data = _DATA, json: Json = False) -> None:
    """Undo every cut and wake every paused node. Killed nodes come back by `start` or `up`."""
    with _cluster(data, json) as cluster:
        healed = [node for node in cluster.nodes if node.state() != "dead"]
        for node in healed:
            if node.state() == "paused":
                cluster.signal(node.id, signal.SIGCONT)
        for node in healed:
            links(node, [])
        _said(json, "healed", [node.id for node in healed])


def links(node: LocalNode, blocked: Sequence[Cut] | None) -> list[Cut]:
    """Set which nodes a node is cut off from (None: only ask); returns what holds now."""
    import asyncio

    from kv.base.adapters import LoopTimers, SystemRng
    from kv.client.client import connect
    from kvorum.api.verbs import LINKS

    async def ask() -> list[Cut]:
        timers = LoopTimers(asyncio.get_running_loop())
        host, _, port = node.address.rpartition(":")
        client = await connect([(host, int(port))], timers=timers, rng=SystemRng(), tls=tls_of())
        try:
            (now,) = await client.call_node(LINKS, blocked, budget_ms=_ASK_MS)
        finally:
            client.close()
        return list(now)

    return asyncio.run(ask())


@app.command()
def status(data: Data = _DATA, json: Json = False) -> None:
    """Print every node, what it is cut off from, and every partition: who leads, and who lags."""
    from kvorum.connecting import connect

    with _cluster(data, json) as cluster:
        running = [node for node in cluster.nodes if node.state() == "running"]
        answer: Plain = {"nodes": [_brief(node) for node in cluster.nodes]}
        cuts = _cuts(running)
        for row in answer["nodes"]:
            row["cuts"] = cuts.get(row["id"])
        problem = None if running else "no node runs"
        if running:
            try:
                with connect(",".join(node.address for node in running)) as db:
                    answer["members"], answer["partitions"] = db.nodes(), db.partitions()
            except KvorumError as e:
                problem = f"{e.code}: {e.message}"
        if json:
            output.emit(answer | ({"problem": problem} if problem else {}))
            return
        members = {row["id"]: row for row in answer.get("members", ())}
        output.table(
            ("NODE", "ADDRESS", "PID", "PROCESS", "MEMBER", "KEEPS", "LEADS", "REPLICAS", "CUTS"),
            [
                (*_node_row(node, members.get(node.id, {})), _shown_cuts(cuts.get(node.id)))
                for node in cluster.nodes
            ],
        )
        if problem:
            output.lines(["", f"the cluster does not answer: {problem}"])
            return
        output.lines([""])
        output.partitions(answer["partitions"])


def _cuts(nodes: Sequence[LocalNode]) -> dict[int, list[dict[str, object]] | None]:
    """By node, what it was cut off from: `node`, and `hears`, `heard`: whether anything
    still passes from there, or there. None: it does not answer.
    """
    found: dict[int, list[dict[str, object]] | None] = {}
    for node in nodes:
        try:
            cuts = links(node, None)
        except KvorumError:
            found[node.id] = None
            continue
        ways = [(of(cut), "both" if isinstance(cut, int) else cut[1]) for cut in cuts]
        found[node.id] = [
            {"node": other, "hears": way == "out", "heard": way == "in"} for other, way in ways
        ]
    return found


def _shown_cuts(cuts: list[Plain] | None) -> str:
    """Of one node, in a cell: `from 2`; `does not hear 3`, `is not heard by 3` of one way."""
    if cuts is None:
        return "?"
    words = {
        (False, False): "from {}",
        (False, True): "does not hear {}",
        (True, False): "is not heard by {}",
    }
    return "; ".join(words[c["hears"], c["heard"]].format(c["node"]) for c in cuts) or "-"


def _node_row(node: LocalNode, member: dict[str, object]) -> tuple[object, ...]:
    state, leaders, replicas = (member.get(n, "-") for n in ("state", "leaders", "replicas"))
    keeps = "votes" if member.get("witness", node.witness) else "data"
    return (node.id, node.address, node.pid, node.state(), state, keeps, leaders, replicas)
