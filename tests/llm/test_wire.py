"""The corpus: what providers really send, and what a correct client makes of it.

Each case is served over a real socket and read through the real HTTP stack. `WIRE_CORPUS` names
another folder of the same format (with `recorded/` and `quirks/` in it, either may be missing).

Where a case has an `alt`, both pass here; what the package does is said below.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.wire_server import WireServer, served
from tool_loop.errors import ProviderError, ToolLoopError
from tool_loop.events import ModelReplied, RunStarted, TextDelta, ToolCall
from tool_loop.llm.errors.body import read_error
from tool_loop.llm.http.transport import Timeouts
from tool_loop.llm.retry import Retrying, RetryPolicy
from tool_loop.ports import Request, ToolSpec
from tool_loop.state import State
from tool_loop.toolbox.registry import Tool, ToolRegistry
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript, UserMessage, repaired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tool_loop.ports import LLM

HERE = Path(__file__).parents[1]
SHARED = HERE.parent.parent / "shared" / "wire"

# Where the corpus leaves a choice, the package does what `expect` says, in every case, but for two
# details. A refusal is the visible text of its reply, with stop "refusal": an empty answer would hide
# it. And control tokens that leaked into the name of a real tool are cut off, which guesses nothing.

DIALECTS = {
    "chat": ("tool_loop.llm.chat.model", "OpenAIChat", "/v1"),
    "responses": ("tool_loop.llm.responses.model", "OpenAIResponses", "/v1"),
    "messages": ("tool_loop.llm.anthropic.model", "AnthropicMessages", ""),
}


def corpus() -> Iterator[Any]:
    given = os.environ.get("WIRE_CORPUS")
    folders = (
        {name: Path(given) / name for name in ("recorded", "quirks")}
        if given
        else {
            "recorded": SHARED / "recorded",
            "quirks": HERE / "data" / "wire" / "quirks",
            "local": HERE / "data" / "wire" / "local",  # the other two dialects of the server in llamacpp/
        }
    )
    for name, folder in folders.items():
        if not folder.is_dir():
            why = f"no folder {name}/ with recorded exchanges here; they belong to others and are read in place"
            yield pytest.param(None, id=f"{name}/absent", marks=pytest.mark.skip(reason=why))
        for path in sorted(folder.glob("*.json")):
            yield pytest.param(path, id=f"{name}/{path.stem}")


@pytest.mark.parametrize("path", list(corpus()))
def test_a_reply_of_the_corpus_is_read_as_a_correct_client_reads_it(path: Path) -> None:
    case = json.loads(path.read_text("utf-8"))
    expect = case["expect"]

    if expect["outcome"] == "request":
        seen = asyncio.run(asyncio.wait_for(request_of(case), 30))
        faults = [seen] if isinstance(seen, str) else rule_faults(seen, expect["checks"])
        assert not faults
        return
    seen = asyncio.run(asyncio.wait_for(exchange(case), 30))

    faults = [wrong(seen, one, expect) for one in (expect, *expect.get("alt", ()))]
    assert not all(faults), faults[0]


# --- asking -----------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What came of a case: a reply as the loop would record it, or an error."""

    reply: ModelReplied | None
    raw: ModelReplied | None
    error: ProviderError | None
    streamed: str
    waits: list[float]
    bodies: list[dict[str, Any]]
    arguments: list[Any]
    follow_up: dict[str, Any] | None


def llm_of(case: dict[str, Any], url: str) -> LLM:
    module, name, path = DIALECTS[case["api"]]
    make = getattr(importlib.import_module(module), name)
    settings: dict[str, Any] = {"stream": bool(case.get("stream")), "timeouts": Timeouts(idle=5)}
    sent = case.get("request") or {}
    for name in ("max_tokens", "max_completion_tokens"):
        if case["api"] == "chat" and name in sent:
            settings |= {"max_output_tokens": sent[name], "token_param": name}
    limit = {"responses": "max_output_tokens", "messages": "max_tokens"}.get(case["api"], "")
    if limit in sent:
        settings[limit] = sent[limit]
    settings |= refused_setting(case)
    if "mistral" in str(case.get("given", {}).get("provider_option", "")):
        settings["tool_ids"] = "mistral"
    llm: LLM = make(model=case.get("model") or "test-model", base_url=url + path, api_key="key-of-the-test", **settings)
    return llm


