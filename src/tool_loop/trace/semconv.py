"""Every name that goes into a trace or a metric, in one table.

They follow OpenTelemetry's semantic conventions for generative AI, version 0.1.0 (the first release of
the repository open-telemetry/semantic-conventions-genai). All of it has the status "development",
but for `error.type`, `server.*` and `http.*`, which are stable: a later version of this package may
rename what a later version of the conventions renames. What they have no word for is under `tool_loop.`.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"

# --- operations: the first word of a span's name --------------------------------------------------

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

# --- attributes -----------------------------------------------------------------------------------

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"  # the run's id: the same over resumes and follow-ups
COMPACTED: Final = "gen_ai.conversation.compacted"  # never false: left out where it is not so
AGENT: Final = "gen_ai.agent.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
ERROR_TYPE: Final = "error.type"  # our kind of failure, the same word as in the journal
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_STATUS: Final = "http.response.status_code"

# Content: written only when it was asked for, as JSON, without keys.
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# --- ours -----------------------------------------------------------------------------------------

REASON: Final = "tool_loop.reason"  # "answered", "waiting", or the limit that stopped the run
STEPS: Final = "tool_loop.steps"
COST: Final = "tool_loop.cost_usd"
ATTEMPT: Final = "tool_loop.attempt"
WAIT: Final = "tool_loop.wait_seconds"
ALLOWED: Final = "tool_loop.approval.allowed"
CLEARED: Final = "tool_loop.compaction.cleared_results"
SUMMARISED: Final = "tool_loop.compaction.summarised"

RETRY_EVENT: Final = "tool_loop.retry"  # on a chat span: an attempt failed, and what was waited after it
RESUMED_EVENT: Final = "tool_loop.resumed"
APPROVAL_REQUESTED_EVENT: Final = "tool_loop.approval_requested"
APPROVAL_DECIDED_EVENT: Final = "tool_loop.approval_decided"
COMPACTED_EVENT: Final = "tool_loop.compacted"
LIMIT_EVENT: Final = "tool_loop.limit_reached"

# --- metrics --------------------------------------------------------------------------------------

CHAT_DURATION: Final = "gen_ai.client.inference.duration"
CHAT_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
AGENT_CHATS: Final = "gen_ai.invoke_agent.inference_calls"
AGENT_TOOLS: Final = "gen_ai.invoke_agent.tool_calls"
# Counters of what was spent, by the attribute of the span that holds the same number.
TOKEN_COUNTERS: Final = {
    INPUT_TOKENS: "gen_ai.client.inference.usage.input_tokens",
    OUTPUT_TOKENS: "gen_ai.client.inference.usage.output_tokens",
    CACHE_READ_TOKENS: "gen_ai.client.inference.usage.cache_read.input_tokens",
    CACHE_WRITE_TOKENS: "gen_ai.client.inference.usage.cache_write.input_tokens",
    REASONING_TOKENS: "gen_ai.client.inference.usage.reasoning.output_tokens",
}

SECONDS_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)

# --- the names of providers, by the end of their host's name --------------------------------------

PROVIDERS: Final = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "inference.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "api.deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.moonshot.cn": "moonshot_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
}


def provider(host: str) -> str:
    """The conventions' name for whoever is behind a host; the host itself where they have none."""
    found = next((name for end, name in PROVIDERS.items() if host == end or host.endswith(f".{end}")), "")
    return found or host or "_OTHER"
