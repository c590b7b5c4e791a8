"""The decoders under atheris (libFuzzer), which looks for inputs that reach new code.

    python -m tests.attack.guided [-runs=N] [-seed=N]

The first byte of an input chooses the decoder. Ends with an exception at the first finding.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kv", "kvorum", "raft", "sqlproxy"]):
    from tests.attack.decoders import targets, tried

TARGETS = targets()


def one(data: bytes) -> None:
    """Of libFuzzer: an exception is a finding."""
    if data:
        found = tried(TARGETS[data[0] % len(TARGETS)], data[1:])
        assert found is None or "of CPU" in found.what, str(found)  # instrumented code is slow


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kvorum-guided-") as home:
        for number, target in enumerate(TARGETS):
            for place, sample in enumerate(target.samples):
                (Path(home) / f"{number}-{place}").write_bytes(bytes((number,)) + sample)
        atheris.Setup([sys.argv[0], *sys.argv[1:], home], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