REFUSED_SETTINGS: dict[str, dict[str, Any]] = {
    "max_tokens": {"max_output_tokens": 100},
    "max_completion_tokens": {"max_output_tokens": 100, "token_param": "max_completion_tokens"},
    "temperature": {"temperature": 0.5},
    "stream_options": {"stream_options": True},
    "parallel_tool_calls": {"parallel_tool_calls": True},
}


def refused_setting(case: dict[str, Any]) -> dict[str, Any]:
    """Where a server refuses a setting and then takes the request, it was one that had been asked for."""
    if case["api"] != "chat" or "responses" not in case:
        return {}
    said = read_error(case["responses"][0].get("body_text", ""))
    return REFUSED_SETTINGS.get(said.param.split(".")[0], {})


def request_for(case: dict[str, Any]) -> Request:
    sent = case.get("request") or {}
    messages = sent.get("messages") if isinstance(sent.get("messages"), list) else None
    tools = tuple(specs(sent.get("tools") or []))
    transcript = (
        transcript_of(messages, "") if messages and case["api"] == "chat" else Transcript("", [UserMessage("Go.")])
    )
    if not transcript.messages or not isinstance(transcript.messages[-1], UserMessage | ToolMessage):
        transcript = transcript.extended(UserMessage("Go."))
    # The reply may call tools that the recorded request did not list in the form of this API.
    names = {tool.name for tool in tools}
    for call in case["expect"].get("tool_calls") or []:
        name = call["name"] if not call.get("name_alt") else call["name_alt"][0]
        if name not in names and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
            names.add(name)
            tools += (ToolSpec(name, "", {"type": "object"}),)
    withheld = sent.get("tool_choice") in ("none", {"type": "none"})
    if bool(messages) and not tools and any(m.get("tool_calls") for m in messages or []):
        withheld = True
        tools = (ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
    return Request(transcript, tools, may_call=not withheld, key="one-logical-request")


def specs(tools: list[dict[str, Any]]) -> Iterator[ToolSpec]:
    for tool in tools:
        body = tool.get("function", tool)
        if "name" in body:
            yield ToolSpec(body["name"], body.get("description") or "", body.get("parameters") or {"type": "object"})


async def exchange(case: dict[str, Any]) -> Seen:
    several = "responses" in case
    replies = (
        [served(r, r.get("wire") or case.get("wire")) for r in case["responses"] if r]
        if several
        else [served(case["response"], case.get("wire"))]
    )
    waits: list[float] = []
    streamed: list[str] = []
    async with WireServer(replies, again=not several) as server:
        llm = llm_of(case, server.url)
        request = request_for(case)
        patient: LLM = llm
        if several:
            patient = Retrying(llm, RetryPolicy(attempts=3, max_wait=60, patience=60), sleep=recorder(waits))
        try:
            raw = await patient.reply(
                request, lambda said: streamed.append(said.text) if isinstance(said, TextDelta) else None
            )
        except ProviderError as error:
            bodies = [got.json() for got in server.got]
            return Seen(None, None, error, "".join(streamed), waits, bodies, [], None)
        reply = repaired(raw, set(), 1, request)
        bodies = [got.json() for got in server.got]
        arguments = [await received_by_a_tool(call) for call in reply.calls]
        follow_up = None
        if reply.calls and not several:
            results = [ToolMessage(call.id, call.name, "ok") for call in reply.calls]
            said = AssistantMessage(reply.text, reply.calls, reply.opaque, reply.origin)
            again = replace(request, transcript=request.transcript.extended(said, *results))
            await llm.reply(again, lambda _: None)
            follow_up = server.got[-1].json()
        return Seen(reply, raw, None, "".join(streamed), waits, bodies, arguments, follow_up)


def recorder(waits: list[float]) -> Any:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return sleep


async def received_by_a_tool(call: ToolCall) -> Any:
    """What a tool that takes any object is run with; the kind of the failure when it is not run."""
    got: list[Any] = []

    def probe(**arguments: Any) -> str:
        got.append(arguments)
        return "ok"

    registry = ToolRegistry([Tool("probe", "Takes anything.", {"type": "object", "additionalProperties": True}, probe)])
    result = await registry.run(replace(call, name="probe"))
    return got[0] if got else result.error


# --- comparing --------------------------------------------------------------------------------------


def wrong(seen: Seen, one: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    """What differs from one expectation; nothing means it is met."""
    faults = common_faults(seen, expect)
    if one["outcome"] == "error":
        return faults + (error_faults(seen.error, seen, one) if seen.error else [f"a message: {seen.reply}"])
    return faults + (message_faults(seen, one, expect) if seen.reply else [f"an error: {seen.error!r}"])


def common_faults(seen: Seen, expect: dict[str, Any]) -> list[str]:
    faults = []
    if "requests" in expect and not within(len(seen.bodies), expect["requests"]):
        faults.append(f"{len(seen.bodies)} requests, expected {expect['requests']}")
    if "wait_s" in expect and not within(sum(seen.waits), expect["wait_s"]):
        faults.append(f"waits {seen.waits}, expected {expect['wait_s']}")
    if "second_request" in expect and len(seen.bodies) > 1:
        faults += rule_faults(seen.bodies[1], expect["second_request"])
    return faults


def within(value: float, bounds: Any) -> bool:
    low, high = bounds if isinstance(bounds, list) else (bounds, bounds)
    return bool(low <= value <= high)


def error_faults(error: ProviderError, seen: Seen, one: dict[str, Any]) -> list[str]:
    faults = []
    allowed = [
        one["class"],
        *([one["class_alt"]] if isinstance(one.get("class_alt"), str) else one.get("class_alt", ())),
    ]
    # The corpus has no word for a connection that broke before the headers; it calls it protocol.
    if error.kind not in allowed and not (error.kind == "connection" and "protocol" in allowed):
        faults.append(f"kind {error.kind}, expected {allowed}")
    if one["retryable"] != "either" and error.retryable != one["retryable"]:
        faults.append(f"retryable {error.retryable}")
    if one.get("status") and error.status != one["status"]:
        faults.append(f"status {error.status}")
    if " ".join(one.get("message_contains", "").split()) not in " ".join(str(error).split()):
        faults.append(f"message {error}")
    if "retry_after_s" in one and not within(error.retry_after or 0.0, one["retry_after_s"]):
        faults.append(f"retry_after {error.retry_after}")
    if "partial_text" in one and seen.streamed and seen.streamed != one["partial_text"]:
        faults.append(f"streamed {seen.streamed!r}")
    return faults


def message_faults(seen: Seen, one: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    reply, raw = seen.reply, seen.raw
    assert reply is not None
    assert raw is not None
    faults = []
    text = one.get("refusal") or one["text"]
    same = json.loads(reply.text) == json.loads(text) if one.get("text_compare") == "json" else reply.text == text
    if not same:
        faults.append(f"text {reply.text!r}, expected {text!r}")
    if seen.streamed and seen.streamed != reply.text:
        faults.append(f"streamed {seen.streamed!r}")
    if reply.stop != one["stop"]:
        faults.append(f"stop {reply.stop}, expected {one['stop']}")
    faults += call_faults(seen, one)
    faults += usage_faults(reply, one, expect)
    if one.get("reasoning") and reply.reasoning != one["reasoning"]:
        faults.append(f"reasoning {reply.reasoning!r}, expected {one['reasoning']!r}")
    if one.get("text_looks_like_tool_call") and not reply.call_in_text:
        faults.append("a call in the text was not noticed")
    if one.get("execute") is False and not State.of([RunStarted("q"), reply]).cut:
        faults.append("its calls would run")
    return faults


def call_faults(seen: Seen, one: dict[str, Any]) -> list[str]:
    reply, raw = seen.reply, seen.raw
    assert reply is not None
    assert raw is not None
    if len(reply.calls) != len(one["tool_calls"]):
        return [f"calls {reply.calls}"]
    faults = []
    ids = [call.id for call in reply.calls]
    if not all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call_id) for call_id in ids) or len(set(ids)) < len(ids):
        faults.append(f"ids {ids}")
    for call, came, arguments, want in zip(reply.calls, raw.calls, seen.arguments, one["tool_calls"], strict=True):
        if came.id != want["id"]:
            faults.append(f"id {came.id!r}, expected {want['id']!r}")
        if call.name not in (want["name"], *one.get("name_alt", ()), *want.get("name_alt", ())):
            faults.append(f"name {call.name!r}")
        status = want.get("arguments_status")
        good = [] if status == "bad_json" else [want["arguments"]]
        bad = ["bad_json"] if status else []
        if arguments not in good + bad:
            faults.append(f"arguments {arguments!r}, expected {want}")
        if "arguments_raw" in want and call.arguments != want["arguments_raw"]:
            faults.append(f"raw arguments {call.arguments!r}")
    return faults + pairing_faults(seen, one)


def pairing_faults(seen: Seen, one: dict[str, Any]) -> list[str]:
    """Ids on the wire: the provider's own, unless it gave none or gave one twice; calls and results alike."""
    body = seen.follow_up
    if body is None or not isinstance(body.get("messages"), list) or "system" in body:
        return []
    turns = [m for m in body["messages"] if m.get("role") == "assistant" and m.get("tool_calls")]
    if not turns:
        return []
    sent = [call["id"] for call in turns[-1]["tool_calls"]]
    answered = [m["tool_call_id"] for m in body["messages"] if m["role"] == "tool"][-len(sent) :]
    faults = [] if sent == answered and len(set(sent)) == len(sent) else [f"ids sent {sent}, answered {answered}"]
    for call_id, want in zip(sent, one["tool_calls"], strict=True):
        if want["id"] and call_id != want["id"] and not one.get("ids_must_be_made_unique"):
            faults.append(f"id {want['id']!r} went back as {call_id!r}")
    return faults


def usage_faults(reply: ModelReplied, one: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    got = {"input": reply.usage.input, "output": reply.usage.output}
    readings = [one.get("usage") or {"input": None, "output": None}, *expect.get("alt_usage", ())]
    for reading in [reading for reading in readings if "cache_read" in reading or "cache_write" in reading]:
        # Anthropic counts what came from its cache, or went there, beside the input; `Usage` as a part of it.
        cached = sum(reading.get(key) or 0 for key in ("cache_read", "cache_write"))
        readings.append(reading | {"input": (reading["input"] or 0) + cached})
    if any(all(got[key] == reading.get(key) for key in got) for reading in readings):
        return []
    return [f"usage {got}, expected {readings}"]


# --- what is sent -----------------------------------------------------------------------------------


async def request_of(case: dict[str, Any]) -> dict[str, Any] | str:
    """The body sent for the history of a case, or the words of a refusal to send it."""
    given = case["given"]
    ok = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}'
    async with WireServer(
        [served({"status": 200, "headers": {"content-type": "application/json"}, "body_text": ok.decode()}, None)]
    ) as server:
        llm = llm_of(case, server.url)
        ours = getattr(llm, "origin", "")
        foreign = given.get("received_from", "same provider") != "same provider"
        transcript = transcript_of(given["history"], "elsewhere" if foreign else ours)
        tools = built_in() if isinstance(given.get("tools"), str) else tuple(specs(given.get("tools") or []))
        try:
            await llm.reply(Request(transcript, tools), lambda _: None)
        except ToolLoopError as error:
            if server.got:
                return server.got[0].json()
            local = all(check.get("or") == "local_error" for check in case["expect"]["checks"])
            return {} if local else f"refused to send: {error}"
        return server.got[0].json()


def built_in() -> tuple[ToolSpec, ...]:
    from tool_loop import calculator, workspace_tools

    return ToolRegistry([*workspace_tools("."), calculator]).specs()


EXTRAS = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")


def transcript_of(history: list[dict[str, Any]], origin: str) -> Transcript:
    """Our record of a conversation in chat form: every reply as the loop would have recorded it."""
    system = "".join(
        m["content"] for m in history if m["role"] in ("system", "developer") and isinstance(m["content"], str)
    )
    messages: list[Any] = []
    ids: set[str] = set()
    owed: list[tuple[str, ToolCall]] = []
    for n, message in enumerate(history):
        content = message.get("content")
        text = (
            content
            if isinstance(content, str)
            else "".join(
                part.get("text", "") for part in content or [] if isinstance(part, dict) and part.get("type") == "text"
            )
        )
        if message["role"] == "user":
            messages.append(UserMessage(text))
        elif message["role"] == "assistant":
            reply = recorded_reply(message, text, origin, ids, n)
            owed = list(zip((c.get("id", "") for c in message.get("tool_calls") or []), reply.calls, strict=True))
            ids |= {call.id for call in reply.calls}
            messages.append(AssistantMessage(reply.text, reply.calls, reply.opaque, reply.origin))
        elif message["role"] == "tool":
            at = next((k for k, (sent, _) in enumerate(owed) if sent == message.get("tool_call_id", "")), None)
            call_id, name = message.get("tool_call_id", ""), message.get("name", "")
            if at is not None:
                call = owed.pop(at)[1]
                call_id, name = call.id, call.name
            messages.append(
                ToolMessage(call_id, name, text if isinstance(content, str | list) else json.dumps(content))
            )
    return Transcript(system, messages)


def recorded_reply(message: dict[str, Any], text: str, origin: str, ids: set[str], n: int) -> ModelReplied:
    extras = {key: message[key] for key in EXTRAS if key in message}
    calls = []
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        kept = {"extra_content": call["extra_content"]} if "extra_content" in call else {}
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call.get("id") or "x"):
            kept["id"] = call["id"]
        arguments = function.get("arguments", "")
        calls.append(
            ToolCall(
                call.get("id") or "",
                function.get("name", ""),
                arguments if isinstance(arguments, str) else json.dumps(arguments),
                json.dumps(kept) if kept else "",
            )
        )
    opaque = json.dumps(extras) if extras else ""
    return repaired(ModelReplied(text, tuple(calls), opaque=opaque, origin=origin), ids, n, Request(Transcript()))


