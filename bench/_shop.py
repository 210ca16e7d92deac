"""Sessions of a coding agent at a shop that doesn't exist, for pictures: drawn from a seed, the same on every machine.

What they say reads like work on a web shop: a person reports something, the agent searches, reads, runs commands, finds
the cause and mends it. Nothing of it is anybody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from perdure.logs.export import to_claude_code
from perdure.transcript.messages import Message, MessageId, ResponseId

Json = dict[str, Any]
FOLDER: Final = "/srv/shop"
MODEL: Final = "claude-sonnet-4-5"
SYSTEM: Final = "You are a careful engineer. You read before you change anything, and you run the tests afterwards."
BEGAN: Final = datetime(2026, 11, 2, 9, 0, tzinfo=UTC).timestamp()

_NAMES: Final = ("Bash", "Edit", "Grep", "Read", "Write")
TOOLS: Final = tuple(
    {"name": name, "description": f"{name}, as in other agents.", "input_schema": {"type": "object"}} for name in _NAMES
)
_VERBS: Final = "load save find check split merge count close open send round apply expire refund reserve ship".split()
_NOUNS: Final = (
    "order cart price coupon invoice payment customer parcel refund session basket product address rate slot batch"
).split()
_LEVELS: Final = ("INFO", "INFO", "INFO", "DEBUG", "WARN")


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work: what it is called, where it is, what the person says, what is found, and what they decide."""

    title: str
    module: str
    asked: str
    symptom: str
    cause: str
    fix: str
    decided: str


JOBS: Final = (
    Job("Checkout times out under load", "pool", "Since the sale began, the checkout times out. Find out why.",
        "waited 30002 ms for a connection (10 of 10 in use, 214 waiting)",
        "workers keep a connection while the payment provider answers",
        "give the connection back before the provider is called",
        "Good. Leave pool_size at 10: the database allows us no more."),
    Job("Prices with VAT are rounded twice", "tax", "Some invoices are a cent off. Where is it lost?",
        "invoice total 119.99 differs from the sum of its lines 120.00",
        "the tax is rounded for each line, and the sum is rounded again",
        "round once, at the end, half to even", "Yes. Never use floats for money, decimals only."),
    Job("Order mails arrive twice", "mail", "Customers get their order mail twice. Only some of them.",
        "job send_order_mail acknowledged after 61 s, delivered again",
        "the queue delivers again after 60 s, and the template takes longer with many lines",
        "acknowledge first, and keep a key for each mail that was sent", "Fine. Keep the keys for 30 days."),
    Job("Refund test fails at night", "refunds", "test_refund_window fails, but only in the nightly run.",
        "assert 14 == 13  # days left", "the test asks for today in local time, the code in UTC",
        "take the clock as an argument", "Do the same wherever a test reads the clock."),
    Job("Search is slow for two words", "search", "A search for two words takes seconds. One word is fast.",
        "seq scan on product_texts, 1,204,117 rows, 3,871 ms", "the index has single words, a phrase reads the table",
        "ask the index for both words and compare positions", "Accepted. No new dependency for this."),
    Job("Stock goes below zero", "stock", "We sold 7 of an article that we had 5 of.",
        "stock of article 4711 is -2 after reserve", "two reservations read the same number before one of them writes",
        "reserve with one UPDATE that checks the number", "Right. And a constraint in the table as well."),
    Job("Webhooks are replayed", "webhooks", "The provider says we answer webhooks with 500 now and then.",
        "duplicate key value violates unique constraint webhook_id", "a replayed webhook is inserted again",
        "answer 200 for one that is known", "Yes, but log it."),
    Job("Coupons add up", "coupons", "Two coupons at once made an order free.",
        "order 81223: discount 104 %", "each coupon is checked alone, their sum isn't",
        "apply them in order and stop at the minimum price", "The minimum price is 1 euro. Remember that."),
    Job("Gaps in invoice numbers", "invoices", "The tax office wants no gaps in our invoice numbers.",
        "sequence invoice_number jumped from 5518 to 5520", "a rollback takes the number with it",
        "take the number in the last statement before commit", "Good."),
    Job("Sessions grow too large", "sessions", "Some customers can't log in: the cookie is too large.",
        "cookie session of 4,311 bytes refused", "the whole cart is in the cookie",
        "keep an id in the cookie and the cart in the table", "Old cookies have to work for a week."),
    Job("Parcels without labels", "shipping", "A few parcels leave without a label.",
        "label service answered 202 and never again", "202 is taken for done",
        "poll until the label is there", "Every 5 s, for 2 minutes at most."),
    Job("Monthly report takes an hour", "reports", "The monthly report takes an hour. It took a minute last year.",
        "N+1: 48,211 queries of orders by customer", "it asks for each customer's orders by themselves",
        "one query with a join", "Thanks. Keep the old one behind a flag for one month."),
)  # fmt: skip


