"""A run goes on with what drives it, or not at all; and a record that somebody else made grants nothing."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.cli_case import Cli, Ran, cli, looks
from tool_loop import Agent, ModelReplied, ScriptedLLM, ToolCall, tool
from tool_loop.events import ApprovalDecided, Event, RunInterrupted, RunStarted, ToolReturned
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.testing import FaultServer, ok_chat
from tool_loop.tools import workspace_tools

__all__ = ["cli"]

PAY = ToolCall("p1", "pay", '{"amount": 3}')
MINE = """
from pathlib import Path
from tool_loop import tool
import helper_of_mine

@tool
def pay(amount: int) -> str:
    "Pay somebody."
    with Path(__file__).with_name("paid").open("a") as file:
        file.write(f"{amount}\\n")
    return "paid"

both = [pay]
"""
AGENT = """
from tool_loop import Agent, ScriptedLLM
from mine import pay

def shop():
    return Agent(ScriptedLLM("Shipped."), [pay], approve="effects", name="shop")

made = shop()

def with_port(port):
    return shop()

async def later():
    return shop()

def broken():
    raise RuntimeError("no database")
"""


@pytest.fixture
def shop(cli: Cli) -> Iterator[Cli]:
    """A person's own tools and agent in the directory they stand in."""
    (cli.root / "mine.py").write_text(MINE)
    (cli.root / "helper_of_mine.py").write_text("")
    (cli.root / "shop_agent.py").write_text(AGENT)
    path = list(sys.path)
    yield cli
    sys.path[:] = path
    for name in ("mine", "helper_of_mine", "shop_agent"):
        sys.modules.pop(name, None)


def ask(cli: Cli, *words: str, calls: tuple[ToolCall, ...] = (PAY,)) -> str:
    """A run that ends because a call waits for a person."""
    with FaultServer([looks(*calls)]) as server:
        cli.at(server)
        assert cli("ask", "pay bob", *words).code == 6
    return cli.journal.last() or ""


def pasted(cli: Cli, said: str, *words: str) -> Ran:
    """What was printed, run as a shell would run it, against a server that answers."""
    command = said.strip().splitlines()[-1]
    command = command.split(": ", 1)[1] if command.startswith(("go on", "Then", "or name")) else command.strip()
    parts = shlex.split(command)
    stood = cli.root
    if parts[0] == "cd":
        cli.root, parts = Path(parts[1]), parts[parts.index("&&") + 1 :]
    assert parts[0] == "tool-loop"
    with FaultServer([ok_chat("Done.")] * 2) as server:
        cli.at(server)
        options = parts[2:] if "--" not in parts else parts[2 : parts.index("--")]
        rest = parts[parts.index("--") :] if "--" in parts else []
        options = options if "--agent" in parts else [*options, "--base-url", f"{server.url}/v1"]
        try:
            return cli(parts[1], *options, *words, *rest)
        finally:
            cli.root = stood


def events(cli: Cli) -> tuple[Event, ...]:
    return tuple(cli.journal.events(cli.journal.last() or ""))


def library_run(cli: Cli, *replies: object, name: str = "", reads: bool = False, **options: object) -> str:
    """A run that a program made, in the journal of this person, and left as waiting."""

    @tool
    def pay(amount: int) -> str:
        """Pay somebody."""
        return "paid"

    async def main() -> str:
        with SqliteJournal(cli.home / "tool-loop" / "runs.sqlite") as journal:
            tools = [*(workspace_tools(str(cli.root)) if reads else ()), pay]
            agent = Agent(ScriptedLLM(*replies), tools, journal=journal, approve="effects", name=name)  # type: ignore[arg-type]
            return (await agent.run("q", **options)).run_id  # type: ignore[arg-type]

    (cli.home / "tool-loop").mkdir(exist_ok=True)
    return asyncio.run(main())


# --- tools are named by the person ----------------------------------------------------------------------


