"""A progress bar of one's own: `on_event` sees every event and signal of the run, and the loop knows nothing of it."""

import sys

from tool_loop import Agent, Event, Limits, ModelReplied, ScriptedLLM, Signal, ToolCall, ToolReturned, workspace_tools

LIMITS = Limits(steps=4)


class Bar:
    steps, calls = 0, 0

    def __call__(self, happening: Event | Signal) -> None:
        self.steps += isinstance(happening, ModelReplied)
        self.calls += isinstance(happening, ToolReturned)
        done = 20 * self.steps // (LIMITS.steps or 1)
        sys.stderr.write(f"\r[{'#' * done:.<20}] step {self.steps} of {LIMITS.steps}, {self.calls} calls")


script = ScriptedLLM(
    ToolCall("1", "list_dir", "{}"),
    [ToolCall("2", "list_dir", '{"path": "."}'), ToolCall("3", "grep", '{"pattern": "tool"}')],
    "I have seen enough.",
)
answer = Agent(script, workspace_tools("."), limits=LIMITS, on_event=Bar()).run_sync("What is here?").answer
sys.stderr.write("\n")
print(answer)
