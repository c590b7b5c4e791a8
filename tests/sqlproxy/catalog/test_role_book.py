"""What a process remembers of the roles."""

from __future__ import annotations

import asyncio
from typing import Any

from sqlproxy.catalog import roles
from sqlproxy.catalog.roles import Role, RoleBook


def test_p10_a_look_from_before_a_change_is_not_remembered(monkeypatch: Any) -> None:
    """Who was thrown out of a group at this node would keep its privileges for another second."""
    answers: list[asyncio.Future[list[Role]]] = []

    async def all_roles(reader: Any) -> list[Role]:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    async def main() -> None:
        book = RoleBook(None, lambda: 0.0, 1.0)  # type: ignore[arg-type]
        looking = asyncio.create_task(book.look())
        await asyncio.sleep(0)
        book.forget()  # REVOKE was committed meanwhile
        answers[0].set_result([Role("ann", member_of=("boss",))])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answers[1].set_result([Role("ann")])
        assert (await looking).roles_of("ann") == {"ann"}
        assert (await book.look()).roles_of("ann") == {"ann"}
        assert len(answers) == 2, "it asks again though it knows"

    monkeypatch.setattr(roles, "all_roles", all_roles)
    asyncio.run(main())
