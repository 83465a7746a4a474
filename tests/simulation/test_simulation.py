"""A share of the simulation, and the proof that it sees: each planted bug is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .mutants import MUTANTS
from .simulate import main, simulate

SHARE = 150
# How far to look for a planted bug: the most any of them has needed is about 700 seeds.
MOST = 5_000


@pytest.mark.parametrize("start", range(0, SHARE, 50))
def test_a_share_of_the_seeds_is_in_order(start: int) -> None:
    found = [str(b) for seed in range(start, start + 50) for b in simulate(seed).broken]

    assert found == []


def test_a_seed_tells_the_same_story_byte_for_byte_in_another_process_too() -> None:
    code = "from tests.simulation.simulate import simulate; print([simulate(n).digest for n in range(20)])"
    told = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
        for _ in range(2)
    ]

    assert told[0] == told[1]
    assert told[0].strip() == str([simulate(n).digest for n in range(20)])


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    with MUTANTS[name]():
        found = next((seed for seed in range(MOST) if simulate(seed).broken), None)

    assert found is not None, f"{name} was not found in {MOST} seeds"


def test_the_command_reports_and_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "20", "--jobs", "1"]) == 0
    assert "20 passed, 0 failed" in capsys.readouterr().out
    assert main(["--seed", "3"]) == 0
    assert "--- process 1" in capsys.readouterr().out
