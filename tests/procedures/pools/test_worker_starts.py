"""What `kvorum worker` says before it works: modules that cannot be had, nodes that are away."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kv.base.adapters import LoopTimers, SystemRng
from kv.base.errors import InvalidArgument, Refused, Unavailable
from kvorum.programs.worker import reach
from kvorum.steps.modules import declared, load_types
from kvorum.testing.simulation import loop as simloop


@pytest.mark.parametrize(
    ("text", "said", "not_said"),
    [
        ("import sys; sys.exit(0)", r"sys.exit\(0\)", "working directory"),
        ("import no_such_dependency", "it needs no_such_dependency", "working directory"),
        ("from math import no_such", "ImportError", "working directory"),
        (None, "looked for in the working directory", "it needs"),
    ],
)
def test_u1_a_module_that_cannot_be_imported(
    text: str | None, said: str, not_said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which module it is and what to do; one that leaves the process does not end it silently."""
    name = f"worker_module_{abs(hash((text, str(tmp_path))))}"
    if text is not None:
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for import_them in (load_types, declared):
        with pytest.raises(InvalidArgument, match=said) as refused:
            import_them([name])
        assert name in refused.value.message
        assert not_said not in refused.value.message


def test_u1_a_worker_waits_for_the_first_node(caplog: pytest.LogCaptureFixture) -> None:
    """Started before the nodes it waits, and says so; what waiting does not cure ends it."""
    answers: list[Exception | str] = [Unavailable("x", code="UNREACHABLE")] * 5 + ["client"]  # type: ignore[list-item]

    async def connect(addresses: Any, **_: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main(loop: simloop.SimLoop) -> None:
        timers = LoopTimers(loop)
        found: Any = await reach([("h", 1)], timers, SystemRng(), connect)
        assert found == "client"
        assert 2.5 <= loop.time() <= 5.5
        answers.append(Refused("another cluster"))
        with pytest.raises(Refused):
            await reach([("h", 1)], timers, SystemRng(), connect)

    with caplog.at_level(logging.WARNING):
        simloop.run(main, 0)
    assert caplog.text.count("no node answers") == 5
