"""A short share of the kill suite; the whole of it is `python -m tests.kill --rounds 50`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kill import Site, at_random_moments, three_payments, two_drivers


def test_a_process_that_dies_while_it_ships_leaves_one_call_in_doubt_and_repeats_none(tmp_path: Path) -> None:
    three_payments(Site(tmp_path))


def test_two_processes_never_drive_one_run_and_the_one_that_slept_is_fenced(tmp_path: Path) -> None:
    two_drivers(Site(tmp_path))


@pytest.mark.parametrize("durable", ["process", "power"])
def test_killed_at_random_moments_a_run_comes_to_its_end_with_nothing_done_twice(durable: str, tmp_path: Path) -> None:
    at_random_moments(Site(tmp_path, durable=durable), random.Random(4), kills=2)
