from __future__ import annotations

import pytest

from tests.kit.cli_case import KEY, Cli, cli
from tool_loop.events import ToolCall
from tool_loop.testing import FaultServer, ok_chat
from tool_loop.testing.server import refusals as no

__all__ = ["cli"]

CALL = ToolCall("c1", "ready", "{}")


def lines(out: str) -> dict[str, str]:
    return {line[:20].strip(): line[20:].strip() for line in out.splitlines()}


def test_all_is_well(cli: Cli) -> None:
    with FaultServer([ok_chat("I am ready, as you asked.", [CALL])]) as server:
        cli.at(server)
        ran = cli("doctor")
        asked = server.requests[0].json()

    said = lines(ran.out)
    assert ran.code == 0
    assert said["OPENAI_API_KEY"] == "set"
    assert KEY not in ran.out + ran.err
    assert said["model"] == f"m at {server.url}/v1 (chat)"
    assert said["endpoint"].startswith("answered in ")
    assert said["tools"] == "work: the model called one"
    assert said["streaming"].startswith("works: text came in ")
    assert said["tokens"] == "12 in, 5 out"
    assert said["runs"].startswith("none yet; they will be saved in ")
    assert "ripgrep" in said["grep uses"] or "Python" in said["grep uses"]
    assert said["httptools"].endswith("(the network)")
    assert said["commands run in"].startswith(("bubblewrap (", "Landlock and seccomp", "nothing, and so not at all: "))
    assert len(asked["tools"]) == 1


def test_a_call_alone_does_not_tell_whether_text_streams_so_a_second_one_does(cli: Cli) -> None:
    with FaultServer([ok_chat("", [CALL], usage=None), ok_chat("one two three four five")]) as server:
        cli.at(server)
        ran = cli("doctor")

    said = lines(ran.out)
    assert ran.code == 0
    assert said["streaming"] == "works: text came in 3 pieces"
    assert said["tokens"] == "not counted by the server; estimated"


def test_text_in_one_piece_and_streaming_switched_off(cli: Cli) -> None:
    with FaultServer([ok_chat("ready", [CALL]), ok_chat("ready", [CALL]), ok_chat("", [CALL]), ok_chat("")]) as server:
        cli.at(server)
        one, off = cli("doctor"), cli("doctor", "--no-stream")

    assert lines(one.out)["streaming"] == "the text came in one piece"
    assert lines(off.out)["streaming"] == "switched off"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "ready", "arguments": {}}', "do not work: the call came as text"),
        ("I am \x1b[31mready.", "the model did not call the one it was told to call; it said: I am \\e[31mready."),
    ],
)
def test_a_model_that_does_not_call_its_tools_is_not_fit(cli: Cli, text: str, said: str) -> None:
    with FaultServer([ok_chat(text)]) as server:
        cli.at(server)
        ran = cli("doctor")

    assert ran.code == 4
    assert lines(ran.out)["tools"].startswith(said)


def test_an_endpoint_that_refuses_says_why(cli: Cli) -> None:
    with FaultServer([no.status(401, f"bad key {KEY}")]) as server:
        cli.at(server)
        ran = cli("doctor")

    assert ran.code == 3
    assert "OPENAI_API_KEY was refused" in ran.err
    assert KEY not in ran.err


def test_without_configuration_the_rest_is_checked_all_the_same(cli: Cli) -> None:
    _ = cli.journal
    ran = cli("doctor", env={"TOOL_LOOP_RG": "/no/such/rg"})

    assert ran.code == 3
    assert lines(ran.out)["runs"].startswith("0 in ")
    assert lines(ran.out)["grep uses"].startswith("nothing: ")
    assert "no model is configured" in ran.err


def test_a_journal_that_does_not_open_is_a_finding(cli: Cli) -> None:
    assert lines(cli("doctor", "--journal", "agent.py").out)["runs"].startswith("cannot be saved: ")


def test_what_is_not_installed_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)

    assert lines(cli("doctor").out)["genai-prices"] == "not installed (costs; extra prices)"
