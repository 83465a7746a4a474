"""The page in a real browser: nothing of its content comes alive, and its keys, search and filter work."""

# ruff: noqa: E501  texts and tables read better on one line

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit import report_runs
from tests.kit.browser import POLICY, ask, dom, needs_browser
from tool_loop.report import diff, page

pytestmark = pytest.mark.slow  # twenty starts of a browser: with the slow suites, in CI and by `pytest -m slow`

KEYS = """
const key = (k) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true}));
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const all = (q) => [...document.querySelectorAll(q)];
const at = () => document.querySelector(".on > summary > b").textContent;
const seen = () => all("main details:not(.in)").filter((r) => !r.closest("[hidden]")).length;
const type = async (text) => {
  const box = document.querySelector("#search"); box.value = text;
  box.dispatchEvent(new Event("input")); await wait(300);
};
"""


@needs_browser
def test_content_never_comes_alive_even_without_the_policy(tmp_path: Path) -> None:
    html = POLICY.sub("", page(report_runs.hostile(2_000)))

    shown = dom(html, tmp_path)

    assert "<title>owned" not in shown
    assert shown.count("<script") == 1
    assert "<img" not in shown
    assert "<script>document.title='owned'</script>" not in shown


@needs_browser
def test_content_never_comes_alive_in_a_comparison(tmp_path: Path) -> None:
    html = POLICY.sub("", diff(report_runs.hostile(10), report_runs.hostile(20)))

    shown = dom(html, tmp_path)

    assert "<title>owned" not in shown
    assert (shown.count("<script"), shown.count("<img")) == (1, 0)


@needs_browser
def test_the_policy_lets_the_pages_own_script_run_and_no_other(tmp_path: Path) -> None:
    html = page(report_runs.rich()).replace("</main>", "</main><script>document.title='owned'</script>")

    shown = dom(html, tmp_path)

    assert '<html lang="en" class="js"' in shown
    assert "<title>owned" not in shown


@needs_browser
def test_it_reads_without_its_script(tmp_path: Path) -> None:
    html = re.sub(r"<script>.*?</script>", "", page(report_runs.rich()), flags=re.DOTALL)
    script = """
    const shown = (e) => e.getClientRects().length > 0;
    const call = document.querySelector("#s1c1"), body = call.querySelector("div");
    const before = body.innerText; call.querySelector("summary").click();
    return {
      opens: [before, shown(body) && body.innerText.includes("unclosed group at position 15")],
      controls: ["#search", "#theme", "#keys"].map((q) => shown(document.querySelector(q))),
      answer: shown(document.querySelector(".answer p")), drawn: shown(document.querySelector(".glance svg")),
    };
    """

    said = ask(html, script, tmp_path)

    assert said == {"opens": ["", True], "controls": [False, False, False], "answer": True, "drawn": True}


@needs_browser
def test_keys_move_from_row_to_row_and_from_failure_to_failure(tmp_path: Path) -> None:
    script = f"""{KEYS}
    const went = [];
    for (const k of ["j", "j", "j", "j", "k", "n", "n", "p", "G", "j", "g", "k"]) {{ key(k); went.push(at()); }}
    key("n"); key("o");
    return [went, document.querySelector(".on").open];
    """

    went, opened = ask(page(report_runs.rich()), script, tmp_path)

    assert went == [
        "question", "model", "grep", "list_dir", "grep", "read_file", "read_file", "read_file",
        "answered", "answered", "question", "question",
    ]  # fmt: skip
    assert opened is True


