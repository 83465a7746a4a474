"""Hundreds of tools without hundreds of schemas in each request.

Two hundred schemas are 62,270 characters in front of every request, and models choose badly among them.
`Deferred` shows a few and a search: what the search finds is told as a result, so it is on record and a
resume has it, and the first bytes of a request stay the same for the whole run. It is a wrapper of the
tools port, and the loop cannot tell: what `use_tool` names is what is validated, approved, fingerprinted,
limited and run, so that nothing can hide behind it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from tool_loop.errors import ToolError
from tool_loop.events import ToolCall, ToolReturned
from tool_loop.ports import Effect, Preview, Tools, ToolSpec
from tool_loop.toolbox.registry import Approve, Tool, ToolRegistry, parse_arguments

# Above this many tools the schemas cost more than a search does.
THRESHOLD: Final = 30
FOUND: Final = 8

_FIND: Final = "find_tools"
_USE: Final = "use_tool"
_LISTED: Final = 60
_WORD: Final = re.compile(r"[a-z]{3,}|[0-9]+")
_HUMP: Final = re.compile(r"([a-z])([A-Z])")


def deferred(
    tools: Iterable[Tool | Callable[..., Any]],
    *,
    approve: Approve = "never",
    keep: Iterable[str] = (),
    threshold: int = THRESHOLD,
) -> Tools:
    """The tools as a port for `Agent`: a registry of them all, or `Deferred` when there are more than `threshold`.

    `keep` names the tools that are always shown. `approve` is the policy for calls, as `Agent` has it.
    """
    registry = ToolRegistry(tools, approve=approve)
    return registry if len(registry) <= threshold else Deferred(registry, keep)


class Deferred:
    """A registry of which only `keep` and a search are shown. Raises UsageError for a clash of names."""

    def __init__(self, tools: ToolRegistry, keep: Iterable[str] = ()) -> None:
        self._inner = tools
        self._keep = frozenset(keep)
        self._hidden = {tool.name: tool for tool in tools if tool.name not in self._keep}
        self._index = {name: _words(_text_of(tool)) for name, tool in self._hidden.items()}
        self._own = ToolRegistry(self._door())
        ToolRegistry([*tools, *self._own])  # two tools of one name are refused, with the usual words

    def _door(self) -> list[Tool]:
        groups = ", ".join(sorted({name.partition("_")[0] for name in self._hidden}))[:200]
        query = {"query": {"type": "string", "description": "what the tool should do, in a few words"}}
        use = {"name": {"type": "string"}, "arguments": {"type": "object"}}
        return [
            Tool(
                _FIND,
                f"Search {len(self._hidden)} more tools ({groups}). Returns names, descriptions and parameters.",
                {"type": "object", "properties": query, "required": ["query"]},
                self._find,
                effect="read",
            ),
            Tool(
                _USE,
                f"Call a tool that {_FIND} returned, by its name and with its arguments.",
                {"type": "object", "properties": use, "required": ["name", "arguments"]},
                _never,
                effect="read",
            ),
        ]

    def _find(self, query: str) -> str:
        asked = _words(query)
        ranked = sorted(self._hidden, key=lambda name: (-len(asked & self._index[name]), name))
        best = [name for name in ranked[:FOUND] if asked & self._index[name]]
        if not best:
            names = ", ".join(list(self._hidden)[:_LISTED])
            raise ToolError(
                f"no tool has to do with {query!r}", kind="not_found", hint=f"try other words; some of them: {names}"
            )
        specs = [self._hidden[name].spec for name in best]
        return json.dumps(
            [{"name": spec.name, "description": spec.description, "parameters": spec.parameters} for spec in specs],
            ensure_ascii=False,
        )

    def _meant(self, call: ToolCall) -> tuple[ToolRegistry, ToolCall]:
        """Who runs the call, and the call that is meant. One that names no tool is refused by the door."""
        if call.name == _USE:
            try:
                asked = parse_arguments(call.arguments)
                arguments = json.dumps(asked["arguments"], ensure_ascii=False)
                if (
                    isinstance(asked["arguments"], dict)
                    and isinstance(asked["name"], str)
                    and set(asked) <= {"name", "arguments"}
                ):
                    return self._inner, replace(call, name=asked["name"], arguments=arguments)
            except (ToolError, KeyError):
                pass
        return (self._own if call.name in self._own else self._inner), call

    # --- the port ---------------------------------------------------------------------------------

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in self._inner.specs() if spec.name in self._keep) + self._own.specs()

    def effect(self, name: str) -> Effect | None:
        # The port knows names only, and what is behind this one may be anything.
        if name == _USE:
            return None
        return (self._own if name in self._own else self._inner).effect(name)

    def polls(self, name: str) -> bool:
        return self._inner.polls(name)

    def needs_approval(self, call: ToolCall) -> bool:
        registry, meant = self._meant(call)
        return registry.needs_approval(meant)

    def fingerprint(self, call: ToolCall, preview: Preview | None = None) -> str:
        registry, meant = self._meant(call)
        return registry.fingerprint(meant, preview)

    def preview(self, call: ToolCall) -> Preview | None:
        registry, meant = self._meant(call)
        seen = registry.preview(meant)
        if call.name != _USE or meant is call:
            return seen
        # One name stands for all the tools behind it: a permission for the run is for one of those.
        if seen is not None:
            return replace(seen, rule=seen.rule and f"{meant.name}: {seen.rule}")
        tool = self._hidden.get(meant.name)
        return Preview(rule=f"any call of {meant.name}") if tool is not None and tool.preview is None else None

    def refuse(self, call: ToolCall) -> ToolReturned | None:
        registry, meant = self._meant(call)
        return registry.refuse(meant)

    async def probe(self, call: ToolCall, **given: Any) -> ToolReturned | bool | None:
        registry, meant = self._meant(call)
        return await registry.probe(meant, **given)

    async def run(self, call: ToolCall, **given: Any) -> ToolReturned:
        registry, meant = self._meant(call)
        return await registry.run(meant, **given)


def _never(name: str, arguments: dict[str, Any]) -> str:
    raise ToolError(f"{name!r} with {len(arguments)} arguments is no call", kind="invalid_arguments")


def _text_of(tool: Tool) -> str:
    return f"{tool.name} {tool.description} {' '.join(tool.spec.parameters.get('properties', {}))}"


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_HUMP.sub(r"\1 \2", text).lower()))
