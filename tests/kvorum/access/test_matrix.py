"""Every verb of the native port × who asks: made from the table of verbs, so that a new one without
a right that is checked fails here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

import kvorum
import kvorum.api.verbs
from kv.base.adapters import LoopTimers
from kv.base.credentials import Credential
from kv.base.errors import Busy, Forbidden, KvorumError, Unauthenticated
from kv.base.ids import META_PARTITION
from kv.base.methods import CHECK, RESOLVE, SETTLE
from kv.base.rights import Action
from kv.base.verbs import NODE_METHODS, VERBS, Verb
from kv.client.connection import MuxConnection, open_connection
from kvorum.sdk.sync import Database
from tests.kit.machine import free_port_base
from tests.kit.waiting import poll

T = TypeVar("T")
assert kvorum.api.verbs  # every verb is in the table then
ENDS = {CHECK, RESOLVE, SETTLE}  # others' transactions: not believed, but answered
OPEN = [verb for verb in VERBS if verb.action is Action.CONNECT]


class Cluster:
    def __init__(self, base: int, db: Database) -> None:
        self.base, self.db = base, db
        db.access("init")
        for name in ("nothing", "dropped"):
            db.access("user.create", {"name": name})
        for name in ("nothing", "dropped", "short", "revoked"):
            user = name if name in ("nothing", "dropped") else "nothing"
            said = {"user": user, "name": name, "ttl_ms": 1_000 if name == "short" else 0}
            setattr(self, name, db.access("token.create", said)["token"])
        db.access("token.revoke", {"user": "nothing", "name": "revoked"})
        db.create_table("default", "t")
        db.table("default", "t").put(b"k", b"v")
        (self.partition,) = (
            one["id"] for one in db.partitions() if int(one["id"]) != META_PARTITION
        )

    nothing: str
    dropped: str
    short: str
    revoked: str

    async def link(self, token: str) -> MuxConnection:
        timers = LoopTimers(asyncio.get_running_loop())
        said = Credential(token=token)
        return await open_connection("127.0.0.1", self.base, timers=timers, credential=said)

    def answers(self, token: str, verbs: list[Verb]) -> dict[str, KvorumError | None]:
        """What comes of each verb, with nothing but where it goes."""

        async def ask() -> dict[str, KvorumError | None]:
            link = await self.link(token)
            loop = asyncio.get_running_loop()
            found: dict[str, KvorumError | None] = {}
            for verb in verbs:
                where: tuple[Any, ...] = ()
                if verb.number < NODE_METHODS:
                    where = (int(self.partition), 1)
                try:
                    async with asyncio.timeout(5):
                        await link.send(verb.number, 1_000, loop.time() + 5, where)
                    found[verb.name] = None
                except KvorumError as error:
                    found[verb.name] = error
            link.close()
            return found

        return asyncio.run(_calmly(ask()))


async def _calmly(work: Coroutine[Any, Any, T]) -> T:
    """The sockets that it closes are closed before the loop is."""
    try:
        return await work
    finally:
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = free_port_base()
    with kvorum.open(tmp_path_factory.mktemp("n") / "data", port=base) as db:
        yield Cluster(base, db)


@pytest.mark.parametrize("who", ["", "wrong", "revoked", "short", "dropped"])
def test_nobody_says_anything(cluster: Cluster, who: str) -> None:
    """Without a credential, with a wrong, revoked or expired one, or a dropped user's: no verb is
    reached, and the answer is the same for all.
    """
    if who == "dropped":
        users = [one["name"] for one in cluster.db.access("user.list")]
        if "dropped" in users:
            cluster.db.access("user.delete", {"name": "dropped"})
    token = getattr(cluster, who, "kvt_" + "a" * 16 + "_" + "b" * 43 if who else "")

    async def come() -> None:
        (await cluster.link(token)).close()

    def refused() -> bool:
        try:
            asyncio.run(_calmly(come()))
        except Busy:  # earlier failures slow it down
            return False
        except Unauthenticated as error:
            return not {"nothing", "dropped", "revoked", "short"} & set(str(error).split())
        return False  # it has not expired yet

    assert poll(refused)


def test_every_verb_needs_its_right(cluster: Cluster) -> None:
    """Somebody without any right: each verb is refused but those that everybody needs; nodes'
    orders, too.
    """
    asked = [verb for verb in VERBS if verb not in OPEN and verb.number not in ENDS]
    assert len(asked) > 60
    for name, error in cluster.answers(cluster.nothing, asked).items():
        arguments = error is not None and error.code in ("INVALID_ARGUMENT", "MALFORMED_FRAME")
        needs = VERBS[next(verb.number for verb in VERBS if verb.name == name)]
        if arguments and needs.number >= NODE_METHODS:
            continue  # what it is about is in its arguments: refused before anything is done
        assert isinstance(error, Forbidden), (name, error)
