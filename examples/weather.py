"""One question, two tools. Runs offline with a script, and for real when OPENAI_API_KEY or OPENAI_BASE_URL is set."""

import os

from tool_loop import ScriptedLLM, ToolCall, calculator, run_agent, tool


@tool(effect="read")
def get_weather(city: str) -> str:
    """Current weather for a city."""
    return f"It is 20C and sunny in {city}."  # a real one would ask a service


script = ScriptedLLM(
    ToolCall("1", "get_weather", '{"city": "Berlin"}'),
    ToolCall("2", "calc", '{"expression": "15 * 20"}'),
    "15 times the temperature in Berlin is 300.",
)
real = os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")
question = "What is 15 times the temperature in Berlin if it is 20C there?"
print(run_agent(question, [get_weather, calculator], max_steps=5, llm=None if real else script))
