"""A server that refuses a word of a tool's schema gets the tools without it, and validation stays as it is."""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import pytest
from pydantic import AnyUrl, SecretStr

from tests.kit.dialects import ALL, Dialect, Said, json_reply
from tool_loop import Agent, Tool, tool
from tool_loop.errors import ProviderError
from tool_loop.events import Notice


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@tool(effect="read")
def look(
    day: dt.date, url: AnyUrl, secret: SecretStr, level: Level, pair: tuple[int, str], size: Literal[1, 2] = 1
) -> str:
    """Look."""
    return "seen"


FOREIGN = Tool(
    "find",
    "Find.",
    {
        "type": "object",
        "properties": {"by": {"$ref": "#/$defs/By"}, "n": {"type": ["integer", "null"], "exclusiveMinimum": 0}},
        "anyOf": [{"required": ["by"]}, {"required": ["n"]}],
        "$defs": {"By": {"type": "object", "propertyNames": {"pattern": "^x"}}},
    },
    lambda **_: "found",
)


def schema_words(part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, list):
        for one in part:
            yield from schema_words(one)
    if isinstance(part, dict):
        for key, value in part.items():
            yield key, value
            yield from (pair for one in value.values() for pair in schema_words(one)) if key in (
                "properties", "$defs"
            ) else schema_words(value)  # fmt: skip


def complaint(body: dict[str, Any], kind: str) -> str:  # noqa: C901
    """What a server of this kind says against the tools of a request, in the words of the public reports."""
    shown = [one.get("function", one) for one in body["tools"]]
    for n, one in enumerate(shown):
        schema = one.get("parameters") or one.get("input_schema")
        words = list(schema_words(schema))
        place = f"tools[0].function_declarations[{n}].parameters.properties[0].value"
        for key, value in words:
            if kind == "gemini" and key in ("prefixItems", "propertyNames", "exclusiveMinimum", "writeOnly", "$ref"):
                return f'Invalid JSON payload received. Unknown name "{key}" at "{place}": Cannot find field.'
            if kind == "gemini" and key == "enum" and any(not isinstance(one, str) for one in value):
                return f"Invalid value at '{place}.enum[0]' (TYPE_STRING), {value[0]}"
            if kind == "gemini" and key == "format" and value not in ("enum", "date-time"):
                return f"GenerateContentRequest.{place}.format: only 'enum' and 'date-time' are supported"
            if kind == "vllm" and key == "format" and value == "uri":
                return "Grammar error: Unknown format: uri"
            if kind == "vllm" and key == "prefixItems":
                return "The provided JSON schema contains features not supported by xgrammar."
            if kind == "strict" and key in ("minItems", "maxItems", "default", "anyOf", "prefixItems"):
                return f"Unsupported JSON schema fields: {{'{key}'}}"
        if kind == "anthropic" and "anyOf" in schema:
            return f"tools.{n}.custom.input_schema: does not support oneOf, allOf, or anyOf at the top level"
        if kind == "kimi" and "anyOf" in schema and "type" in schema:
            return "tools.function.parameters is not a valid moonshot flavored json schema"
    return ""


def picky(dialect: Dialect, kind: str, status: int = 400, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A model whose server refuses by `complaint`, and the requests it got."""
    got: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        got.append(body)
        said = complaint(body, kind)
        return json_reply(dialect.error(said), status) if said else json_reply(dialect.whole(Said("done")))

    settings: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:9", "api_key": "k", "stream": False}
    return dialect.make(http=httpx2.MockTransport(answer), **settings | options), got


@pytest.mark.parametrize("dialect", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", ["gemini", "vllm", "strict", "anthropic", "kimi"])
@pytest.mark.parametrize("status", [400, 500])
def test_a_refused_word_is_said_instead_and_the_run_goes_on(dialect: Dialect, kind: str, status: int) -> None:
    llm, got = picky(dialect, kind, status)
    notices: list[str] = []
    told = lambda e: notices.append(e.text) if isinstance(e, Notice) else None  # noqa: E731

    agent = Agent(llm, [look, FOREIGN], retry=None, on_event=told)

    assert agent.run_sync("go").answer == "done"
    assert agent.run_sync("go").answer == "done"
    assert len(got) == 2 + len(notices)  # what was learnt is kept
    assert 1 <= len(notices) <= 2


@pytest.mark.parametrize(
    "options",
    [{"model": "google/gemini-3-pro"}, {"base_url": "https://generativelanguage.googleapis.com/v1beta/openai"}],
)
def test_gemini_is_known_and_never_gets_them(options: dict[str, Any]) -> None:
    llm, got = picky(ALL[0], "gemini", **options)

    assert Agent(llm, [look, FOREIGN], retry=None).run_sync("go").answer == "done"
    assert len(got) == 1


def test_other_servers_keep_what_helps_their_grammars() -> None:
    llm, got = picky(ALL[0], "")

    Agent(llm, [look], retry=None).run_sync("go")

    fields = got[0]["tools"][0]["function"]["parameters"]["properties"]
    assert fields["level"]["enum"] == [1, 2]
    assert "prefixItems" in fields["pair"]


def test_a_refusal_that_fewer_words_do_not_cure_is_the_error_it_is() -> None:
    server = ALL[0].llm(*[json_reply(ALL[0].error("tools[0]: I do not like this schema"), 400)] * 5)

    with pytest.raises(ProviderError):
        Agent(server.llm, [look], retry=None).run_sync("go")

    assert len(server.got) == 3
