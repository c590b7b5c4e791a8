"""Hostile bytes from good ones, from a seed: what fuzzers do to samples (AFL's havoc, splice)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

BYTES_MAX: Final = 64 << 10
_ODD: Final = (0, 1, 0x7F, 0x80, 0xC1, 0xDD, 0xDF, 0xFE, 0xFF)
_NUMBERS: Final = (
    0,
    1,
    3,
    4,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
)
_NESTED: Final = (b"\x91", b"\x81\xa1a", b"[", b'{"a":', b"(", b"/*", b"\x93\x93", b"((")
_STRANGE: Final = (
    *(
        b"\0",
        b"\xff\xff\xff\xff",
        b"\xc3\x28",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"%00",
        b"\r\n\r\n",
    ),
    *(
        "\u202e\u0130\ufeff".encode(),
        b"1e999999",
        b"-0",
        b"NaN",
        b"9" * 400,
        b"'",
        b'"',
        b"$1",
        b"\\",
    ),
)


class Mutator:
    """`make(samples)` gives one input after the other; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def make(self, samples: Sequence[bytes]) -> bytes:
        """One of the samples, changed in one to eight ways."""
        rng = self._rng
        data = bytearray(rng.choice(samples))
        for _ in range(1 << rng.randrange(4)):
            rng.choice(_WAYS)(rng, data, samples)
        return bytes(data[:BYTES_MAX])


_Way = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _odd(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice(_ODD)


def _number(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    size = rng.choice((1, 2, 4, 8))
    if len(data) >= size:
        at = rng.randrange(len(data) - size + 1)
        number = rng.choice(_NUMBERS) & ((1 << 8 * size) - 1)
        data[at : at + size] = number.to_bytes(size, rng.choice(("big", "little")))


def _cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 32)]


def _end(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = (
        rng.choice(_STRANGE) if rng.random() < 0.7 else rng.randbytes(rng.randrange(1, 16))
    )


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    piece = bytes(data[at : at + rng.randrange(1, 64)])
    data[at:at] = piece * rng.choice((1, 2, 7, 100))


def _nest(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_NESTED) * rng.choice((3, 33, 600, 5_000))


def _splice(rng: random.Random, data: bytearray, samples: Sequence[bytes]) -> None:
    other = rng.choice(samples)
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


_WAYS: Final[tuple[_Way, ...]] = (
    *(_flip, _flip, _odd, _odd, _number, _number, _cut, _end, _insert, _repeat, _splice),
    _nest,
)
