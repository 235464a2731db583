// One agent as a process of its own: `client.mjs CALL GATEWAY`. It makes one call with the client's own retries as they come,
// and prints what became of it as one JSON line.

import { createOpenAI } from "@ai-sdk/openai";
import { Octokit } from "@octokit/core";
import { paginateRest } from "@octokit/plugin-paginate-rest";
import { retry } from "@octokit/plugin-retry";
import { throttling } from "@octokit/plugin-throttling";
import { generateText } from "ai";

const [, , name, gateway] = process.argv;

function octokit() {
  const Kit = Octokit.plugin(paginateRest, retry, throttling);
  const again = (_wait, _options, _kit, times) => times < 2;
  return new Kit({
    baseUrl: `${gateway}/github`,
    auth: "ghp_not_a_real_token",
    log: { debug() {}, info() {}, warn() {}, error() {} },
    throttle: { onRateLimit: again, onSecondaryRateLimit: again },
  });
}

const calls = {
  async "octokit-get"() {
    return (await octokit().request("GET /repos/{owner}/{repo}", { owner: "o", repo: "r" })).data;
  },
  async "octokit-create"() {
    const issue = { owner: "o", repo: "r", title: "once" };
    return (await octokit().request("POST /repos/{owner}/{repo}/issues", issue)).data;
  },
  async "octokit-pages"() {
    const issues = await octokit().paginate("GET /repos/{owner}/{repo}/issues", { owner: "o", repo: "r" });
    return issues.map((issue) => issue.number);
  },
  async ai() {
    const openai = createOpenAI({ apiKey: "sk-test-not-a-real-key", baseURL: `${gateway}/openai/v1` });
    return (await generateText({ model: openai.chat("gpt-test"), prompt: "May I?" })).text;
  },
};

let result;
try {
  result = { value: await calls[name]() };
} catch (error) {
  const last = error.lastError ?? error;
  const body = last.response?.data ?? last.responseBody ?? null;
  result = { error: error.name, status: last.status ?? last.statusCode ?? null, message: error.message, body };
}
console.log(JSON.stringify(result));
