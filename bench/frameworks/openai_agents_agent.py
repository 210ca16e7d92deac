"""OpenAI's Agents SDK, with its defaults (OPENAI_BASE_URL says where the model is)."""

import subprocess
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)
set_default_openai_api(sys.argv[2])


@function_tool
def run(command: str) -> str:
    """Run a command in the project."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


agent = Agent(name="worker", instructions="You are a careful assistant.", tools=[run])
print(Runner.run_sync(agent, sys.argv[1], max_turns=1_000).final_output)