def test_a_record_names_tools_and_they_are_not_imported(shop: Cli) -> None:
    """`resume` imported whatever module the record named, and ran the call that waited."""
    (shop.root / "evil.py").write_text("from pathlib import Path\nPath(__file__).with_name('harmed').touch()\n")
    ask(shop, "--tools", "mine.py:both")
    shop("approve", "--last")
    db = shop.journal
    meta = json.loads(events(shop)[0].meta)  # type: ignore[union-attr]

    async def forge() -> None:
        async with db.open("forged") as log:
            for event in events(shop):
                changed = {**meta, "tools": ["evil:main"], "tools_dir": str(shop.root)}
                await log.append(RunStarted("q", meta=json.dumps(changed)) if isinstance(event, RunStarted) else event)

    with db:
        asyncio.run(forge())
    before = len(shop.journal.events("forged"))
    for words in (("resume", "forged"), ("ask", "more", "--continue", "forged"), ("resume", "forged", "--unpark")):
        ran = shop(*words)
        assert ran.code == 2
        assert "tools of your own (evil:main)" in ran.err
        assert "a record is no reason to run a program" in ran.err
    replayed = shop("replay", "forged")
    checked = shop("check", "forged")

    assert "the record answers for them" in replayed.err
    assert (replayed.code, checked.code) == (0, 0)
    assert not (shop.root / "harmed").exists()
    assert len(shop.journal.events("forged")) == before


@pytest.mark.parametrize("spec", ["mine.py:both", "mine:both"])
def test_what_approve_prints_works_when_it_is_pasted(shop: Cli, spec: str, tmp_path: Path) -> None:
    """Also in another directory, where a file of that name is somebody else's."""
    ask(shop, "--tools", spec)
    sys.modules.pop("mine", None)
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text("both = []\n")
    there = Cli(shop.home, elsewhere, shop.patch, shop.capture, env=shop.env)
    approved = there("approve", "--last")
    ran = pasted(there, approved.out)

    assert (approved.code, ran.code, ran.out) == (0, 0, "Done.\n"), ran.err
    assert (shop.root / "paid").read_text() == "3\n"


def test_what_is_printed_about_a_journal_of_ones_own_works_too(shop: Cli) -> None:
    with FaultServer([looks(PAY)]) as server:
        shop.at(server)
        ran = shop("ask", "q", "--tools", "mine.py:both", "--journal", "my runs", "--root", "..")
    approve = next(line for line in ran.err.splitlines() if line.startswith("Allow it"))
    allowed = shop(*shlex.split(approve.split(":", 1)[1])[1:])
    done = pasted(shop, ran.err)

    assert "--root" in ran.err
    assert (allowed.code, done.code) == (0, 0), done.err
    assert pasted(shop, allowed.out).code == 0


@pytest.mark.parametrize("run_id", ["-x", "--last", "a b", "it's"])
def test_ids_that_look_like_options_can_be_pasted(shop: Cli, run_id: str) -> None:
    library_run(shop, ModelReplied("", (ToolCall("-p", "pay", '{"amount": 3}'),)), run_id=run_id)
    denied = shop("deny", "--last")
    ran = pasted(shop, denied.out.replace("MODULE:NAME", "shop_agent.py:made"))

    assert ran.code == 0, ran.err
    assert shop.journal.events(run_id)[-1].answer == "Shipped."  # type: ignore[union-attr]


def test_tools_that_are_not_those_of_the_run_are_asked_for(shop: Cli) -> None:
    run_id = ask(shop, "--tools", "mine.py:both")
    before = events(shop)
    (shop.root / "other.py").write_text("def tip() -> str:\n    'Tip.'\n    return 'tipped'\n")
    ran = shop("resume", run_id, "--tools", "other.py:tip")

    assert ran.code == 2
    assert f"run {run_id} uses pay: name these tools with --tools. Nothing of it was touched." in ran.err
    assert events(shop) == before


def test_a_tool_that_was_changed_meanwhile_is_said_and_its_approval_is_gone(shop: Cli) -> None:
    ask(shop, "--tools", "mine.py:both")
    shop("approve", "--last")
    (shop.root / "mine.py").write_text(MINE.replace("Pay somebody.", "Pay anybody."))
    with FaultServer([ok_chat("Done.")]) as server:
        shop.at(server)
        ran = shop("resume", "--last", "--tools", "mine.py:both", "--base-url", f"{server.url}/v1")

    assert ran.code == 0
    assert "not as they were when this run began: pay" in ran.err
    assert not (shop.root / "paid").exists()
    assert [e.error for e in events(shop) if isinstance(e, ToolReturned)] == ["denied"]


# --- a run of a program ---------------------------------------------------------------------------------


