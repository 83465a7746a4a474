"""How records get into the file: many at once, when the disk fails, and until the last one is out."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from tests.kit import sqlite_case
from tests.kit.sqlite_case import ONE_RUN, Clock, Plan, fill, full, state_of
from tool_loop.errors import JournalError
from tool_loop.events import (
    Event,
    ModelReplied,
    Reminded,
    RunResumed,
    RunStarted,
    ToolCall,
    ToolReturned,
)
from tool_loop.journal.schema import translated
from tool_loop.journal.sqlite import SqliteJournal
from tool_loop.journal.writer import BATCH_JOBS, COMMITS_BETWEEN_CHECKPOINTS, INLINE_CHARS
from tool_loop.runtime.clock import run_virtual

# Fixtures are found where they have a name.
path = sqlite_case.path
journal = sqlite_case.journal


def test_with_fsync_what_comes_together_is_committed_together(path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        await asyncio.gather(*(fill(journal, run_id=f"r{n}") for n in range(50)))

    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        asyncio.run(main(journal))
        assert {journal.events(f"r{n}") for n in range(50)} == {tuple(ONE_RUN)}

    assert plan.begun < 50 * (len(ONE_RUN) + 2) / 5


def test_results_that_land_together_are_recorded_once_each_and_in_one_order(journal: SqliteJournal) -> None:
    many = [ToolCall(str(n), "look") for n in range(30)]

    async def main() -> list[Event]:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            await log.append(ModelReplied("", tuple(many)))
            await asyncio.gather(*(log.append(ToolReturned(call.id, "x" * 9000)) for call in many))
            return log.state.events

    folded = asyncio.run(main())

    assert list(journal.events("r1")) == folded
    assert len(folded) == 32


def test_an_append_that_is_no_longer_waited_for_is_recorded_and_folded(journal: SqliteJournal) -> None:
    async def main() -> None:
        async with journal.open("other"), journal.open("r1") as log:
            await log.append(RunStarted("q"))
            task = asyncio.ensure_future(log.append(Reminded("dropped?")))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await log.append(Reminded("next"))
            assert log.state.events == [RunStarted("q"), Reminded("dropped?"), Reminded("next")]

    asyncio.run(main())
    assert len(journal.events("r1")) == 3


@pytest.mark.parametrize("turns", range(12))
def test_a_cancel_while_a_run_is_being_opened_leaves_it_free(turns: int, journal: SqliteJournal) -> None:
    async def main() -> None:
        async with journal.open("other"):
            task = asyncio.ensure_future(fill(journal))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            await state_of(journal)

    asyncio.run(main())


def test_several_event_loops_in_several_threads_share_a_journal(journal: SqliteJournal) -> None:
    def work(name: str) -> None:
        async def main() -> None:
            await asyncio.gather(*(fill(journal, run_id=f"{name}{n}") for n in range(20)))

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(journal.runs()) == 80
    assert {journal.events(run.id) for run in journal.runs()} == {tuple(ONE_RUN)}


def test_a_large_record_is_written_by_the_writers_own_thread(path: Path) -> None:
    events = [RunStarted("q"), Reminded("x" * (INLINE_CHARS + 1)), Reminded("small")]

    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal, events))
        assert journal.events("r1") == tuple(events)


def test_more_than_fits_one_transaction_is_written_in_several(path: Path) -> None:
    gate = threading.Event()
    plan = Plan()
    ids = [f"r{n}" for n in range(60)]

    def fails(_statement: str, _values: object) -> None:
        gate.wait(10)

    async def main(journal: SqliteJournal) -> None:
        async with AsyncExitStack() as stack:
            logs = [await stack.enter_async_context(journal.open(run_id)) for run_id in ids]
            await asyncio.gather(*(log.append(RunStarted("q")) for log in logs))
            plan.fails, plan.begun = fails, 0
            many = [asyncio.ensure_future(log.append(Reminded("y"))) for log in logs * (BATCH_JOBS // 20)]
            await asyncio.sleep(0)
            gate.set()
            await asyncio.gather(*many)
            assert 3 <= plan.begun <= 5

    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        asyncio.run(main(journal))
        assert {len(journal.events(run_id)) for run_id in ids} == {1 + BATCH_JOBS // 20}


def test_the_write_ahead_log_stays_small(path: Path) -> None:
    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            for n in range(10 * COMMITS_BETWEEN_CHECKPOINTS):
                await log.append(Reminded(f"{n} {'x' * 900}"))

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))
        assert path.with_name("runs.db-wal").stat().st_size < 16_000_000, "all of it together is 40 MB"


def test_a_journal_works_in_an_event_loop_with_virtual_time(journal: SqliteJournal) -> None:
    async def main() -> None:
        await fill(journal, [*ONE_RUN[:2], ToolReturned("1", "x" * 200_000)])
        await asyncio.sleep(86_400)
        await fill(journal, [RunResumed()])

    run_virtual(main())
    assert len(journal.events("r1")) == 4


def test_a_record_that_overtakes_another_on_the_way_back_is_folded_behind_it(path: Path) -> None:
    large, small = Reminded("x" * (INLINE_CHARS + 1)), Reminded("small")

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            task = asyncio.ensure_future(log.append(large))
            await asyncio.sleep(0)
            until = time.monotonic() + 10
            while time.monotonic() < until and (len(journal.records("r1")) < 2 or journal._begun[1]._with_thread):  # type: ignore[index]
                pass  # until the thread has written it; this loop has not heard of it
            await log.append(small)
            await task
            assert log.state.events == [RunStarted("q"), large, small]

    with SqliteJournal(path) as journal:
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), large, small)


# --- when writing fails ----------------------------------------------------------------------------


def test_what_sqlite_has_no_code_for_is_told_in_its_own_words(path: Path) -> None:
    plan = Plan(lambda *_: OverflowError("too large"))

    with pytest.raises(OverflowError):
        SqliteJournal(path, connect=plan.connect)
    assert translated(OverflowError("too large"), "x.db").message == "cannot write to the journal x.db: too large"


@pytest.mark.parametrize("durable", ["process", "power"])
def test_what_cannot_be_written_is_an_error_and_changes_nothing(durable: str, path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            plan.fails = lambda statement, _: full() if statement.startswith("INSERT INTO records") else None
            with pytest.raises(JournalError, match=r"no space left for the journal .*make room, then resume"):
                await log.append(Reminded("lost"))
            assert log.state.events == [RunStarted("q")]
            plan.fails = lambda *_: None
            await log.append(Reminded("kept"))

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), Reminded("kept"))


@pytest.mark.parametrize("durable", ["process", "power"])
def test_only_what_cannot_be_written_fails(durable: str, path: Path) -> None:
    plan = Plan(lambda _, values: full() if "poison" in str(values) else None)

    async def main(journal: SqliteJournal) -> list[object]:
        async with journal.open("r1") as log, journal.open("r2") as other:
            await log.append(RunStarted("q"))
            await other.append(RunStarted("q"))
            words = ["a", "poison", "b", "poison", "c"]
            return await asyncio.gather(
                *(run.append(Reminded(word)) for word in words for run in (log, other)), return_exceptions=True
            )

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        outcomes = asyncio.run(main(journal))
        assert [type(o).__name__ for o in outcomes] == [
            n for w in "NJNJN" for n in [{"N": "NoneType", "J": "JournalError"}[w]] * 2
        ]
        assert [e.text for e in journal.events("r1")[1:]] == ["a", "b", "c"]  # type: ignore[union-attr]


def test_a_lease_that_could_not_be_given_back_can_be_taken_again_at_once(path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            plan.fails = lambda statement, _: full() if statement.startswith("BEGIN") else None
        plan.fails = lambda *_: None
        assert await state_of(journal) == [RunStarted("q")]

    with SqliteJournal(path, connect=plan.connect) as journal:
        asyncio.run(main(journal))


@pytest.mark.parametrize("durable", ["process", "power"])
def test_a_lease_whose_commit_failed_is_not_held(durable: str, path: Path) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        plan.fails = lambda statement, _: full() if statement == "COMMIT" else None
        with pytest.raises(JournalError):
            await state_of(journal)
        plan.fails = lambda *_: None
        await fill(journal)

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.runs()[0].holder == ""


@pytest.mark.parametrize("durable", ["process", "power"])
def test_a_program_that_keeps_the_file_locked_is_waited_for_and_then_named_as_the_cause(
    durable: str, path: Path
) -> None:
    plan = Plan()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(JournalError, match=r"another program kept the journal .* locked"):
                    await log.append(Reminded("locked"))
                other.execute("ROLLBACK")
            await log.append(Reminded("free"))

    with SqliteJournal(path, durable=durable, connect=plan.connect) as journal:  # type: ignore[arg-type]
        asyncio.run(main(journal))
        assert journal.events("r1") == (RunStarted("q"), Reminded("free"))


def test_a_file_that_cannot_be_opened_for_a_while_fails_only_for_that_while(path: Path) -> None:
    plan = Plan()

    def connect(path: str, wait: float) -> sqlite3.Connection:
        if plan.begun < 0:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return plan.connect(path, wait)

    with SqliteJournal(path, connect=connect) as journal:
        plan.begun = -1
        with pytest.raises(JournalError, match="check the path and its rights"):
            asyncio.run(state_of(journal))
        with pytest.raises(JournalError, match="check the path and its rights"):
            journal.runs()
        plan.begun = 0
        asyncio.run(fill(journal))
        assert journal.events("r1") == tuple(ONE_RUN)


def test_leases_that_cannot_be_renewed_are_tried_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tried = threading.Semaphore(0)
    plan = Plan()

    def fails(statement: str, _values: object) -> Exception | None:
        if "max(lease_until" not in statement:
            return None
        tried.release()
        return full()

    async def main(journal: SqliteJournal) -> None:
        async with journal.open("r1") as log:
            await log.append(RunStarted("q"))
            assert tried.acquire(timeout=10)
            assert tried.acquire(timeout=10)
            plan.fails = lambda *_: None
            await log.append(Reminded("still ours"))

    plan.fails = fails
    with SqliteJournal(path, connect=plan.connect, lease_seconds=0.06) as journal:
        asyncio.run(main(journal))

    assert "could not renew the leases" in caplog.text


# --- letting go ------------------------------------------------------------------------------------


def test_a_closed_journal_says_so(journal: SqliteJournal) -> None:
    asyncio.run(fill(journal))
    journal.close()
    journal.close()

    with pytest.raises(JournalError, match="is closed"):
        asyncio.run(state_of(journal))
    assert len(journal.events("r1")) == len(ONE_RUN)


def test_a_journal_that_is_closed_from_its_own_thread_does_not_wait_for_itself(path: Path) -> None:
    closed = threading.Event()
    journals: list[SqliteJournal] = []

    class Closing(Clock):
        def __call__(self) -> float:
            if threading.current_thread() is not threading.main_thread():
                journals.pop().close()
                closed.set()
            return self.time

    journals.append(SqliteJournal(path, clock=Closing(), lease_seconds=0.06))

    async def main() -> None:
        async with journals[0].open("r1"):
            assert closed.wait(10)

    asyncio.run(main())


def test_closing_while_runs_are_open_gives_them_back_and_refuses_what_comes_after(
    journal: SqliteJournal, path: Path
) -> None:
    async def main() -> None:
        async with journal.open("r2"), journal.open("r1") as log:
            await log.append(RunStarted("q"))
            landing = asyncio.ensure_future(log.append(Reminded("on its way")))
            await asyncio.sleep(0)
            journal.close()
            await landing
            with pytest.raises(JournalError, match="is closed"):
                await log.append(Reminded("too late"))

    asyncio.run(main())
    with SqliteJournal(path) as again:
        assert asyncio.run(state_of(again)) == [RunStarted("q"), Reminded("on its way")]


def test_a_journal_that_is_forgotten_ends_its_thread_and_closes_its_file(path: Path) -> None:
    plan = Plan()
    journal = SqliteJournal(path, connect=plan.connect)
    asyncio.run(fill(journal))
    (thread,) = [t for t in threading.enumerate() if t.name == f"journal {path}"]

    del journal
    gc.collect()
    thread.join(10)

    assert not thread.is_alive()
    assert not path.with_name("runs.db-wal").exists(), "the last one out folds the log into the file"


def test_an_event_loop_that_ends_too_early_keeps_no_run(path: Path) -> None:
    reached, held = threading.Event(), threading.Event()
    plan = Plan()

    def fails(statement: str, _values: object) -> None:
        if "INSERT OR IGNORE" in statement and threading.current_thread() is not threading.main_thread():
            reached.set()
            held.wait(10)

    async def leave(journal: SqliteJournal) -> None:
        task = asyncio.ensure_future(state_of(journal))
        for _ in range(5):
            await asyncio.sleep(0)
        assert reached.wait(10)
        asyncio.get_running_loop().stop()
        await asyncio.wait({task})

    plan.fails = fails
    with SqliteJournal(path, durable="power", connect=plan.connect) as journal:
        loop = asyncio.new_event_loop()
        task = loop.create_task(leave(journal))
        with pytest.raises(RuntimeError, match="stopped"):
            loop.run_until_complete(task)
        for left in (task, *asyncio.all_tasks(loop)):
            left._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        held.set()
        asyncio.run(fill(journal))
        assert journal.events("r1") == tuple(ONE_RUN)


FORKED = """
import asyncio, os, sys, warnings
from tool_loop.events import RunStarted
from tool_loop.journal.schema import translated
from tool_loop.journal.sqlite import SqliteJournal
warnings.simplefilter("ignore")
journal = SqliteJournal(sys.argv[1])
async def one(run_id):
    async with journal.open(run_id) as log:
        await log.append(RunStarted(run_id))
asyncio.run(one("before"))
if os.fork() == 0:
    asyncio.run(one("child"))
    sys.exit()
os.wait()
asyncio.run(one("parent"))
print(sorted(run.question for run in journal.runs()))
"""


def test_after_a_fork_each_process_writes_for_itself(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED, path], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("['before', 'child', 'parent']\n", "")
