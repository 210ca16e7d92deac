"""A loop over Anthropic's SDK, streamed, as its clients for other hosts have it: PROMPT HOST URL."""

import subprocess
import sys

import anthropic

prompt, host, url = sys.argv[1:]
MODEL = "claude-sonnet-4-5"
clients = {
    "bedrock": lambda: anthropic.AnthropicBedrock(api_key="bedrock-key", aws_region="us-east-1", base_url=url),
    "mantle": lambda: anthropic.AnthropicBedrockMantle(api_key="bedrock-key", aws_region="us-east-1", base_url=url),
    "vertex": lambda: anthropic.AnthropicVertex(
        access_token="google-token", region="us-east5", project_id="bench", base_url=f"{url}/v1"
    ),
}
names = {
    "bedrock": f"us.anthropic.{MODEL}-20250929-v1:0",
    "mantle": f"anthropic.{MODEL}",
    "vertex": f"{MODEL}@20250929",
}
tool = {
    "name": "run",
    "description": "Run a command in the project.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
messages = [{"role": "user", "content": prompt}]
with clients[host]() as client:
    while True:
        with client.messages.stream(model=names[host], max_tokens=4_000, messages=messages, tools=[tool]) as stream:
            said = stream.get_final_message()
        messages.append({"role": "assistant", "content": said.content})
        calls = [block for block in said.content if block.type == "tool_use"]
        if not calls:
            break
        results = []
        for call in calls:
            command = call.input["command"]
            output = subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": output})
        messages.append({"role": "user", "content": results})
print(said.content[0].text)
