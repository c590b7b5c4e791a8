"""kvorum.http.server.connection_turns: who floods over HTTP waits before he is parsed."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from kv.base.accounts import USER, Account
from kv.base.connection_slots import Seats
from kv.base.fair_turns import HTTP_US, FairTurns
from kvorum.http.server.connection_turns import ConnectionTurn, turn_of
from kvorum.http.server.http_server import HttpServer
from kvorum.http.wire.codec import Reply
from kvorum.http.wire.request import Receive, Request, Scope, Send, send_reply
from tests.kit.waiting import until

BOB = b"Bearer bob"
HEAD = b"GET /x HTTP/1.1\r\nhost: h\r\nauthorization: " + BOB + b"\r\n\r\n"
MORE_US = 100_000


def account(name: str) -> Account:
    return Account(USER, name, lambda: 0, shown=True)


class Scene:
    """Turns of bob's, while ann is there, too; passes of the loop are ours."""

    def __init__(self) -> None:
        self.passes: deque[Callable[[], None]] = deque()
        self.now = 0.0
        self.turns = FairTurns(lambda: self.now, self.passes.append)
        self.bob, self.ann = account("bob"), account("ann")

    def contest(self) -> None:
        """bob has used his share, and ann has work."""
        self.turns.over(self.ann)
        self.turns.over(self.bob)
        self.bob.worked_us += MORE_US

    def passes_by(self) -> None:
        for _ in range(len(self.passes)):
            self.passes.popleft()()


def test_who_has_used_his_share_waits_with_what_he_said_last() -> None:
    """What a flood sends would be parsed in every pass of the loop, for nobody's turn."""
    scene = Scene()
    turn, told = ConnectionTurn(), list[str]()

    def go() -> bool:
        turn.begin()
        told.append("went")
        return True

    assert not turn.wait(HEAD, go), "nobody has asked by it yet"
    assert not turn.asked(scene.bob, BOB, scene.turns)
    scene.contest()
    worked = scene.bob.worked_us
    assert turn.wait(HEAD, go)
    assert not told
    scene.passes_by()
    assert told == ["went"]
    assert scene.bob.worked_us == worked + HTTP_US
    assert turn.asked(scene.bob, BOB, scene.turns), "it is not to wait again"
    assert not turn.asked(scene.bob, BOB, scene.turns), "that was one request's turn"


def test_another_user_on_the_same_connection_waits_for_nobodys_turn() -> None:
    """A reverse proxy's connection has requests of many users: ann would wait in bob's queue."""
    scene = Scene()
    turn = ConnectionTurn()
    assert not turn.asked(scene.bob, BOB, scene.turns)
    scene.contest()
    assert not turn.wait(HEAD.replace(BOB, b"Bearer ann"), lambda: True)
    assert turn.wait(HEAD, lambda: True)
    turn.begin()
    assert not turn.asked(scene.ann, b"Bearer ann", scene.turns), "the turn was bob's"
    assert not turn.asked(scene.ann, b"", scene.turns)
    scene.ann.worked_us += MORE_US
    assert not turn.wait(HEAD, lambda: True), "who says nothing is looked at each time"


async def test_g10_requests_are_parsed_at_their_turn_and_answered_in_order() -> None:
    """A request that waited would be lost, be answered twice, or hold its connection for ever."""
    scene = Scene()
    had: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        turn = turn_of(scope)
        assert turn is not None
        had.append(turn.asked(scene.bob, BOB, scene.turns))
        size = len(await Request(scope, receive).body(1_000))
        await send_reply(send, Reply(200, b"%s %d" % (scope["raw_path"], size)))

    sock = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, sock, Seats())
    await server.start()
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    gone = await asyncio.open_connection(*sock.getsockname())
    try:

        async def line(by: asyncio.StreamReader, ends: bytes) -> None:
            async with asyncio.timeout(30):
                await by.readuntil(ends)

        for by, to in ((reader, writer), gone):
            to.write(HEAD)
            await line(by, b"/x 0")
        scene.contest()
        post = HEAD.replace(b"GET /x", b"POST /y").replace(b"\r\n\r\n", b"\r\ncontent-length: 9")
        writer.write(post + b"\r\n\r\n1234")
        await until(lambda: len(scene.bob.waiting) == 1)
        writer.write(b"56789" + HEAD + HEAD.replace(b"/x", b"/z"))
        gone[1].write(HEAD)
        await until(lambda: len(scene.bob.waiting) == 2)
        gone[1].close()
        assert had == [False] * 2
        while scene.bob.waiting:
            scene.passes_by()
        for ends in (b"/y 9", b"/x 0", b"/z 0"):
            await line(reader, ends)
            while scene.passes:
                scene.passes_by()
        assert had[2], "what waited does not wait again"
    finally:
        writer.close()
        await server.stop()
