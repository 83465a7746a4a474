"""Feeds broken bytes to everything that reads what a server or a model wrote.

    python -m tests.fuzz                        10,000 inputs for each target
    python -m tests.fuzz --inputs 1000000       the long run
    python -m tests.fuzz --target messages --seed 7

Whatever comes in, a target gives a value or one of our typed errors, and the value has to be fit for
what happens next: a reply can be written to the journal, and the request that carries it as history
is one a provider takes. The inputs follow from the seed, so a fault can be shown again; the input
that shows it is printed, ready to become a test.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tests.kit.dialects import ALL, FAILURES, TOOLS, Dialect, Said
from tool_loop.errors import ProviderError, ToolError
from tool_loop.events import ModelReplied, ReasoningDelta, TextDelta
from tool_loop.journal.codec import decode, encode
from tool_loop.llm.anthropic.reply import MessagesReply
from tool_loop.llm.chat.reply import ChatReply
from tool_loop.llm.endpoint import Assembler, parse
from tool_loop.llm.http.sse import EventTooLarge, SSEReader
from tool_loop.llm.responses.reply import ResponsesReply
from tool_loop.llm.text import Names
from tool_loop.ports import Request
from tool_loop.toolbox.call import canonical, parse_arguments
from tool_loop.transcript import AssistantMessage, ToolMessage, Transcript, UserMessage, repaired

CHAT, RESPONSES, MESSAGES = ALL
NAMES = Names(tool.name for tool in TOOLS)

# --- targets: bytes in, nothing out, an exception for a fault ------------------------------------------------


def sse_reader(data: bytes) -> None:
    """However the bytes are cut, the same events come out; only what is too large may fail."""
    cuts = [data[at : at + 1 + data[at] % 7] for at in range(0, len(data), 7)] if len(data) < 4096 else [data]
    whole, pieces = _events([data], 10**6), _events(list(_contiguous(data, cuts)), 10**6)
    assert whole == pieces
    _events([data], 64)


def _contiguous(data: bytes, cuts: Sequence[bytes]) -> Iterator[bytes]:
    at = 0
    for cut in cuts:
        yield data[at : at + len(cut)]
        at += len(cut)
    yield data[at:]


def _events(chunks: Sequence[bytes], limit: int) -> list[Any] | None:
    reader = SSEReader(limit)
    events: list[Any] = []
    try:
        for chunk in chunks:
            events += reader.feed(chunk)
        events += reader.close()
    except EventTooLarge:
        return None
    return events


def arguments(data: bytes) -> None:
    """A dictionary that means what the text says, or `bad_json`; and the same text is the same call."""
    text = data.decode("utf-8", "surrogatepass") if _decodes(data) else data.decode("latin-1")
    canonical(text)
    try:
        found = parse_arguments(text)
    except ToolError as error:
        assert error.kind == "bad_json"
        assert error.message
        return
    assert found == (json.loads(text) or {} if text.strip() else {})
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def chat(data: bytes) -> None:
    _assembled(CHAT, data)


def responses(data: bytes) -> None:
    _assembled(RESPONSES, data)


def messages(data: bytes) -> None:
    _assembled(MESSAGES, data)


def _assembled(dialect: Dialect, data: bytes) -> None:
    for read in (_as_stream, _as_document):
        shown: list[Any] = []
        try:
            reply = read(_assembler(dialect), data, shown.append)
        except (ProviderError, EventTooLarge) as error:
            str(error).encode()
        else:
            _usable(dialect, reply)
        assert all(isinstance(signal, TextDelta | ReasoningDelta) and signal.text.encode() for signal in shown)


def _assembler(dialect: Dialect) -> Assembler:
    origin = _LLMS[dialect.name].origin
    if dialect is CHAT:
        return ChatReply(FAILURES, origin, NAMES)
    if dialect is RESPONSES:
        return ResponsesReply(FAILURES, NAMES, origin=origin)
    return MessagesReply(FAILURES, NAMES, origin=origin)


def _as_stream(assembler: Assembler, data: bytes, emit: Any) -> ModelReplied:
    reader = SSEReader()
    for event in (*reader.feed(data), *reader.close()):
        if assembler.event(event, emit):
            break
    if not assembler.complete():
        raise FAILURES.protocol("a stream that ended early")
    return assembler.reply()


def _as_document(assembler: Assembler, data: bytes, emit: Any) -> ModelReplied:
    body = parse(data)
    if body is None:
        raise FAILURES.protocol("no JSON")
    assembler.document(body)
    return assembler.reply()


def _usable(dialect: Dialect, reply: ModelReplied) -> None:
    """The reply can be recorded, read again, and sent back with results."""
    reply = repaired(reply, set(), 1, Request(Transcript("", [UserMessage("Look.")]), TOOLS))
    again = decode(encode(reply))
    assert again == reply, (again, reply)
    said = AssistantMessage(reply.text, reply.calls, reply.opaque, reply.origin)
    results = [ToolMessage(call.id, call.name, "x") for call in reply.calls]
    transcript = Transcript("", [UserMessage("Look."), said, *results, UserMessage("Go on.")])
    body = _LLMS[dialect.name].body(Request(transcript, TOOLS))
    asked = dialect.read(json.loads(body.decode("utf-8")))
    assert len([1 for role, _ in asked.turns if role == "result"]) == len(reply.calls)


_LLMS: dict[str, Any] = {dialect.name: dialect.llm().llm for dialect in ALL}

# --- inputs --------------------------------------------------------------------------------------------------

CALLS = (("call_a", "read_file", '{"path": "a.py", "lines": [1, 2.5, null, true]}'), ("call_b", "list_dir", "{}"))
SAID = (Said("Hello, wörld.", CALLS), Said("\U0001f9ff" * 9), Said("", CALLS), Said("Half", CALLS, cut=True), Said(""))
MORE: dict[str, list[Any]] = {
    "chat": [
        {
            "choices": [
                {"index": 0, "delta": {"reasoning_content": "Hm", "reasoning_details": [{"index": 0, "text": "x"}]}}
            ]
        },
        {"choices": [{"delta": {"content": [{"type": "thinking", "thinking": [{"text": "x"}]}, {"type": "text"}]}}]},
        {"choices": [{"message": {"function_call": {"name": "read_file", "arguments": {}}}, "finish_reason": "stop"}]},
        {"error": {"message": "Busy", "code": 503, "metadata": {"raw": '{"error": "x"}'}}},
    ],
    "responses": [
        {
            "type": "response.output_item.done",
            "output_index": 5,
            "item": {"type": "reasoning", "id": "rs", "summary": [{"text": "x"}], "encrypted_content": "e"},
        },
        {"type": "response.refusal.delta", "output_index": 6, "delta": "No"},
        {"type": "response.output_item.added", "output_index": 7, "item": {"type": "web_search_call", "id": "ws"}},
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error"}}},
    ],
    "messages": [
        {"type": "content_block_start", "index": 5, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 5, "delta": {"type": "signature_delta", "signature": "s"}},
        {
            "type": "content_block_start",
            "index": 6,
            "content_block": {"type": "server_tool_use", "id": "s", "name": "web", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"x": 1}}},
        {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
    ],
}

ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**70,
        1.5,
        1e308,
        "",
        " ",
        "\ud800",
        "\udfff",
        "\x00",
        "null",
        "{}",
        "[]",
        "a" * 70,
    ),
    *([], {}, [None], [[]], [{}], {"": None}, {"type": 1}, {"text": 3}, {"type": "text"}),
    *("function_call_output", "tool_result", "item_reference", "reasoning", "message"),
    *("stop", "length", "content_filter", "refusal", "error"),
)
ODD_BYTES = (
    *(b"null", b"[]", b"{}", b'""', b"0", b"-1", b"1e999", b"NaN", b"\\ud800", b"\\udc00", b"\\u0000"),
    *(b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85", b"\x00", b"\n\n", b"\r", b"\r\n"),
    *(b"data: ", b"data:[DONE]", b"event: error", b": ", b'"', b"\\", b"}", b"{", b"[" * 50, b"]", b","),
    *(b'"error":{"message":"x"}', b'"type":"tool_result"'),
)
TEXTS = (
    *(b'{"path": "a.py"}', b'{"a": {"b": [1, 2.0, -3e5, "\\u00e4\\ud83e\\uddff", null, true]}, "c": ""}'),
    *(b"", b"null", b'```json\n{"a": 1}\n```', b"{'a': 1}", b'{"a": 1}{"a": 2}', b'{"a": NaN}', b"[1]", b'"{}"'),
    *(b"[" * 200, b'{"a":' * 120, '{"path": "naïve \U0001f9ff"}'.encode()),
)


def inputs(target: str, seed: int) -> Iterator[bytes]:
    """Endlessly: good inputs of the target, each broken a few times."""
    rng = random.Random(f"{target}-{seed}")
    good = seeds(target)
    yield from good
    documents = [data for data in good if data[:1] == b"{"] or good
    while True:
        data = rng.choice(documents if rng.random() < 0.3 else good)
        # Most stay JSON: what is torn apart is turned away at the door, and tests only the door.
        torn = rng.random() < 0.3
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            data = broken(rng, data, good) if torn else _in_the_json(rng, data)
        yield data[:20_000]


def seeds(target: str) -> list[bytes]:
    if target == "arguments":
        return list(TEXTS)
    dialects = [dialect for dialect in ALL if target in (dialect.name, "sse")]
    found = [json.dumps(dialect.whole(said)).encode() for dialect in dialects for said in SAID]
    for dialect in dialects:
        more = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in MORE[dialect.name]]
        for said in SAID:
            stream = dialect.stream(said)
            first, rest = stream.split(b"\n\n", 1)
            found += [stream, stream.replace(b"\n", b"\r\n"), first + b"\n\n" + b"".join(more[:-1]) + rest]
        found.append(more[-1] + stream)
    return found


def broken(rng: random.Random, data: bytes, good: Sequence[bytes]) -> bytes:
    how = rng.randrange(10)
    at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    if how < 4:
        return _in_the_json(rng, data)
    if how == 4 and data:
        return data[: at - 1] + bytes([rng.randrange(256)]) + data[at:] if at else data
    if how == 5:
        return data[:at] + data[min(to, at + 40) :]
    if how == 6:
        return data[:to] + data[at:]
    if how == 7:
        other = rng.choice(good)
        return data[:at] + other[rng.randrange(len(other) + 1) :]
    if how == 8:
        return data[:at]
    return data[:at] + rng.choice(ODD_BYTES) + data[at:]


def _in_the_json(rng: random.Random, data: bytes) -> bytes:
    """One value somewhere in a document, or in one event of a stream, becomes an odd one."""
    lines = data.split(b"\n")
    places = [n for n, line in enumerate(lines) if line.lstrip(b"data: ")[:1] in (b"{", b"[")]
    if not places:
        return data + rng.choice(ODD_BYTES)
    n = rng.choice(places)
    start = lines[n][: len(lines[n]) - len(lines[n].lstrip(b"data: "))]
    value = parse(lines[n][len(start) :].rstrip(b"\r"))
    if value is None:
        return data + rng.choice(ODD_BYTES)
    lines[n] = start + json.dumps(_odd(rng, value)).encode()
    if start and rng.random() < 0.2:
        lines[n:n] = [lines[n], b""]  # the event twice
    return b"\n".join(lines)


def _odd(rng: random.Random, value: Any, stop: float = 0.03) -> Any:
    """The value with one of its parts, chosen on the way down, replaced, removed or renamed."""
    inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inside or rng.random() < stop:
        return rng.choice(ODD_VALUES)
    key = rng.choice(inside)
    if rng.random() < 0.1:
        del value[key]
    else:
        value[key] = _odd(rng, value[key], 0.2)
    return value


Target: TypeAlias = Callable[[bytes], None]

TARGETS: dict[str, Target] = {
    "sse": sse_reader,
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "arguments": arguments,
}


def run(target: str, check: Target, count: int, seed: int) -> tuple[int, bytes, BaseException] | None:
    """The first fault: its number, the input and what it raised; None when there was none."""
    for n, data in zip(range(count), inputs(target, seed), strict=False):
        try:
            check(data)
        except Exception as error:
            return n, data, error
    return None


def main(argv: Sequence[str] | None = None, targets: Mapping[str, Target] = TARGETS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="for each target (default: 10000)")
    parser.add_argument("--target", choices=sorted(targets), action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default: 0)")
    args = parser.parse_args(argv)
    faults = 0
    for target in args.target or targets:
        began = time.perf_counter()
        fault = run(target, targets[target], args.inputs, args.seed)
        took = time.perf_counter() - began
        if fault is None:
            sys.stdout.write(f"{target}: {args.inputs} inputs, no fault, {took:.1f} s\n")
            continue
        faults += 1
        n, data, error = fault
        sys.stdout.write(f"{target}: input {n} of seed {args.seed}: {type(error).__name__}: {error}\n  {data!r}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