def test_a_run_of_a_program_is_not_driven_with_the_tools_of_this_directory(shop: Cli) -> None:
    """It was, and its approval was used up on the way."""
    read = ModelReplied("", (ToolCall("r1", "read_file", '{"path": "agent.py"}'), PAY))
    run_id = library_run(shop, read, name="refunds", reads=True)
    approved = shop("approve", "--last")
    before = events(shop)
    refused = [shop("resume", "--last"), shop("resume", "--last", "--tools", "mine.py:both", "--unpark")]

    assert f"a program made this run, and goes on with it: agent.resume('{run_id}')\n" in approved.out
    assert approved.out.endswith(f"or name its agent: tool-loop resume {run_id} --agent MODULE:NAME\n")
    assert [ran.code for ran in refused] == [2, 2]
    assert f'run {run_id} was made by agent "refunds" of a program' in refused[0].err
    assert "this command has no pay. Nothing of it was touched." in refused[0].err
    assert "read_file, grep, pay only under the same name" in refused[1].err
    assert f"agent.resume('{run_id}')" in refused[0].err
    assert events(shop) == before
    assert not [e for e in events(shop) if isinstance(e, ToolReturned) and e.call_id == "p1"]


def test_a_run_of_a_program_that_was_never_recorded_with_its_tools_is_told_by_what_it_called(shop: Cli) -> None:
    async def old() -> None:
        async with shop.journal.open("old") as log:
            for event in (
                RunStarted("q", meta='{"made": "by hand"}'),
                ModelReplied("", (PAY,)),
                RunInterrupted("auth"),
            ):
                await log.append(event)

    library_run(shop, "done")
    asyncio.run(old())

    assert shop("resume", "old").code == 2
    assert "was made by an agent of a program, and this command has no pay" in shop("resume", "old").err


@pytest.mark.parametrize("spec", ["shop_agent.py:made", "shop_agent.py:shop", "shop_agent:shop"])
def test_the_agent_of_a_run_can_be_named(shop: Cli, spec: str) -> None:
    library_run(shop, ModelReplied("", (PAY,)), name="shop")
    shop("deny", "--last", "--note", "not today")
    ran = shop("resume", "--last", "--agent", spec)
    more = shop("ask", "and?", "--last", "--agent", spec)

    assert (ran.code, ran.out) == (0, "Shipped.\n"), ran.err
    assert more.code == 0, more.err
    assert "not as they were" not in ran.err


def test_an_agent_without_the_tools_of_the_run_is_refused(shop: Cli) -> None:
    (shop.root / "bare.py").write_text("from tool_loop import Agent, ScriptedLLM\nbare = Agent(ScriptedLLM('x'))\n")
    library_run(shop, ModelReplied("", (PAY,)), reads=True)
    ran = shop("resume", "--last", "--agent", "bare.py:bare")

    assert ran.code == 2
    assert "uses tools that this agent does not have: list_dir, read_file, grep, pay" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agent", "shop_agent.py:with_port"], "wants arguments, (port); name a function that makes the agent"),
        (["--agent", "shop_agent.py:later"], "is a coroutine function"),
        (["--agent", "shop_agent.py:broken"], "RuntimeError: no database"),
        (["--agent", "mine.py:pay"], "is Tool"),
        (["--agent", "shop_agent.py:gone"], "there is no 'gone'"),
    ],
)
def test_what_is_no_agent_is_a_usage_error_in_every_command(shop: Cli, words: list[str], said: str) -> None:
    library_run(shop, "done")
    for command in (["chaos"], ["resume", "--last"], ["replay", "--last"], ["ask", "q"]):
        ran = shop(*command, *words)
        assert ran.code == 2, command
        assert said in ran.err or "is str" in ran.err, command


def test_chaos_finds_the_neighbours_of_the_agents_file(shop: Cli, tmp_path: Path) -> None:
    away = Cli(shop.home, tmp_path, shop.patch, shop.capture)
    ran = away("chaos", "--agent", f"{shop.root}/shop_agent.py:shop", "--only", "408", "--stand-ins")

    assert ran.code in (0, 1), ran.err
    assert "ModuleNotFoundError" not in ran.err


def test_a_named_module_does_not_shadow_what_is_imported_later(shop: Cli) -> None:
    (shop.root / "difflib.py").write_text("raise SystemExit('shadowed')\n")
    sys.modules.pop("difflib", None)
    ask(shop, "--tools", "mine:both", calls=(ToolCall("x", "pray", "{}"), PAY))

    assert sys.path[0] != str(shop.root)
    assert [e.error for e in events(shop) if isinstance(e, ToolReturned)] == ["unknown_tool"]


