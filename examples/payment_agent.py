"""An agent whose process is killed during a payment: a step in doubt, and three ways to resolve it.

    python examples/payment_agent.py retry     # repeat it: the bank recognises the order by its key
    python examples/payment_agent.py verify    # check the bank's books first
    python examples/payment_agent.py ask       # ask a person

The agent first asks for approval: the order is its `ctx.state`, committed with the question. In all three ways the
payment is made once. The bank is a file; the agent's process kills itself with SIGKILL after the bank has written the
payment and before it returns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keelbolt.kernel import new_id
from keelbolt.tasks import Done, Message, Part, Role, Sent, TaskContext, TaskEngine, TaskSettings, Worker

LEASE_SECONDS = 1.0


# ---------------------------------------------------------------------------------------------------------- the bank


@dataclass(frozen=True)
class Bank:
    """An external system with its own records."""

    books: Path

    def payments(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.books.read_text().splitlines()] if self.books.exists() else []

    def pay(self, key: str, amount: int) -> str:
        if self.find(key, amount) is None:  # a known order is not paid again
            with self.books.open("a") as books:
                books.write(json.dumps({"key": key, "amount": amount}) + "\n")
            os.kill(os.getpid(), signal.SIGKILL)  # paid, but the result is not recorded
        return f"receipt for {amount}"

    def find(self, key: str, amount: int) -> Done | None:
        return Done(f"found in the books: {amount}") if key in [payment["key"] for payment in self.payments()] else None


# --------------------------------------------------------------------------------------------------------- the agent


@dataclass(frozen=True)
class Order:
    """The order that the user approves or refuses."""

    amount: int


class Payer(Worker):
    """Asks, then pays in one step. The ways differ only in how they resolve doubt."""

    def __init__(self, bank: Bank, way: str) -> None:
        self.bank = bank
        self.way = way

    async def handle(self, ctx: TaskContext) -> None:
        order = ctx.state_as(Order)
        if order is None:
            order = Order(int(ctx.user_text))
            await ctx.request_input(f"Pay {order.amount}?", state=order)
            return
        if ctx.user_text != "yes":
            await ctx.reject("The payment was not approved.")
            return
        async with ctx.shielded(30):  # a cancel takes effect after the payment
            receipt = await self._pay(ctx, order.amount)
        await ctx.complete(f"{receipt}, at attempt {ctx.attempt}")

    async def _pay(self, ctx: TaskContext, amount: int) -> str:
        order = ctx.idempotency_key("pay"), amount
        receipt: str
        match self.way:
            case "retry":
                receipt = await ctx.step("pay", self.bank.pay, *order, idempotent=True)
            case "verify":
                receipt = await ctx.step("pay", self.bank.pay, *order, probe=self.bank.find)
            case _:
                receipt = await ctx.step("pay", self.bank.pay, *order)
        return receipt


async def work(url: str, bank: Bank, way: str) -> None:
    settings = TaskSettings.of(lease_seconds=LEASE_SECONDS)
    async with TaskEngine.on(url, Payer(bank, way), settings=settings):
        await asyncio.Event().wait()


# -------------------------------------------------------------------------------------------------------- the client


async def order(url: str, bank: Bank, way: str) -> None:
    command = [sys.executable, __file__, way, "--work", url, "--books", str(bank.books)]
    async with TaskEngine.on(url) as engine:
        sent = await engine.tasks.send(say(Part(text="40")))
        first = await asyncio.create_subprocess_exec(*command)
        asked = await engine.tasks.settled(sent)
        print("the agent asks for approval; the answer is yes")
        sent = await engine.tasks.send(say(Part(text="yes"), asked.task_id))
        print(f"the agent's process exited with {await first.wait()}; the bank has {len(bank.payments())} payment")
        second = await asyncio.create_subprocess_exec(*command)
        try:
            await follow(engine, sent)
        finally:
            second.terminate()
            await second.wait()
    print(f"the bank has {len(bank.payments())} payment")


async def follow(engine: TaskEngine, sent: Sent) -> None:
    stored = await engine.tasks.settled(sent)
    task = await engine.store.task(stored)
    if stored.state.paused and task.status.message is not None:
        print(f"the agent asks: {task.status.message.text}")
        answer = Part(data={"answer": "done", "result": "receipt that the person found"})
        stored = await engine.tasks.settled(await engine.tasks.send(say(answer, stored.task_id)))
        task = await engine.store.task(stored)
    print(f"{stored.state.name}: {task.artifacts[0].parts[0].text}")


def say(part: Part, task_id: str | None = None) -> Message:
    return Message(message_id=new_id(), role=Role.user, parts=[part], task_id=task_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("way", nargs="?", default="verify", choices=["retry", "verify", "ask"])
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--books", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        asyncio.run(work(options.work, Bank(options.books), options.way))
        return
    with tempfile.TemporaryDirectory(prefix="keelbolt-example-") as directory:
        place = Path(directory)
        asyncio.run(order(f"sqlite:///{place / 'tasks.db'}", Bank(place / "books.jsonl"), options.way))


if __name__ == "__main__":
    main()
