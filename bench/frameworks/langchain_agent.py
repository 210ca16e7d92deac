"""LangChain's agent, with its defaults (OPENAI_BASE_URL says where the model is)."""

import subprocess
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def run(command: str) -> str:
    """Run a command in the project."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout


agent = create_agent(ChatOpenAI(), tools=[run], system_prompt="You are a careful assistant.")
said = agent.invoke({"messages": [("user", sys.argv[1])]}, {"recursion_limit": 1_000})
print(said["messages"][-1].content)
