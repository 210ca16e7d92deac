"""pydantic-ai's agent, with its defaults (OPENAI_BASE_URL says where the model is)."""

import subprocess
import sys

from pydantic_ai import Agent, UsageLimits

agent = Agent(sys.argv[2], instructions="You are a careful assistant.")


@agent.tool_plain
def run(command: str) -> str:
    """Run a command in the project."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


print(agent.run_sync(sys.argv[1], usage_limits=UsageLimits(request_limit=None)).output)
