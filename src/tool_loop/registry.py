"""The registry's old address, for programs that import it from here: it lives in `toolbox/`."""

from .toolbox.registry import Approve, NotRun, Tool, ToolContext, ToolRegistry, canonical, parse_arguments, tool

__all__ = ["Approve", "NotRun", "Tool", "ToolContext", "ToolRegistry", "canonical", "parse_arguments", "tool"]
