"""A token that is passed out of band gives read-your-writes to whoever has it."""

from __future__ import annotations

import asyncio

import pytest

import kvorum
from kv.base.timestamps import MAX
from kvorum.connecting import aconnect
from tests.kvorum.cluster.three import client, trio


@pytest.mark.slow
def test_r2_a_token_gives_read_after_write_at_any_node() -> None:
    """A process that was told "it is written" would look at another node and find nothing."""

    async def main() -> None:
        async with trio() as made, client(made, 1) as writer:
            await writer.create_table("default", "t", split_keys=["m"])
            rows = writer.table("default", "t")
            for turn in range(6):
                version = await rows.put("z", b"%d" % turn)
                token = await writer.session_token()
                assert int(token) > version
                if turn == 3:  # the oracle moves in between
                    victim = await made.led()
                    await made.crash(victim)
                    await made.start(victim)
                reader = await aconnect(made.url_of(1 + turn % 3), session=token)
                async with reader, reader.transaction() as t:
                    assert t.start_ts > int(token)
                    found = await t.table("default", "t").get("z")
                    assert found == (b"%d" % turn, version)
                async with await aconnect(made.url_of(1 + turn % 3), session=version):
                    pass  # a version is a token, too

    asyncio.run(main())


@pytest.mark.few(2)
@pytest.mark.parametrize("token", ["", "abc", "-1", "1.5", "٣", None, 1.0, MAX + 1])
def test_r2_what_is_no_token_is_refused(token: object) -> None:
    """A cut off or foreign token would silently promise nothing."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            with pytest.raises(kvorum.InvalidArgument):
                await db.resume_session(token)  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.few(2)
@pytest.mark.parametrize("given", ["abc", "", None, b"x", "9" * 21])
def test_d4_what_is_no_id_is_refused(given: object) -> None:
    """Whoever asks by an id out of an error's details would get a TypeError."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            async with db.transaction() as t:
                pass
            assert await db.status(str(t.id)) == await db.status(t.id)
            with pytest.raises(kvorum.InvalidArgument):
                await db.status(given)  # type: ignore[arg-type]

    asyncio.run(main())


def test_r2_a_token_of_another_time_is_refused_by_name() -> None:
    """After a restore from a backup, a client would miss its own writes and not be told."""

    async def main() -> None:
        async with trio() as made, client(made) as db:
            ahead = int(await db.session_token()) + (3_600_000 << 18)
            with pytest.raises(kvorum.InvalidArgument, match="restored") as refused:
                await aconnect(made.url, session=str(ahead))
            assert refused.value.details["token"] == ahead

    asyncio.run(main())
