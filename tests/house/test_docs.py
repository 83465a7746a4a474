"""The documents say what the code does: their blocks are run, their tables compared, in both languages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tool_loop.catalogue import table

ROOT = Path(__file__).parents[2]
LANGUAGES = ["README.md", "README.zh-CN.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name: str, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall((ROOT / name).read_text()) if kind == language]


def after(name: str, mark: str) -> str:
    """What stands behind a mark, up to the next heading or mark."""
    text = (ROOT / name).read_text()
    assert f"<!-- {mark}" in text, f"{name} has no mark {mark!r}"
    behind = text.split(f"<!-- {mark}", 1)[1].split("-->", 1)[1]
    return re.split(r"^## |^<!-- ", behind, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("n", range(len(blocks("README.md", "python"))))
def test_the_programs_in_the_readme_run(name: str, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(name, "python")[n]

    exec(compile(code, f"{name}, program {n + 1}", "exec"), {"__name__": "readme"})

    assert code.strip()


GUIDES = [(name, n) for name in ("docs/changing-things.md",) for n in range(len(blocks(name, "python")))]


@pytest.mark.parametrize(("name", "n"), GUIDES)
def test_the_programs_in_the_guides_run(name: str, n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    exec(compile(blocks(name, "python")[n], f"{name}, program {n + 1}", "exec"), {"__name__": "guide"})


@pytest.mark.parametrize("name", ["README.md"])
def test_the_failure_table_is_the_one_in_the_code(name: str) -> None:
    assert table() in after(name, "failures"), "run: python -m tool_loop.catalogue, and put it into README.md"


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_demo_prints_what_the_readme_shows(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo.py")], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == FENCE.findall(after(name, "demo"))[0][1].strip(), (
        f"put the output of demo.py into {name}"
    )


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("mark", ["overhead", "context", "conversations", "journal"])
def test_every_table_of_measured_figures_is_filled(name: str, mark: str) -> None:
    assert re.search(r"^\|.*\d.*\|$", after(name, mark), re.MULTILINE)


def test_both_languages_have_the_same_words_for_failures_and_the_same_figures() -> None:
    def machine_words(name: str) -> list[list[str]]:
        rows = re.findall(r"^\|.*\|$", (ROOT / name).read_text(), re.MULTILINE)
        # `denied`, and cells that are nothing but a figure.
        return [re.findall(r"`[a-z_]+`|(?<=\| )[\d.,]+%?(?= \|)", row) for row in rows]

    assert machine_words(LANGUAGES[0]) == machine_words(LANGUAGES[1])


def test_both_languages_have_the_same_structure() -> None:
    def shape(name: str) -> list[object]:
        text = (ROOT / name).read_text()
        outside = FENCE.sub("", text)
        return [
            [len(h) for h in re.findall(r"^(#+) ", outside, re.MULTILINE)],
            [len(rows.strip().splitlines()) for rows in re.findall(r"((?:^\|.*\n)+)", outside, re.MULTILINE)],
            [(kind, code) for kind, code in FENCE.findall(text) if kind in ("python", "console", "text")],
            re.findall(r"\]\(((?!README)[^)]+)\)", text),
        ]

    for english, chinese in zip(shape(LANGUAGES[0]), shape(LANGUAGES[1]), strict=True):
        assert english == chinese


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_file_the_readme_points_to_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    targets = {t for t in re.findall(r"\]\(([^)#]+)\)", text) if not t.startswith("http")}

    assert targets
    assert [t for t in sorted(targets) if not (ROOT / t).exists()] == []
