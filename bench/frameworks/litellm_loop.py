"""A loop over LiteLLM's `completion` (OPENAI_API_BASE says where the model is)."""

import json
import subprocess
import sys

import litellm

tool = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Run a command in the project.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    said = litellm.completion(model="openai/bench", messages=messages, tools=[tool]).choices[0].message
    messages.append(said)
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        command = json.loads(call.function.arguments)["command"]
        output = subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
print(said.content)
