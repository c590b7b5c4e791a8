"""A procedure for the demo: book a seat in three steps, of which the last one fails; what was done
is undone.

Every step's writes commit together with the step itself, so a crash between any two of them leaves
nothing half done.
"""

from __future__ import annotations

from typing import Any

import kvorum

NAMESPACE, TABLE = "demo", "bookings"


@kvorum.procedure("demo.book_seat", locks=lambda a: [kvorum.exclusive(f"seat/{a['seat']}")])
class BookSeat:
    """args: {"seat", "passenger", "card": "good"|"declined"}"""

    @kvorum.step(first=True, undo="free")
    async def reserve(self, ctx: Any) -> Any:
        seats = ctx.txn.table(NAMESPACE, TABLE)
        if await seats.get(f"seat/{ctx.args['seat']}") is not None:
            return kvorum.fail("SEAT_TAKEN", f"seat {ctx.args['seat']} is taken")
        await seats.put(f"seat/{ctx.args['seat']}", ctx.args["passenger"].encode())
        return kvorum.next("ticket")

    @kvorum.step(undo="void")
    async def ticket(self, ctx: Any) -> Any:
        await ctx.txn.table(NAMESPACE, TABLE).put(f"ticket/{ctx.args['seat']}", b"issued")
        return kvorum.next("pay")

    @kvorum.step
    async def pay(self, ctx: Any) -> Any:
        if ctx.args["card"] == "declined":
            return kvorum.fail("CARD_DECLINED", "the card was declined")
        await ctx.txn.table(NAMESPACE, TABLE).put(f"paid/{ctx.args['seat']}", b"yes")
        return kvorum.done({"seat": ctx.args["seat"]})

    @kvorum.undo
    async def void(self, ctx: Any) -> None:
        await ctx.txn.table(NAMESPACE, TABLE).delete(f"ticket/{ctx.args['seat']}")

    @kvorum.undo
    async def free(self, ctx: Any) -> None:
        await ctx.txn.table(NAMESPACE, TABLE).delete(f"seat/{ctx.args['seat']}")
