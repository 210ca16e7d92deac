"""What a tool is: a name, a description, an input with its schema, and a coroutine that answers a call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec
from anyio import to_thread

from perdure import prompts
from perdure.agent.permissions import PermissionRule, ToolEffects
from perdure.errors import RecordRefused
from perdure.ports.machine import PermissionSource as Let
from perdure.transcript.blocks import encode, raw_of, tool_problem
from perdure.transcript.messages import Message, MessageId

if TYPE_CHECKING:
    from perdure.agent.tool_context import ToolContext

_MOST_ERROR_CHARS = 1_000


class ToolInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call gives; each tool has its own. Unknown fields are refused, so that a slip isn't silently ignored."""


I = TypeVar("I", bound=ToolInput)  # noqa: E741 - the input of a tool


def output_text(data: bytes) -> str:
    """What a command wrote, as text: bytes that are no UTF-8 are marked."""
    return data.decode("utf-8", "replace")


class ToolRefused(Exception):
    """A tool can't do what was asked; the text goes to the model, which can only go on from what it reads."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call gives: a text, or blocks; `behind` are messages that follow the results.

    `refused_by`: it was never made, since the user (or a rule, a hook: `host`) said no. `is_users`: it is the user's
    answer. No tool sets these by its text.
    """

    content: str | list[dict[str, Any]]
    is_error: bool = False
    behind: tuple[Message, ...] = ()
    refused_by: Literal["user", "host"] | None = None
    is_users: bool = False

    @property
    def text(self) -> str:
        """Its text, for people and counts."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(block.get("text", f"[{block.get('type')}]")) for block in self.content)


@dataclass(slots=True)
class ToolInvocation:
    """One call. `partial` is what there is to say of it so far, should it be interrupted; `let`, who let it run."""

    id: str
    name: str
    arguments: dict[str, Any]
    prompt: MessageId
    partial: str = ""
    let: Let = "allowed"


class EngineTool(Protocol):
    """A tool that any loop can offer, such as `recall_tool`."""

    @property
    def definition(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Tool(Generic[I]):
    """One tool of an agent. Make one from a function with `Tool.of`.

    Attributes:
        name: as the model and permissions know it.
        input: what a call gives, as a type whose schema the model sees.
        run: answers a call.
        touches: what a call would do, for the permissions.
        rule: what would allow a call from now on.
        is_parallel: it only looks, so calls of it may run beside each other.
        is_watched: it may change files, so observers stand around it.
        description: for the model.
        engine: the engine's tool of the same name, if there is one; its definition is the tool's.

    Example:
        schema = {"type": "object", "properties": {}}
        clock = Tool.of(lambda given: "noon", name="clock", description="The time.", input_schema=schema)
        assert clock.definition["description"] == "The time."
    """

    name: str
    input: type[I]
    run: Callable[[ToolContext, ToolInvocation, I], Awaitable[ToolOutcome]]
    touches: Callable[[ToolContext, I], Awaitable[ToolEffects]] | None = None
    rule: Callable[[I], PermissionRule | None] | None = None
    is_parallel: bool = False
    is_watched: bool = False
    description: str = field(default="")
    engine: EngineTool | None = None

    @classmethod
    def of(
        cls,
        run: Callable[[dict[str, Any]], str | Awaitable[str]],
        *,
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        is_parallel: bool = False,
    ) -> Tool[Any]:
        """A tool from a function, for an agent.

        Args:
            run: gets the input of a call, an object, and gives the text of its result. It may be a coroutine; if it
                isn't, it runs in a thread. What it raises is the result, as an error, and the agent goes on.
            name: the tool's name, which permissions know it by.
            description: what it does, for the model.
            input_schema: the JSON schema of its input, an object.
            is_parallel: it only looks, so calls of it may run beside each other.

        Returns:
            The tool.

        Raises:
            RecordRefused: no API would take such a definition.

        Example:
            weather = Tool.of(
                lambda given: f"rain in {given['city']}",
                name="weather",
                description="The weather in a city.",
                input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            )
            assert weather.definition["name"] == "weather"
        """
        definition = {"name": name, "description": description, "input_schema": input_schema}
        if wrong := tool_problem(raw_of(definition, "the tool"), set()):
            raise RecordRefused(f"the tool {name!r:.60}: {wrong}")

        async def ran(context: ToolContext, use: ToolInvocation, given: GivenInput) -> ToolOutcome:
            if inspect.iscoroutinefunction(run):
                answer: Any = await run(given.given)
            else:
                answer = await to_thread.run_sync(run, given.given)
                answer = await answer if inspect.isawaitable(answer) else answer
            return ToolOutcome(answer if isinstance(answer, str) else encode(answer).decode())

        return _GivenTool(
            name=name,
            input=GivenInput,
            run=ran,
            is_parallel=is_parallel,
            description=description,
            schema=dict(input_schema),
        )

    @cached_property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it."""
        if self.engine is not None:
            return self.engine.definition
        text = self.description or prompts.source(f"tool_{_snake(self.name)}")
        return {"name": self.name, "description": text, "input_schema": schema_of(self.input)}

    def read(self, arguments: dict[str, Any]) -> I:
        """The input of a call; `ToolRefused` says what is wrong with it."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return msgspec.convert(given, self.input, strict=False)
        except msgspec.ValidationError as e:
            raise ToolRefused(
                f"Invalid input for {self.name}: {str(e)[:_MOST_ERROR_CHARS]}. Correct the input."
            ) from None


class GivenInput(ToolInput, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input of a call as it came."""

    given: dict[str, Any]


@dataclass(frozen=True)
class _GivenTool(Tool[GivenInput]):
    """A tool whose schema somebody wrote."""

    schema: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def definition(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "input_schema": self.schema}

    def read(self, arguments: dict[str, Any]) -> GivenInput:
        if missing := [name for name in self.schema.get("required", ()) if name not in arguments]:
            raise ToolRefused(
                f"Invalid input for {self.name}: {', '.join(map(str, missing))} missing. Correct the input."
            )
        return GivenInput(given=arguments)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def schema_of(kind: type[ToolInput]) -> dict[str, Any]:
    """The JSON schema of an input, without references, which smaller servers don't follow."""
    (top,), shared = msgspec.json.schema_components([kind], ref_template="{name}")
    plain = _inlined(top, shared)
    return {name: value for name, value in plain.items() if name != "title"}


def _inlined(node: Any, shared: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(one, shared) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        found = {n: v for n, v in shared[node["$ref"]].items() if n not in ("title", "description")}
        return _inlined({**found, **{n: v for n, v in node.items() if n != "$ref"}}, shared)
    options = [one for one in node.get("anyOf", ()) if one != {"type": "null"}]
    if len(options) == 1:  # an optional field: it may be left out, null needn't be offered
        rest = {n: v for n, v in node.items() if n not in ("anyOf", "default")}
        return _inlined({**options[0], **rest}, shared)
    return {n: _inlined(v, shared) for n, v in node.items() if not (n == "default" and v is None)}
