"""A transfer of money: a large one waits for a person, who has a day to say yes or no; what was
withdrawn is refunded when the deposit is refused.

    python -m demo.samples.transfer   in a directory of its own; kill it, and start it again
"""

from __future__ import annotations

from dataclasses import dataclass

import kvorum
from demo.samples import outside
from kvorum import procedures

DAY_MS = 86_400_000


@dataclass
class Transfer:
    source: str
    target: str
    amount: int


def withdraw(ctx: kvorum.StepContext, account: str, amount: int) -> str:
    return outside.ask(ctx.token, f"withdraw {amount} from {account}")


def deposit(ctx: kvorum.StepContext, account: str, amount: int) -> str:
    if account == "closed":
        raise kvorum.Refused(f"account {account} is closed", code="CLOSED")
    return outside.ask(ctx.token, f"deposit {amount} to {account}")


def refund(ctx: kvorum.StepContext, account: str, amount: int) -> None:
    outside.ask(ctx.token, f"refund {amount} to {account}")


@kvorum.workflow("approved_transfer", timeout_ms=2 * DAY_MS)
async def transfer(flow: kvorum.Flow, wanted: Transfer) -> list[str]:
    if wanted.amount > 1_000:
        _, approved = await flow.wait_any(flow.signal("approved"), timeout_ms=DAY_MS)
        if not approved:
            raise kvorum.Refused("nobody approved it", code="NOT_APPROVED")
    patient = kvorum.retry(attempts=20, first_ms=500, never=["CLOSED"])
    return [
        await flow.step(withdraw, wanted.source, wanted.amount, undo=refund, retry=patient),
        await flow.step(deposit, wanted.target, wanted.amount, retry=patient),
    ]


if __name__ == "__main__":
    with procedures.open("transfers", procedures=[transfer]) as p:
        large, small, lost = (
            p.submit(transfer, Transfer("ann", target, amount), nonce=f"{target} {amount}")
            for target, amount in [("bob", 5_000), ("bob", 50), ("closed", 70)]
        )
        p.send(large, "approved", True, key="by the one who may")
        for procedure in (large, small, lost):
            try:
                print(procedure, p.wait(procedure))
            except kvorum.Refused as error:
                print(procedure, error.code, error.message)