@dataclass(slots=True)
class Shop:
    """The work on it, message by message. `size` stretches what tools print."""

    seed: int
    size: float = 1.0
    chance: Random = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)

    def messages(self, jobs: Sequence[Job]) -> Iterator[Message]:
        for job in jobs:
            yield from self.job(job)

    def job(self, job: Job) -> Iterator[Message]:
        """One piece of work from what a person says to what they decide."""
        path = f"{FOLDER}/shop/{job.module}.py"
        yield self.user(job.asked)
        yield from self.calls(
            "I look at what the logs say, and where the code is.",
            ("Bash", {"command": f"grep -h {job.module} /var/log/shop/*.log | tail -n 400"}, self.log(job, 70)),
            ("Grep", {"pattern": rf"\b{job.module}\.", "path": f"{FOLDER}/shop"}, self.found(job, 60)),
        )
        yield from self.calls(f"Now {job.module}.py itself.", ("Read", {"file_path": path}, self.code(job.module, 34)))
        for neighbours in (_NOUNS[:3], _NOUNS[3:6], _NOUNS[6:8]):
            read = ((name, f"{FOLDER}/shop/{name}.py") for name in neighbours)
            reads = [("Read", {"file_path": one}, self.code(name, 26)) for name, one in read]
            yield from self.calls("And what calls it.", *reads)
        yield from self.calls(
            "I try to make it happen here.",
            ("Bash", {"command": f"python -m pytest -q tests/test_{job.module}.py -x"}, self.failed(job)),
        )
        edit = {"file_path": path, "old_string": f"    # {job.symptom}", "new_string": f"    # {job.fix}"}
        yield from self.calls(
            f"Found it: {job.cause}. So: {job.fix}.", ("Edit", edit, f"The file {path} has been updated.")
        )
        test = {"file_path": f"{FOLDER}/tests/test_{job.module}.py", "content": self.code(job.module, 90)}
        yield from self.calls(
            "A test of what was reported, and of its neighbours.", ("Write", test, f"File created: {test['file_path']}")
        )
        yield from self.calls(
            "Does it hold?", ("Bash", {"command": "python -m pytest -q"}, f"{300 + self.some(99)} passed in 21.4s")
        )
        yield self.said(f"All tests pass.\n\nCause: {job.cause}.\nFix: {job.fix}.\nLog: {job.symptom}")
        yield self.user(job.decided)
        yield self.said("Noted. I keep to that.")

    # --- messages ---

    def user(self, text: str) -> Message:
        return Message.of("user", text, id=self.identity("u"), at=self.at(90))

    def said(self, text: str, *uses: Json) -> Message:
        content = [{"type": "text", "text": text}, *uses]
        id = self.identity("a")
        return Message.of("assistant", content, id=id, at=self.at(20), model=MODEL, response_id=ResponseId(f"msg_{id}"))

    def calls(self, text: str, *calls: tuple[str, Json, str]) -> Iterator[Message]:
        """An answer that calls tools, and what they return."""
        ids = [f"toolu_{self.chance.getrandbits(64):016x}" for _ in calls]
        yield self.said(
            text,
            *(
                {"type": "tool_use", "id": id, "name": name, "input": given}
                for id, (name, given, _) in zip(ids, calls, strict=True)
            ),
        )
        results = [
            {"type": "tool_result", "tool_use_id": id, "content": result}
            for id, (_, _, result) in zip(ids, calls, strict=True)
        ]
        yield Message.of("user", results, id=self.identity("r"), at=self.at(5))

    def identity(self, kind: str) -> MessageId:
        self.number += 1
        return MessageId(f"{kind}{self.seed}-{self.number:05d}")

    def at(self, seconds: int) -> float:
        return BEGAN + self.seed * 86_400 + self.number * 25 + self.some(seconds) / 10

    # --- what tools print ---

    def some(self, below: int) -> int:
        return int(self.chance.random() * below)

    def pick(self, of: Sequence[str]) -> str:
        return of[self.some(len(of))]

    def log(self, job: Job, lines: int) -> str:
        return "\n".join(self._logged(job, number) for number in range(round(lines * self.size)))

    def _logged(self, job: Job, number: int) -> str:
        clock = f"2026-11-02T{9 + number // 60:02d}:{number % 60:02d}:{self.some(60):02d}.{self.some(1000):03d}Z"
        who = f"api-{1 + self.some(6)} {self.pick(_LEVELS):<5} {job.module}"
        if number % 9 == 4:
            return f"{clock} {who}: {job.symptom}"
        words = f"{self.pick(_VERBS)}_{self.pick(_NOUNS)} took {self.some(900)} ms"
        return f"{clock} {who}: {words} order={80_000 + self.some(9_999)} customer={self.some(99_999):05d}"

    def found(self, job: Job, lines: int) -> str:
        called = (
            f"{FOLDER}/shop/{self.pick(_NOUNS)}s.py:{1 + self.some(400)}:"
            f"    {self.pick(_NOUNS)} = {job.module}.{self.pick(_VERBS)}_{self.pick(_NOUNS)}({self.pick(_NOUNS)})"
            for _ in range(round(lines * self.size))
        )
        return "\n".join(called)

    def code(self, module: str, functions: int) -> str:
        lines = [f'"""What the shop does about {module}."""', "", "from shop import db, log", ""]
        for _ in range(round(functions * self.size)):
            verb, noun, other = self.pick(_VERBS), self.pick(_NOUNS), self.pick(_NOUNS)
            kind = noun.title()
            lines += [
                "",
                f"def {verb}_{noun}({noun}: {kind}, *, {other}: int = {self.some(90)}) -> {kind} | None:",
                f'    """{verb.title()} the {noun}, unless its {other} says otherwise."""',
                f"    found = db.{self.pick(_VERBS)}({noun}.{other}_id)",
                f"    if found is None or found.{other} > {other}:",
                f'        log.info("no {noun} for {other} %s", {other})',
                "        return None",
                f"    return found.{self.pick(_VERBS)}({self.pick(_NOUNS)}={self.some(999)})",
                "",
            ]
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, 1))

    def failed(self, job: Job) -> str:
        shown = "\n".join(f"E   {self._logged(job, number)}" for number in range(round(12 * self.size)))
        name = f"tests/test_{job.module}.py::test_{self.pick(_VERBS)}_{self.pick(_NOUNS)}"
        return f"Exit code 1\n{shown}\nFAILED {name} - AssertionError: {job.symptom}\n1 failed, 11 passed in 3.2s"


def client_log(jobs: Sequence[Job], *, seed: int, size: float, session: str) -> bytes:
    """A session as Claude Code logs it."""
    messages = Shop(seed, size).messages(jobs)
    title = jobs[0].title
    lines = to_claude_code(messages, session=session, cwd=FOLDER, version="2.1.40", branch="main", title=title)
    return b"".join(lines)
