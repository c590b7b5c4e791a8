"""Encrypted backups: what is noticed, what is refused, and that nothing can be read without key."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.base.errors import Corruption, InvalidArgument, KvorumError, NotFound, Refused
from kvorum.transfer import sealing
from kvorum.transfer.places import place_of
from kvorum.transfer.sealing import PIECE_BYTES, Files, Key, read_key
from kvorum.transfer.verify import verify
from tests.kvorum.cluster.three import client, trio
from tests.kvorum.transfer.backups import backup, restore

KEY = Key(bytes(range(32)))
PIECE = 16 + 16  # in the test of damage, with its tag


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys" / "one"
    path.parent.mkdir()
    return written(path, KEY.secret.hex().encode() + b"\n")


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, 2_500_000])
def test_u14_what_is_sealed_comes_back(size: int) -> None:
    """A file whose length is a multiple of a piece's could not be read."""
    data = os.urandom(size)
    sealed = KEY.seal("b1", "data/1", data)
    assert KEY.open("b1", "data/1", sealed, "place") == data
    assert sealed == KEY.seal("b1", "data/1", data), "who writes it again writes the same"
    assert size < 16 or data[:16] not in sealed
    salts = {KEY.seal(*where, data)[4:36] for where in (("b1", "x"), ("b2", "x"), ("b", "1x"))}
    assert len(salts) == 3


