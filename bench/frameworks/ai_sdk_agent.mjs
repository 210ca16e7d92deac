// Vercel's AI SDK: a loop of tools with generateText, over the wire that the second argument names.
import { execSync } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// The packages stand beside the program that was installed, not beside this file.
const require = createRequire(`${process.env.PACKAGES}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, stepCountIs, tool } = await load("ai");
const { z } = await load("zod");
const { createOpenAI } = await load("@ai-sdk/openai");
const { createAnthropic } = await load("@ai-sdk/anthropic");

const [prompt, wire, url] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: process.env.OPENAI_API_KEY });
const models = {
  chat: () => openai.chat("bench"),
  responses: () => openai.responses("bench"),
  messages: () => createAnthropic({ baseURL: `${url}/v1`, apiKey: process.env.OPENAI_API_KEY })("bench"),
};
const run = tool({
  description: "Run a command in the project.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command, { encoding: "utf8" }),
});
const { text } = await generateText({
  model: models[wire](),
  system: "You are a careful assistant.",
  prompt,
  tools: { run },
  stopWhen: stepCountIs(1000),
});
console.log(text);