@needs_browser
def test_search_and_filter_leave_the_rows_that_fit_and_say_how_many(tmp_path: Path) -> None:
    script = f"""{KEYS}
    const out = {{}};
    await type("ERRORS.py notes");
    out.both = [seen(), document.querySelector("#found").textContent, CSS.highlights.get("hit").size > 0];
    await type("no such words anywhere");
    out.none = [seen(), all("main > section").filter((s) => !s.hidden).length];
    key("Escape");
    out.reset = [seen() === all("main details:not(.in)").length, document.querySelector("#search").value];
    document.querySelector('.chips [data-k="not_found"]').click();
    out.kind = all("main details:not(.in)").filter((r) => !r.closest("[hidden]")).map((r) => r.dataset.k);
    document.querySelector('.chips [data-k="rate_limit"]').click();
    out.kinds = all("main details:not(.in)").filter((r) => !r.closest("[hidden]")).map((r) => r.dataset.k);
    document.querySelector('a[href="#s2c4"]').click(); await wait(50);
    out.link = [document.querySelector(".on").id, document.querySelector(".on").open, seen() > 5];
    return out;
    """

    said = ask(page(report_runs.rich()), script, tmp_path)

    assert said["both"][0] == int(said["both"][1].split()[0]) > 0
    assert said["both"][2] is True
    assert said["none"] == [0, 0]
    assert said["reset"] == [True, ""]
    assert said["kind"] == ["not_found"]
    assert said["kinds"] == ["rate_limit", "not_found"]
    assert said["link"] == ["s2c4", True, True]


@needs_browser
def test_everything_folds_the_theme_turns_and_the_bars_rescale(tmp_path: Path) -> None:
    script = f"""{KEYS}
    const rows = all("main details:not(.in)"), out = {{}};
    key("e"); out.unfolded = rows.every((r) => r.open);
    key("e"); out.folded = rows.every((r) => !r.open);
    const paper = () => getComputedStyle(document.body).backgroundColor;
    const first = paper(); key("t"); const second = paper(); key("t"); out.themes = [first !== second, paper() === first];
    key("?"); out.help = !document.querySelector("#keys").hidden; key("Escape"); out.gone = document.querySelector("#keys").hidden;
    key("/"); out.search = document.activeElement.id; document.activeElement.blur();
    const width = () => getComputedStyle(document.querySelector("#s2 .m i"), "::before").width;
    const before = width(); key("s"); out.wider = parseFloat(width()) > parseFloat(before); key("s"); out.back = width() === before;
    dispatchEvent(new Event("beforeprint")); out.paper = all("details").every((r) => r.open); dispatchEvent(new Event("afterprint"));
    document.querySelector(".jump").dispatchEvent(new MouseEvent("click", {{clientX: 1e6}}));
    out.map = document.querySelector(".on").closest("section").id;
    return out;
    """

    said = ask(page(report_runs.rich()), script, tmp_path)

    assert said.pop("search") == "search"
    assert said.pop("themes") == [True, True]
    assert said.pop("map") == "s6"
    assert all(said.values()), said


@needs_browser
def test_every_control_and_row_has_a_name(tmp_path: Path) -> None:
    script = """
    const named = (e) => (e.getAttribute("aria-label") || e.textContent).trim().length > 0;
    const all = (q) => [...document.querySelectorAll(q)];
    return {
      nameless: all("button, a, summary, h1, h2, h3, [role=region], [role=dialog]").filter((e) => !named(e)).length,
      inputs: all("input").every((e) => e.ariaLabel),
      broken: all('a[href^="#"]').filter((a) => !document.getElementById(a.hash.slice(1))).map((a) => a.hash),
      twice: all("[id]").length - new Set(all("[id]").map((e) => e.id)).size,
      wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    };
    """
    runs = {"rich": page(report_runs.rich()), "two": diff(report_runs.rich(), report_runs.rich()[:-9])}

    for name, html in runs.items():
        said = ask(html, script, tmp_path)

        assert said == {"nameless": 0, "inputs": True, "broken": [], "twice": 0, "wide": 0}, name


@needs_browser
def test_a_run_of_400_steps_and_a_line_of_a_megabyte_are_no_strain(tmp_path: Path) -> None:
    script = """
    const start = performance.now();
    document.querySelectorAll("main details").forEach((d) => { d.open = true; });
    document.body.getBoundingClientRect();
    return {steps: document.querySelectorAll(".s").length, scale: document.documentElement.classList.contains("by-step"),
            wide: document.documentElement.scrollWidth - document.documentElement.clientWidth};
    """

    assert ask(page(report_runs.long(400)), script, tmp_path) == {"steps": 400, "scale": True, "wide": 0}
    assert ask(page(report_runs.hostile(1_000_000)), script, tmp_path)["wide"] == 0
