"""A loop over LiteLLM's asynchronous functions with Perdure's hook: python litellm_hook.py WIRE PERDURE PROMPT…

WIRE is `Chat`, `Stream`, `Messages` or `Responses`, and PERDURE where Perdure keeps things; `-` goes without. BASE_URL
says where the model is, and WINDOW its window in tokens. Each prompt is said in turn, in one conversation, and its
answer printed.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys

import litellm

from perdure.integrations.litellm import PerdureHook

WIRE, HOME, PROMPTS = sys.argv[1], sys.argv[2], sys.argv[3:]
URL, SESSION = os.environ["BASE_URL"], os.environ.get("SESSION", "loop")
logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
hook = PerdureHook(".", home=HOME, settings={"window_tokens": int(os.environ["WINDOW"])}) if HOME != "-" else None
litellm.callbacks = [hook] if hook else []
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
ABOUT = {"name": "run", "description": "Run a command in the project."}
CHAT = [{"type": "function", "function": {**ABOUT, "parameters": SCHEMA}}]
named = {"litellm_session_id": SESSION} if SESSION != "-" else {}


async def output_of(name: str, arguments: dict) -> str:
    if name == "recall":
        return await hook.recall(SESSION, arguments)
    process = await asyncio.create_subprocess_shell(arguments["command"], stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def chat(history: list) -> str:
    tools = [*CHAT, *(hook.tools if hook else ())]
    asked = {"model": "openai/bench", "messages": history, "tools": tools, "api_base": f"{URL}/v1", "api_key": "k"}
    if WIRE == "Stream":
        stream = await litellm.acompletion(**asked, stream=True, stream_options={"include_usage": True}, **named)
        answer = litellm.stream_chunk_builder([one async for one in stream], messages=history)
    else:
        answer = await litellm.acompletion(**asked, **named)
    said = answer.choices[0].message
    history.append(said)
    for call in said.tool_calls or []:
        content = await output_of(call.function.name, json.loads(call.function.arguments))
        history.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return "" if said.tool_calls else said.content


async def messages(history: list) -> str:
    tools = [{**ABOUT, "input_schema": SCHEMA}]
    answer = await litellm.anthropic.messages.acreate(
        model="anthropic/claude-bench", messages=history, system="You read files.", tools=tools, max_tokens=1_000,
        api_base=URL, api_key="k", **named,
    )  # fmt: skip
    history.append({"role": "assistant", "content": answer["content"]})
    calls = [one for one in answer["content"] if one["type"] == "tool_use"]
    results = [(one["id"], await output_of(one["name"], one["input"])) for one in calls]
    if calls:
        found = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results]
        history.append({"role": "user", "content": found})
    return "" if calls else answer["content"][0]["text"]


async def responses(history: list) -> str:
    tools = [{"type": "function", **ABOUT, "parameters": SCHEMA}]
    answer = await litellm.aresponses(
        model="openai/bench", input=history, instructions="You read files.", tools=tools, store=False,
        api_base=f"{URL}/v1", api_key="k", **named,
    )  # fmt: skip
    items = [one if isinstance(one, dict) else one.model_dump(exclude_none=True) for one in answer.output]
    history.extend(items)
    calls = [one for one in items if one["type"] == "function_call"]
    for one in calls:
        text = await output_of(one["name"], json.loads(one["arguments"]))
        history.append({"type": "function_call_output", "call_id": one["call_id"], "output": text})
    return "" if calls else items[-1]["content"][0]["text"]


async def main() -> None:
    turn = {"Messages": messages, "Responses": responses}.get(WIRE, chat)
    history: list = []
    for prompt in PROMPTS:
        history.append({"role": "user", "content": prompt})
        try:
            while not (said := await turn(history)):
                pass
            print(f"said: {said}", flush=True)
        except Exception as e:
            print(f"failed: {type(e).__name__} after {len(history)} messages", flush=True)
            break
    await asyncio.sleep(0.1)  # LiteLLM tells of answers in the background
    if hook:
        await hook.close()


asyncio.run(main())