MISSING = object()


def at(body: Any, pointer: str) -> Any:
    for escaped in pointer.split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(body, list) and part.isdigit() and int(part) < len(body):
            body = body[int(part)]
        elif isinstance(body, dict) and part in body:
            body = body[part]
        else:
            return MISSING
    return body


def rule_faults(body: dict[str, Any], checks: list[dict[str, Any]]) -> list[str]:
    return [
        f"{check} does not hold in {json.dumps(body)[:1500]}"
        for check in checks
        if not (check.get("or") == "local_error" and not body)
        and not holds(at(body, check["path"]), check["op"], check.get("value"))
    ]


def holds(found: Any, op: str, value: Any) -> bool:  # noqa: C901
    match op:
        case "absent":
            return found is MISSING
        case "present":
            return found is not MISSING
        case "has_key":
            return isinstance(found, dict) and value in found
        case "equals":
            return found is not MISSING and bool(found == value)
        case "contains":
            return found is not MISSING and value in found
        case "matches":
            return isinstance(found, str) and re.search(value, found) is not None
        case "type":
            kinds = {
                "string": str,
                "array": list,
                "object": dict,
                "number": (int, float),
                "boolean": bool,
                "null": type(None),
            }
            return isinstance(found, kinds[value])
        case "json_object":
            return isinstance(found, str) and isinstance(json.loads(found), dict)
        case "max_items":
            return isinstance(found, list) and len(found) <= value
        case "no_schema_keywords":
            return not any(keyword in schema for schema in schemas(found) for keyword in value)
        case "arrays_have_items":
            return all("items" in schema for schema in schemas(found) if schema.get("type") == "array")
        case "text_not_merged_with_thinking":
            return text_alone(found, value)
        case _:
            return history_holds(found, op)


