"""Tests of the tests: a loop or a journal with one safeguard missing must fail a proof."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import pytest

import tool_loop
from tests.kit.proofs import STORIES, changed, mutant, survives_cancels, survives_every_crash
from tool_loop.agent import Driver
from tool_loop.journal import statements as sqlite_store
from tool_loop.runtime.clock import run_virtual

from .test_durability import slow_logs
from .test_leases import late_writer_is_fenced

SHIELD = ("late = await recorded(self.log, event, self.emit)", "late = await self.log.append(event)")
INTENT = ("await self.record(events.IntentRecorded(tuple(once), tuple(approved)))", "pass")
DOUBT = ("await self.record(events.RunResumed())", "pass")
FENCE = ('FROM runs WHERE n = ? AND fence = ?"', 'FROM runs WHERE n = ? AND ? > 0"')

PAYS = STORIES["reads, stores, pays"]


def cancels(loop: type[Driver]) -> Coroutine[Any, Any, int]:
    return survives_cancels(PAYS, slow_logs(), loop)


def crashes(loop: type[Driver]) -> Coroutine[Any, Any, int]:
    return survives_every_crash(PAYS, loop)


@pytest.mark.parametrize(
    ("change", "proof", "says"),
    [
        (SHIELD, cancels, "paid for and lost|open|is said"),
        (INTENT, crashes, "I7|twice"),
        (DOUBT, crashes, "twice|second time"),
    ],
    ids=["without the shield", "without the intent record", "without asking what is in doubt"],
)
def test_a_loop_without_a_safeguard_fails_a_proof(change: tuple[str, str], proof: Any, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        run_virtual(proof(mutant(change)))
    assert run_virtual(proof(Driver)) > 0


@contextmanager
def journals_with(change: tuple[str, str]) -> Iterator[Any]:
    """The SQLite journal, built anew on a store whose source was changed; the real one stays as it is."""
    names = [f"tool_loop.journal.{name}" for name in ("statements", "leases", "run", "sqlite")]
    real = {name: sys.modules.pop(name) for name in names}
    try:
        spec = find_spec(names[0])
        assert spec is not None
        store = sys.modules[names[0]] = module_from_spec(spec)
        exec(compile(changed(sqlite_store, [change]), str(spec.origin), "exec"), vars(store))
        tool_loop.journal.statements = store  # type: ignore[attr-defined]
        yield importlib.import_module("tool_loop.journal.sqlite").SqliteJournal
    finally:
        sys.modules.update(real)
        for name, module in real.items():
            setattr(tool_loop.journal, name.rpartition(".")[2], module)


def test_a_journal_without_the_fencing_check_fails_a_proof(tmp_path: Path) -> None:
    with journals_with(FENCE) as unfenced, pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        late_writer_is_fenced(tmp_path / "unfenced.db", unfenced)

    late_writer_is_fenced(tmp_path / "fenced.db")
