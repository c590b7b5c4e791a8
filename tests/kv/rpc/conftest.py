"""The tests of the protocol run on asyncio's loop and on uvloop, which production uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops, by the name that the test's id carries."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