def text_alone(found: Any, value: str) -> bool:
    if isinstance(found, list):
        return "".join(part.get("text", "") for part in found if part.get("type") == "text") == value
    return found is MISSING or bool(found == value)


def schemas(tools: Any) -> Iterator[dict[str, Any]]:
    """Every schema below the parameters of the tools; names of properties are no keywords."""
    todo = [tool.get("function", tool).get("parameters", {}) for tool in tools if isinstance(tool, dict)]
    while todo:
        schema = todo.pop()
        if not isinstance(schema, dict):
            continue
        yield schema
        for key, inner in schema.items():
            if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(inner, dict):
                todo += inner.values()
            elif key in ("items", "additionalProperties", "not"):
                todo.append(inner)
            elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inner, list):
                todo += inner


def history_holds(messages: Any, op: str) -> bool:
    owed: list[str] = []
    good = True
    for message in messages:
        calls = [call["id"] for call in message.get("tool_calls") or []]
        if message["role"] == "tool":
            known = message["tool_call_id"] in owed
            if known:
                owed.remove(message["tool_call_id"])
            good &= known or op != "no_orphan_tool_messages"
            continue
        good &= not owed or op not in ("every_call_answered", "results_follow_their_call")
        owed = calls
        if message["role"] == "assistant":
            good &= op != "no_empty_assistant" or bool(message.get("content") or calls)
            good &= op != "no_null_content_without_calls" or message.get("content") is not None or bool(calls)
    assert op in KNOWN_RULES, f"no such check: {op}"
    return bool(good) and (not owed or op != "every_call_answered")


KNOWN_RULES = frozenset(
    {
        "no_orphan_tool_messages", "every_call_answered", "results_follow_their_call", "no_empty_assistant",
        "no_null_content_without_calls",
    }
)  # fmt: skip
