"""The SDK without `await` is what scripts/generate_sync.py makes of the asynchronous one."""

from __future__ import annotations

from scripts.generate_sync import TARGET, Generator


def test_the_synchronous_sdk_is_current() -> None:
    """A method that is added to one of the two, or changed, would be missing in the other."""
    assert TARGET.read_text() == Generator().source(), "run `make sync`"
