"""Every program in the guides runs, page by page and in order, offline and in an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs" / "guides").glob("*.md")), ROOT / "docs" / "quickstart.zh-CN.md"]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_of_a_guide_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs = FENCE.findall(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "__main__"}

    for n, code in enumerate(programs, 1):
        exec(compile(code, f"{page.name}, program {n}", "exec", dont_inherit=True), names)

    assert programs
    assert not re.search(r"^```py\b", page.read_text(encoding="utf-8"), re.MULTILINE), "a program that is not run"


def test_every_guide_is_on_the_site_and_in_the_list_for_models() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")

    for page in (page for page in PAGES if page.parent.name == "guides"):
        assert f"guides/{page.name}" in navigation
        assert f"guides/{page.name}" in listed
