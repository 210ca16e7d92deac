"""The Claude Agent SDK with Perdure in it: python claude_agent_sdk_agent.py HOME PROMPT…

ANTHROPIC_BASE_URL says where the model is, and HOME is where Perdure keeps things; `-` goes without Perdure. Each
prompt is said in turn, and its answer printed. A prompt `resume` goes on in a new process of the SDK's, from the store
alone: its own transcripts are deleted.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

from perdure.integrations.claude_agent_sdk import PerdureMemory

HOME, PROMPTS = sys.argv[1], sys.argv[2:]
CONFIG = Path(os.environ["CLAUDE_CONFIG_DIR"])


async def said(options: ClaudeAgentOptions, prompts: list[str]) -> str:
    session = ""
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    session = message.session_id
                    print(f"{'error' if message.is_error else 'ok'}: {message.result}", flush=True)
    return session


async def main() -> None:
    options = ClaudeAgentOptions(permission_mode="bypassPermissions", setting_sources=[])
    at = PROMPTS.index("resume") if "resume" in PROMPTS else len(PROMPTS)
    if HOME == "-":
        await said(options, PROMPTS)
        return
    async with PerdureMemory(".", home=HOME) as memory:
        session = await said(memory.options(options), PROMPTS[:at])
    if PROMPTS[at:]:
        shutil.rmtree(CONFIG / "projects")
        options.resume = session
        async with PerdureMemory(".", home=HOME) as memory:
            await said(memory.options(options), PROMPTS[at + 1 :])


asyncio.run(main())
