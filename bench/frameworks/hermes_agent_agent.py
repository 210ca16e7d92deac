"""hermes-agent with an engine for its context: python hermes_agent_agent.py ENGINE URL PROMPT…

ENGINE is `perdure`, or `compressor` for its own. HERMES_HOME is its home, which gets a configuration, and WINDOW the
model's in tokens. Each prompt is said in turn, in one conversation, and its answer printed.
"""

import logging
import os
import sys
from pathlib import Path

ENGINE, URL, PROMPTS = sys.argv[1], sys.argv[2], sys.argv[3:]
HOME = Path(os.environ["HERMES_HOME"])
HOME.mkdir(exist_ok=True)
HOME.joinpath("config.yaml").write_text(
    "plugins: {enabled: [perdure]}\n"
    f"context: {{engine: {ENGINE}}}\n"
    f"model: {{default: bench, provider: custom, base_url: {URL}/v1, context_length: {os.environ['WINDOW']}}}\n"
)
logging.basicConfig(level=logging.WARNING)

from hermes_cli.plugins import discover_plugins  # noqa: E402 - it reads its configuration when it is imported
from run_agent import AIAgent  # noqa: E402

discover_plugins()
agent = AIAgent(
    base_url=f"{URL}/v1",
    api_key="sk-not-a-key",
    provider="custom",
    model="bench",
    max_iterations=1_000,
    tool_delay=0.0,
    max_tokens=4_000,
    enabled_toolsets=["terminal", "context_engine"],
    quiet_mode=True,
    skip_context_files=True,
    skip_memory=True,
)
print(f"engine: {agent.context_compressor.name}", flush=True)
history = None
for prompt in PROMPTS:
    done = agent.run_conversation(prompt, conversation_history=history)
    history = done["messages"]
    print(f"said: {done['final_response']}", flush=True)
print(f"compressions: {agent.context_compressor.compression_count}")
