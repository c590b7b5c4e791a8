"""One key is found in packed ones as in a list of them."""

from __future__ import annotations

import random

import msgpack

from kv.base import limits
from kv.mvcc import packed_rows
from kv.mvcc.packed_rows import PackedKeys
from tests.kit.each import each

PREFIX = b"\x00\x00\x00\x64"


def of(keys: list[bytes], prefix: bytes = PREFIX, packed_keys: bytes | None = None) -> PackedKeys:
    own = [key.removeprefix(prefix) for key in keys]
    data = msgpack.packb(own) if packed_keys is None else packed_keys
    return PackedKeys(keys[0], len(prefix), len(keys), data, keys[-1])


def some(chance: random.Random) -> list[bytes]:
    """Of one length; of many; with each other's heads and bytes inside; one in the other."""
    count = chance.choice((1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 300))
    length = chance.choice((1, 2, 8, 255, 256, 300))
    match chance.randrange(4):
        case 0:
            keys = {chance.randbytes(length) for _ in range(count)}
        case 1:
            keys = {chance.randbytes(chance.randrange(length + 1)) for _ in range(count)}
        case 2:
            keys = {
                b"a" * chance.randrange(400) + chance.choice((b"", b"\0")) for _ in range(count)
            }
        case _:
            short = [chance.randbytes(chance.randrange(4)) for _ in range(count)]
            keys = set(short) | {
                chance.randbytes(chance.randrange(2)) + msgpack.packb(one)[chance.randrange(2) :]
                for one in short
            }
    return sorted(PREFIX + key for key in keys)


def near(chance: random.Random, keys: list[bytes]) -> list[bytes]:
    """Keys that are there, and others right beside them."""
    found = [*keys, b"", PREFIX, PREFIX[:2], PREFIX + b"\xff" * 500]
    for key in chance.sample(keys, min(len(keys), 40)):
        found += [key[:-1], key + b"\0", key + b"\xff", key[:-1] + b"\xff", key[len(PREFIX) :]]
        found.append(PREFIX + msgpack.packb(key[len(PREFIX) :]))
        found.append(PREFIX + key[len(PREFIX) + 2 :])
    return found


@each("seed", range(60))
def test_d3_a_key_is_among_packed_ones_as_in_a_list(seed: int) -> None:
    """A write would pass an intent, or wait for one that is not there."""
    chance = random.Random(seed)
    keys = some(chance)
    for chunk in (of(keys), PackedKeys.of(keys)):
        assert all((key in chunk) == (key in keys) for key in near(chance, keys))
        assert list(chunk) == keys


def test_d3_bytes_that_look_like_a_key_are_none() -> None:
    """What lies inside another key would be taken for a key of its own."""
    inside = b"mm"
    keys = [PREFIX + b"a", PREFIX + b"b" + msgpack.packb(inside), PREFIX + b"z"]
    chunk = of(keys)
    assert msgpack.packb(inside) in chunk.packed
    assert PREFIX + inside not in chunk
    assert all(key in chunk for key in keys)


def test_d3_keys_with_long_heads_are_found() -> None:
    """Another program may pack them in other heads than this one; it is legal, so they are keys."""
    names = [b"k%03d" % i for i in range(100)]
    long_heads = b"\xdc\x00\x64" + b"".join(b"\xc5\x00\x04" + name for name in names)
    long_list = b"\xdd\x00\x00\x00\x64" + b"".join(b"\xc4\x04" + name for name in names)
    keys = [PREFIX + name for name in names]
    for data in (long_heads, long_list):
        chunk = of(keys, packed_keys=data)
        assert list(chunk) == keys
        assert all(key in chunk for key in keys)
        assert not any(key + b"0" in chunk or key[:-1] in chunk for key in keys)


def test_d3_of_long_keys_nothing_is_remembered() -> None:
    """Sixteen chunks of the longest keys would be 128 MiB beside everything that has a bound."""
    long = [PREFIX + b"%03d" % i + b"x" * limits.KEY_BYTES_MAX for i in range(200)]
    assert len(PackedKeys.of(long).packed) > limits.OPEN_CHUNK_BYTES_MAX
    packed_rows._remembered.cache_clear()
    assert list(of(long)) == long
    assert packed_rows._remembered.cache_info().currsize == 0
    assert list(of(long[:10])) == long[:10]
    assert packed_rows._remembered.cache_info().currsize == 1
