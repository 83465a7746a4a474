"""The eval without a model: what it plants, what its arms tell, how it scores, and that it can be resumed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tool_loop import MemoryJournal, ScriptedLLM
from tool_loop.errors import ProviderError
from tool_loop.evals import ARMS, KINDS, Outcome, Plan, mcnemar, run_all, table, tasks, wilson
from tool_loop.evals.reader import reader


def outcomes(plan: Plan, llm: Any = reader, journal: Any = None) -> list[Outcome]:
    async def run() -> list[Outcome]:
        return [outcome async for outcome in run_all(plan, llm, journal or MemoryJournal())]

    return asyncio.run(run())


def test_every_kind_of_failure_has_a_task_and_the_planted_call_really_fails_that_way() -> None:
    journal = MemoryJournal()
    found = outcomes(Plan(arms=("ours",)), journal=journal)

    assert {outcome.kind for outcome in found} == set(KINDS)
    for outcome in found:
        errors = [getattr(event, "error", None) for event in journal.events(outcome.run_id)]
        if outcome.kind not in ("no failure", "truncated", "repeated"):
            assert outcome.kind in errors, outcome


def test_a_model_that_reads_hints_recovers_where_they_hold_the_answer() -> None:
    found = outcomes(Plan(arms=("ours",), repeat=3))

    assert [outcome for outcome in found if not outcome.recovered] == []


def test_and_recovers_less_where_it_is_told_an_error_and_nothing_else() -> None:
    found = outcomes(Plan(arms=("bare",), kinds=("not_found", "unknown_tool", "outcome_unknown", "timed_out")))

    assert not any(outcome.recovered for outcome in found)


def test_a_world_is_the_same_for_every_arm_and_another_for_every_seed(tmp_path: Path) -> None:
    first, again, other = (tasks(seed, tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "c")))

    assert [task.question for task in first] == [task.question for task in again]
    assert [task.question for task in first] != [task.question for task in other]


def test_a_false_claim_and_a_lost_run_are_counted_apart() -> None:
    plan = Plan(arms=("ours",), kinds=("not_found",))
    claimed = outcomes(plan, lambda: ScriptedLLM(*["It is 99999, surely."] * 9))
    lost = outcomes(plan, lambda: ScriptedLLM(ProviderError("gone", kind="auth")))

    assert [(o.recovered, o.false_claim, o.lost) for o in claimed] == [(False, True, False)]
    assert [(o.recovered, o.false_claim, o.lost) for o in lost] == [(False, False, True)]


def test_runs_on_record_are_not_paid_for_again() -> None:
    journal, plan = MemoryJournal(), Plan(arms=("ours",), kinds=("not_found", "bad_json"))
    first = outcomes(plan, journal=journal)

    def no_model() -> ScriptedLLM:
        return ScriptedLLM()

    assert sorted(map(str, outcomes(plan, no_model, journal))) == sorted(map(str, first))


@pytest.mark.parametrize(
    ("good", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_wilsons(good: int, of: int, low: float, high: float) -> None:
    assert wilson(good, of) == pytest.approx((low, high), abs=1e-4)


def test_only_pairs_that_differ_count_in_the_paired_test() -> None:
    assert mcnemar([True] * 9, [True] * 9) == 1.0
    assert mcnemar([True] * 8, [False] * 8) == pytest.approx(2 / 2**8)


def test_the_table_has_a_row_for_each_kind_and_one_for_all() -> None:
    found = outcomes(Plan(kinds=("not_found", "bad_json")))
    rows = table(found).splitlines()

    assert [row.split(" | ")[0].lstrip("| ") for row in rows[2:]] == ["not_found", "bad_json", "all"]
    assert all(arm in rows[0] for arm in ARMS)


def test_the_command_prints_the_table_and_writes_the_outcomes(tmp_path: Path) -> None:
    kept = ["--journal", str(tmp_path / "runs.sqlite"), "-o", str(tmp_path / "out.jsonl")]
    words = ["eval", "--scripted", "--kinds", "not_found,denied", *kept]
    done = subprocess.run([sys.executable, "-m", "tool_loop", *words], capture_output=True, text=True, check=True)

    assert "| not_found |" in done.stdout
    assert len([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]) == 6


def test_a_kind_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    words = ["eval", "--scripted", "--kinds", "bad_luck", "--journal", str(tmp_path / "r.sqlite")]
    done = subprocess.run([sys.executable, "-m", "tool_loop", *words], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "there is no 'bad_luck'" in done.stderr
