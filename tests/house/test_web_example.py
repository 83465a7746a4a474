"""examples/web as it is served: uvicorn on uvloop, a real client, and a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

APP = Path(__file__).parents[2] / "examples" / "web"
PATIENCE_SECONDS = 30


class Site:
    """The server, started and killed on one port and one folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE_SECONDS)

    def start(self, *options: str, slow: float = 0.0) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "COVERAGE"))}
        environ |= {"CHAT_STATE": str(self.home), "CHAT_SLOW": str(slow)}
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(APP), "app:app", "--loop", "uvloop"]
        command += ["--port", str(self.port), "--log-level", "warning", *options]
        self.server = subprocess.Popen(command, env=environ)
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                self.client.get("/approvals").raise_for_status()
                return
            except httpx2.TransportError:
                assert self.server.poll() is None, "the server did not start"
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def end(self, how: signal.Signals) -> int:
        assert self.server is not None
        self.server.send_signal(how)
        code = self.server.wait(PATIENCE_SECONDS)
        self.server = None
        return code

    def say(self, message: str, chat: str = "ann") -> int:
        return self.client.post(f"/chats/{chat}/messages", json={"message": message}).status_code

    def records(self, until: Callable[[dict[str, Any]], bool], after: int = -1, chat: str = "ann") -> list[dict]:
        """What the client is sent until then, as its browser would ask for it; each with its number."""
        headers = {"Last-Event-ID": str(after)} if after >= 0 else {}
        found: list[dict[str, Any]] = []
        with self.client.stream("GET", f"/chats/{chat}/events", headers=headers) as response:
            response.raise_for_status()
            assert response.headers["content-type"].startswith("text/event-stream")
            fields: dict[str, str] = {}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    fields[name] = value
                    continue
                if fields.get("event") == "record":
                    found.append({"seq": int(fields["id"]), **json.loads(fields["data"])})
                    if until(found[-1]):
                        return found
                fields = {}
        raise AssertionError(f"the events ended with {found[-1:]}")

    def refunds(self) -> str:
        path = self.home / "refunds"
        return path.read_text() if path.exists() else ""

    def decide(self, allow: str) -> httpx2.Response:
        page = self.client.get("/approvals").text
        action = page.partition('action="')[2].partition('"')[0]
        mark = page.partition('name="fingerprint" value="')[2].partition('"')[0]
        return self.client.post(action, data={"allow": allow, "fingerprint": mark})


def kind(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: record["type"] == name


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "state")
    try:
        yield site
    finally:
        site.client.close()
        if site.server is not None:
            site.server.kill()
            site.server.wait(PATIENCE_SECONDS)


@contextmanager
def another(site: Site) -> Iterator[Site]:
    """A second process that serves the same journal."""
    other = Site(site.home)
    try:
        other.start()
        yield other
    finally:
        other.client.close()
        if other.server is not None:
            other.server.kill()
            other.server.wait(PATIENCE_SECONDS)


def test_a_message_is_answered_and_the_conversation_goes_on(site: Site) -> None:
    site.start()

    assert site.client.get("/chats/ann/events").status_code == 404
    assert site.say("hello") == 202
    first = site.records(kind("RunEnded"))
    assert site.say("and again") == 202
    second = site.records(lambda r: r["type"] == "RunEnded" and r["seq"] > first[-1]["seq"], after=first[-1]["seq"])

    assert [r["seq"] for r in (*first, *second)] == list(range(len(first) + len(second)))
    assert (first[-1]["answer"], second[-1]["answer"]) == ("You said: hello", "You said: and again")
    assert site.say("  ") == 400


def test_a_server_that_is_killed_in_mid_run_goes_on_by_itself_and_the_client_misses_nothing(site: Site) -> None:
    site.start(slow=60)
    site.say("tell me a long story")
    before = site.records(kind("RunStarted"))
    site.end(signal.SIGKILL)

    site.start()
    after = site.records(kind("RunEnded"), after=before[-1]["seq"])

    assert [r["type"] for r in after] == ["ModelReplied", "RunEnded"]
    assert [r["seq"] for r in (*before, *after)] == [0, 1, 2]
    assert after[-1]["answer"] == "You said: tell me a long story"


def test_a_server_that_is_asked_to_end_notes_where_it_was_and_goes_on_at_the_next_start(site: Site) -> None:
    site.start("--timeout-graceful-shutdown", "1", slow=60)
    site.say("tell me a long story")
    site.end(signal.SIGTERM)

    site.start()
    types = [r["type"] for r in site.records(kind("RunEnded"))]

    assert types == ["RunStarted", "RunInterrupted", "RunResumed", "ModelReplied", "RunEnded"]


def test_an_approval_outlives_the_server_and_the_effect_happens_once(site: Site) -> None:
    site.start()
    site.say("please refund order 7")
    before = site.records(kind("ApprovalRequested"))
    site.end(signal.SIGKILL)
    site.start()

    assert "<code>{&quot;order&quot;: 7}</code>" in site.client.get("/approvals").text
    assert site.refunds() == ""
    forged = site.client.post("/approvals/ann/call_1", data={"allow": "yes"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (forged.status_code, site.refunds()) == (403, "")
    assert site.decide("yes").status_code == 303
    after = site.records(kind("RunEnded"), after=before[-1]["seq"])

    assert after[-1]["answer"] == "Done: order 7 is paid back"
    assert site.refunds() == "7\n"
    assert "Nothing waits" in site.client.get("/approvals").text
    assert site.client.post("/approvals/ann/call_1", data={"allow": "yes"}).status_code == 409


def test_what_is_said_in_place_of_a_decision_is_answered_and_nothing_is_refunded(site: Site) -> None:
    site.start()
    site.say("please refund order 7")
    before = site.records(kind("ApprovalRequested"))

    assert site.say("never mind") == 202
    after = site.records(kind("RunEnded"), after=before[-1]["seq"])

    assert after[-1]["answer"] == "You said: never mind"
    assert site.refunds() == ""
    assert "Nothing waits" in site.client.get("/approvals").text


def test_a_second_process_sees_decides_and_cancels_what_the_first_one_drives(site: Site) -> None:
    site.start(slow=60)
    site.say("please refund order 7")  # asked at once: its slow answer comes after it
    site.records(kind("ApprovalRequested"))
    site.say("tell me a long story", chat="bob")

    with another(site) as other:
        assert other.say("me too", chat="bob") == 409
        began = time.monotonic()
        assert other.client.post("/chats/bob/cancel").json() == {"stopped": True}
        last = other.records(kind("RunInterrupted"), chat="bob")[-1]
        took = time.monotonic() - began
        assert (last["by"], took < 2) == ("the customer", True)
        assert other.decide("yes").status_code == 303
        assert other.records(kind("RunEnded"))[-1]["answer"] == "Done: order 7 is paid back"
        assert site.records(kind("RunEnded"))[-1]["answer"] == "Done: order 7 is paid back"
    assert site.refunds() == "7\n"