@settings(max_examples=300)
@given(data=st.data())
def test_u14_any_change_of_a_sealed_file_is_noticed(data: st.DataObject) -> None:
    """Pieces that are changed, lost, cut, doubled or exchanged, or a file of another name, backup
    or key, would be restored as if nothing had happened.
    """
    with mock.patch.object(sealing, "PIECE_BYTES", 16):
        content = data.draw(st.binary(max_size=80))
        sealed = KEY.seal("b1", "n1", content)
        head, body = sealed[:36], sealed[36:]
        pieces = [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
        where = ["b1", "n1"]
        key = KEY
        match data.draw(st.sampled_from(["flip", "cut", "lose", "double", "swap", "more", "else"])):
            case "flip":
                at = data.draw(st.integers(0, len(sealed) - 1))
                bit = 1 << data.draw(st.integers(0, 7))
                changed = sealed[:at] + bytes([sealed[at] ^ bit]) + sealed[at + 1 :]
            case "cut":
                changed = sealed[: data.draw(st.integers(0, len(sealed) - 1))]
            case "lose":
                del pieces[data.draw(st.integers(0, len(pieces) - 1))]
                changed = head + b"".join(pieces)
            case "double":
                pieces.insert(0, data.draw(st.sampled_from(pieces)))
                changed = head + b"".join(pieces)
            case "swap":
                changed = head + b"".join(data.draw(st.permutations(pieces)))
            case "more":
                changed = sealed + data.draw(st.binary(min_size=1, max_size=40))
            case _:
                changed = sealed
                which = data.draw(st.integers(0, 2))
                if which == 2:
                    key = Key(bytes(32))
                else:
                    where[which] += "x"
        if (changed, where, key) == (sealed, ["b1", "n1"], KEY):
            return
        with pytest.raises(Corruption, match="n1"):
            key.open(*where, changed, "place")


@pytest.mark.parametrize(
    ("data", "mode", "told"),
    [
        (b"k" * 32, 0o640, "chmod 600"),
        (b"k" * 32, 0o604, "chmod 600"),
        (b"k" * 31, 0o600, "has no key"),
        (b"hush" * 20, 0o600, "has no key"),
        (b"", 0o600, "has no key"),
        (None, 0o600, "cannot be read: No such file"),
    ],
)
def test_u14_a_key_file_that_is_none_is_refused(
    data: bytes | None, mode: int, told: str, tmp_path: Path
) -> None:
    """Others read the key; or a backup is encrypted with a typing error; or it is repeated."""
    path = tmp_path / "key"
    if data is not None:
        written(path, data, mode)
    with pytest.raises(InvalidArgument, match=told) as caught:
        read_key(str(path))
    assert "hush" not in str(caught.value)
    assert read_key(str(written(tmp_path / "raw", KEY.secret))) == KEY
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(KEY.secret) not in repr(KEY)


async def test_u14_an_encrypted_backup_there_and_back(tmp_path: Path, key_file: Path) -> None:
    """Rows, names or keys stand in clear in it; another key restores nonsense, or takes away what
    was there; verify cannot look at it.
    """
    where, listed = tmp_path / "backup", {"transfer_places": ("file:///",)}
    async with trio(1, **listed, backup_key_file=str(key_file)) as nodes, client(nodes) as db:
        await db.create_table("default", "hushtable")
        await db.table("default", "hushtable").put("hushkey", "hushvalue")
        told = await backup(db, where, encrypt=True)
        assert told["key"] == KEY.id
    texts = [path.read_bytes() for path in where.rglob("*") if path.is_file()]
    assert len(texts) >= 3
    for text in texts:
        assert not re.search(b"hush|" + KEY.secret.hex().encode(), text)
    outer = json.loads((where / "manifest.json").read_bytes())
    assert sorted(outer) == ["format", "id", "key", "kind", "sealed"]
    place = place_of(str(where))
    assert verify(place, key=KEY).rows == told["rows"]
    for key, code in ((None, "KEY_NEEDED"), (Key(bytes(32)), "WRONG_KEY")):
        with pytest.raises(Refused, match=KEY.id) as caught:
            verify(place, key=key)
        assert caught.value.code == code
    other = written(tmp_path / "keys" / "other", bytes(32))
    for path, code in (("", "KEY_NEEDED"), (str(other), "WRONG_KEY")):
        async with trio(1, **listed, backup_key_file=path) as nodes, client(nodes) as db:
            await db.create_table("default", "mine")
            await db.table("default", "mine").put("k", "v")
            await refused(restore(db, where, force=True), code)
            assert (await db.table("default", "mine").get("k")).value == b"v"
            if not path:
                await refused(backup(db, tmp_path / "open", encrypt=True), code)
                assert not (tmp_path / "open").exists()
                assert (await backup(db, tmp_path / "clear"))["key"] == ""
                assert verify(place_of(str(tmp_path / "clear")), key=KEY).rows
    async with trio(1, **listed, backup_key_file=str(key_file)) as nodes, client(nodes) as db:
        await restore(db, where)
        assert (await db.table("default", "hushtable").get("hushkey")).value == b"hushvalue"


async def refused(call: Any, code: str) -> None:
    with pytest.raises(KvorumError) as caught:
        await call
    assert caught.value.code == code, caught.value


def test_u14_files_of_an_encrypted_backup_are_not_exchanged(tmp_path: Path) -> None:
    """A file of yesterday's backup, or in clear, or under another name, is restored."""
    place = place_of(str(tmp_path))
    one, two = Files(place, "b1", KEY), Files(place, "b2", KEY)
    one.write("data/1", b"one")
    assert one.read("data/1") == b"one"
    with pytest.raises(Corruption, match="data/1"):
        two.read("data/1")
    place.write("data/2", place.read("data/1"))
    with pytest.raises(Corruption, match="data/2"):
        one.read("data/2")
    place.write("data/1", b"KVB1 in clear, and long enough for one file with a tag of 16 bytes")
    with pytest.raises(Corruption, match="no whole file of an encrypted backup"):
        one.read("data/1")
    with pytest.raises(NotFound):
        one.read("data/3")


def test_u14_a_key_is_not_kept_beside_what_it_opens(tmp_path: Path) -> None:
    """Who steals the backup has the key."""
    place = place_of(str(tmp_path / "backup"))
    for inside in ("backup/key", "backup/a/key", "backup/../backup/key"):
        with pytest.raises(InvalidArgument, match="keep it elsewhere"):
            sealing.check_apart(str(tmp_path / inside), place)
    sealing.check_apart(str(tmp_path / "backup-key"), place)
