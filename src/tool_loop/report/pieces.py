"""The small parts that rows, notes and comparisons are put together from.

Terse on purpose: a run of 400 steps has a thousand rows, and each byte here is a kilobyte there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tool_loop.events import ModelReplied

from .text import attribute, block, count, dollars, escaped, fields, line, seconds

_PATCH_LINES = 1_000
LINE = 140  # characters of a text on one line: about what a wide screen shows before the bar


def row(kind: str, head: str, body: str, *, anchor: str = "", failures: str = "", call_id: str = "") -> str:
    """A line, folded over its details. `failures` are the kinds of failure it can be found by."""
    about = f" id={anchor}" if anchor else ""
    about += f' data-k="{attribute(failures)}"' if failures else ""
    kind = f'"{kind}"' if " " in kind else kind
    named = f' data-call="{attribute(call_id)}"' if call_id else ""
    return f"<details class={kind}{about}><summary>{head}</summary><div{named}>{body}</div></details>\n"


def tag(word: str, colour: str = "") -> str:
    return f"<em class={colour}>{escaped(word)}</em>" if colour else f"<em>{escaped(word)}</em>"


def failed(word: str) -> str:
    return f"<span class=kind>{escaped(word)}</span>"


def skim(text: str) -> str:
    """A text's beginning, on the line of its row."""
    return f"<span>{escaped(line(text, LINE))}</span>" if text else ""


def say(text: str) -> str:
    """What somebody said: prose, with its line breaks."""
    return f"<p class=say>{escaped(text)}</p>"


def titled(title: str, body: str) -> str:
    return f"<section><h4>{title}</h4>{body}</section>"


def pairs(items: Iterable[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{escaped(k)}<dd>{escaped(v)}' for k, v in items)}</dl>"


def patch(lines: Sequence[str]) -> str:
    """Lines that went and came; said by their first character as well as by their colour."""
    kinds = {"+": "ins", "-": "del"}
    drawn = ((kinds.get(line[:1], "span"), escaped(line)) for line in lines[:_PATCH_LINES])
    shown = "".join(f"<{kind}>{text}</{kind}>" for kind, text in drawn)
    more = f"<p><small>{len(lines) - _PATCH_LINES:,} more lines</small>" if len(lines) > _PATCH_LINES else ""
    return f"<pre class=patch>{shown}</pre>{more}"


def given(text: str) -> str:
    """Arguments, one field per line; a value of several lines as a block. As they came when not JSON."""
    found = fields(text)
    if not found:
        return block(text)
    values = ((name, block(v) if "\n" in v or len(v) > 400 else escaped(v)) for name, v in found.items())
    return f"<dl class=mono>{''.join(f'<dt>{escaped(name)}<dd>{value}' for name, value in values)}</dl>"


def spent(it: ModelReplied) -> str:
    """Tokens read and written, cost, time: what stands at the end of a reply's line."""
    usage = it.usage
    parts: list[str] = []
    if usage.input is not None or usage.output is not None:
        read = "?" if usage.input is None else count(usage.input)
        parts.append(f"{read} → {'?' if usage.output is None else count(usage.output)}")
    if it.cost is not None:
        parts.append(dollars(it.cost))
    if it.seconds:
        parts.append(seconds(it.seconds))
    return " · ".join(parts)


def bar(start: float, stop: float, waited: float = 0.0) -> str:
    """A bar on the axis, its first part drawn as waiting."""
    more = f";--z:{short(waited)}" if waited else ""
    return f'<i style="--a:{short(start)};--w:{short(stop - start)}{more}"></i>'


def short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
