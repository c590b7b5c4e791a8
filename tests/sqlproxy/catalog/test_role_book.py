"""What a process remembers of the roles."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlproxy.catalog import grants, roles
from sqlproxy.catalog.roles import Role, RoleBook


def test_p10_a_look_from_before_a_change_is_not_remembered(monkeypatch: Any) -> None:
    """Who was thrown out of a group at this node would keep its privileges for another second."""
    answers: list[asyncio.Future[int]] = []

    async def rights_version(reader: Any) -> int:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    async def all_roles(reader: Any) -> list[Role]:
        return [Role("ann", member_of=("boss",) if len(answers) == 1 else ())]

    async def none(*_: Any) -> dict[str, Any]:
        return {}

    async def main() -> None:
        book = RoleBook(None, lambda: 0.0, 1.0)  # type: ignore[arg-type]
        looking = asyncio.create_task(book.look())
        await asyncio.sleep(0)
        book.forget()  # REVOKE was committed meanwhile
        answers[0].set_result(1)
        while len(answers) < 2:  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(0)
        answers[1].set_result(2)
        assert (await looking).roles_of("ann") == {"ann"}
        assert (await book.look()).roles_of("ann") == {"ann"}
        assert len(answers) == 2, "it asks again though it knows"

    for name, work in (("all_roles", all_roles), ("rights_version", rights_version)):
        monkeypatch.setattr(roles, name, work)
    monkeypatch.setattr(roles, "closed", none)
    monkeypatch.setattr(grants, "all_grants", none)
    asyncio.run(main())