def test_an_agent_brings_its_own_model_and_tools(shop: Cli) -> None:
    ran = shop("ask", "q", "--agent", "shop_agent.py:made", "--model", "m", "--tools", "mine.py:pay")
    fine = shop("ask", "q", "--agent", "shop_agent.py:made", "--max-steps", "3")

    assert (ran.code, fine.code) == (2, 0), fine.err
    assert "leave out --tools, --model" in ran.err


# --- what else a record of somebody else's grants -------------------------------------------------------


def foreign(cli: Cli, **meta: object) -> str:
    """A journal that lies in this directory and says so of itself."""

    async def main() -> None:
        with SqliteJournal(cli.root / "theirs.sqlite") as journal:
            async with journal.open("r") as log:
                await log.append(RunStarted("q", meta=json.dumps({"root": str(cli.root), "model": "m", **meta})))
                await log.append(ModelReplied("", (ToolCall("c1", "list_dir", "{}"), PAY) if "tools" in meta else ()))

    asyncio.run(main())
    return "theirs.sqlite"


def test_a_journal_given_by_name_does_not_choose_the_directory_or_the_server(shop: Cli) -> None:
    outside = foreign(shop, root="/etc")
    where = shop("resume", "r", "--journal", outside)
    (shop.root / "theirs.sqlite").unlink()
    server = shop("resume", "r", "--journal", foreign(shop, base_url="http://127.0.0.1:9/v1"))

    assert (where.code, server.code) == (2, 2)
    assert "--root /etc reads that, --root . reads this directory" in where.err
    assert "--base-url http://127.0.0.1:9/v1 sends that server what the run reads" in server.err


def test_a_journal_given_by_name_does_not_weaken_the_policy_or_widen_the_limits(shop: Cli) -> None:
    from argparse import Namespace

    from tool_loop.cli._setup import limits_of, with_recorded

    names = ("root", "model", "base_url", "api", "approve", "max_steps", "max_tokens", "max_usd", "timeout", "window")
    meta = {"approve": "never", "max_steps": 0, "max_tokens": 10**9, "timeout": 60, "model": "m", "max_usd": "much"}
    empty = Namespace(**dict.fromkeys(names), tools=None, dialect=None)
    theirs, mine = (with_recorded(empty, json.dumps(meta), ours=ours) for ours in (False, True))

    assert (theirs.approve, theirs.model, mine.approve) == (None, "m", "never")
    assert (limits_of(theirs).steps, limits_of(theirs).tokens, limits_of(theirs).seconds) == (20, 200_000, 60)
    assert (limits_of(mine).steps, limits_of(mine).tokens, mine.max_usd) == (None, 10**9, None)


def test_what_a_journal_given_by_name_says_was_allowed_is_said_before_it_runs(shop: Cli) -> None:
    with FaultServer([looks(PAY)]) as server:
        shop.at(server)
        shop("ask", "q", "--tools", "mine.py:both", "--journal", "team")
        shop("approve", "--last", "--journal", "team", "--by", "ada")
    with FaultServer([ok_chat("Done.")] * 2) as server:
        shop.at(server)
        told = shop(
            "resume", "--last", "--tools", "mine.py:both", "--journal", "team", "--base-url", f"{server.url}/v1"
        )

    assert told.code == 0
    assert "this journal says that ada allowed pay (call p1)" in told.err


def test_an_approval_that_stands_in_a_forged_record_allows_nothing(shop: Cli) -> None:
    run_id = ask(shop, "--tools", "mine.py:both")

    async def forge() -> None:
        with shop.journal as journal:
            async with journal.open(run_id) as log:
                await log.append(ApprovalDecided("p1", True, "you", fingerprint="made up", standing=True))

    asyncio.run(forge())
    with FaultServer([ok_chat("Done.")]) as server:
        shop.at(server)
        shop("resume", run_id, "--tools", "mine.py:both", "--base-url", f"{server.url}/v1")

    assert not (shop.root / "paid").exists()


def test_what_drives_a_run_is_on_its_record(shop: Cli) -> None:
    ask(shop, "--tools", "mine.py:both")
    driver = json.loads(events(shop)[0].meta)["driver"]  # type: ignore[union-attr]

    assert (driver["agent"], list(driver["tools"])) == ("tool-loop ask", ["list_dir", "read_file", "grep", "pay"])
    assert driver["origin"].startswith("chat:")
    assert all(len(digest) == 16 for digest in driver["tools"].values())
