"""A model server that thinks nothing: it answers as fast as it can, so that a client's cost shows.

Started by the benchmarks in a process of its own; prints its port. The path says what to do:
/STEPS/LATENCY_MS/v1/chat/completions asks for one tool call until the history holds STEPS results,
then answers. With `"stream"` in the request the reply comes as server-sent events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
ANSWER = "It is in agent.py, in the function next_move, because that is where the loop decides."


def reply(done: int, steps: int, stream: bool) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk" if stream else "chat.completion", "created": 1, "model": "m"}
    call = {
        "id": f"call_{done}",
        "type": "function",
        "function": {"name": "look", "arguments": json.dumps({"at": f"part {done}", "times": done})},
    }
    calls = done < steps
    finish = "tool_calls" if calls else "stop"
    if not stream:
        message = {"role": "assistant", "content": None if calls else ANSWER}
        if calls:
            message["tool_calls"] = [call]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    if calls:
        text = call["function"]["arguments"]
        first = {**call, "index": 0, "function": {"name": "look", "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": text[n : n + 8]}}]} for n in range(0, len(text), 8)
        ]
    else:
        deltas += [{"content": word + " "} for word in ANSWER.split()]
    chunks = [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({**head, "choices": [], "usage": USAGE})
    return b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in chunks) + b"data: [DONE]\n\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.split(b"\r\n")
            _, steps, latency, *_ = lines[0].split(b" ")[1].split(b"/")
            length = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:"))
            body = await reader.readexactly(length)
            if latency != b"0":
                await asyncio.sleep(int(latency) / 1000)
            stream = b'"stream": true' in body or b'"stream":true' in body
            out = reply(body.count(b'"tool_call_id"'), int(steps), stream)
            kind = b"text/event-stream" if stream else b"application/json"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(out), out))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: server.close())
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
