"""One row of the page per model reply and tool call: a line to skim, folded over its details.

Turns the records of model.py into HTML; every text of theirs goes through text.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from tool_loop.changes import change_lines
from tool_loop.events import ModelReplied, ToolReturned

from . import pieces
from .clock import Axis
from .model import CallRow, NoteRow, Recovery, Row, StepRow
from .notes import decided, note
from .pieces import given, pairs, patch, say, skim, tag, titled
from .text import arguments, block, count, dollars, escaped, fields, line, many, pretty, seconds

# Why a reply ended, where that is worth a word; the usual ends are not.
_STOPS = {
    "length": "cut at the output limit",
    "content_filter": "content filter",
    "refusal": "refused",
    "pause": "paused by the server",
}


def row(item: Row, axis: Axis, usual: str = "", changed: frozenset[str] = frozenset()) -> str:
    """`usual` is the model of the whole run, which need not be said again at each step; `changed` are
    the anchors of the calls to be marked.
    """
    return note(item) if isinstance(item, NoteRow) else step(item, axis, usual, changed)


def step(item: StepRow, axis: Axis, usual: str = "", changed: frozenset[str] = frozenset()) -> str:
    """A reply and its calls."""
    calls = "".join(call(c, axis, changed=c.anchor in changed) for c in item.calls)
    gone = '"s gone"' if item.hidden else "s"
    return f"<section class={gone} id={item.anchor}><h3>{item.number}</h3>{reply(item, axis, usual)}{calls}</section>"


def reply(item: StepRow, axis: Axis, usual: str = "") -> str:
    it = item.reply
    said = it.text.strip() or it.reasoning.strip()
    if not said:
        said = "calls " + ", ".join(dict.fromkeys(c.name for c in it.calls)) if it.calls else "said nothing"
    tags = [tag(many(len(it.retries), "retry", "retries"), "hw")] if it.retries else []
    tags += [tag(_STOPS[it.stop], "hw")] if it.stop in _STOPS else []
    tags += [tag(f"ended: {it.finish}", "hw")] if it.finish else []
    tags += [tag("call written as text", "hw")] if it.call_in_text else []
    tags += [tag(f"{many(it.dropped_calls, 'call')} dropped", "hw")] if it.dropped_calls else []
    start = axis.at(item.start)
    waited = axis.at(min(item.start + item.waited, item.end)) - start if item.waited else 0.0
    drawn = pieces.bar(start, axis.at(item.end), waited)
    head = f"<b>model</b>{skim(said)}{''.join(tags)}<small>{pieces.spent(it)}</small>{drawn}"
    kinds = " ".join(sorted({retry.kind for retry in it.retries}))
    return pieces.row("m", head, "".join(_reply_body(item, usual)), failures=kinds)


def _reply_body(item: StepRow, usual: str) -> Iterable[str]:
    it = item.reply
    if item.hidden:
        yield f'<p class=cut>Seen by the model until <a href="#{item.hidden}">the compaction</a>.'
    for n, retry in enumerate(it.retries, 1):
        status = f" {retry.status}" if retry.status else ""
        paid = f", {count(retry.tokens)} tokens paid" if retry.tokens else ""
        yield (
            f"<p>Attempt {n}: {pieces.failed(retry.kind + status)} {escaped(line(retry.message, 400))} "
            f"<small>waited {seconds(retry.waited)}{paid}</small>"
        )
    if it.reasoning:
        yield f"<details class=in><summary>Reasoning</summary>{block(it.reasoning)}</details>"
    if it.text:
        yield say(it.text)
    yield f"<p><small>{escaped(' · '.join(_reply_facts(item, usual)))}</small>"


def _reply_facts(item: StepRow, usual: str) -> Iterable[str]:
    it, usage = item.reply, item.reply.usage
    if usage.input is None and usage.output is None:
        yield "the server did not count tokens"
    if usage.input is not None:
        parts = [f"{usage.cached:,} cached"] if usage.cached else []
        parts += [f"{usage.cache_write:,} put into the cache"] if usage.cache_write else []
        yield f"{usage.input:,} tokens read" + (f" ({', '.join(parts)})" if parts else "")
    if usage.output is not None:
        yield f"{usage.output:,} written" + (f" ({usage.reasoning:,} reasoning)" if usage.reasoning else "")
    if it.cost is not None:
        yield dollars(it.cost)
    if it.first_token is not None:
        yield f"first text after {seconds(it.first_token)}"
    if item.waited:
        yield f"{seconds(item.waited)} of {seconds(it.seconds)} waiting"
    if named(it) not in ("", usual):
        yield named(it)


def named(it: ModelReplied) -> str:
    """The model, and the endpoint that served it."""
    return it.model + (f" at {it.origin}" if it.origin else "")


def call(item: CallRow, axis: Axis, *, changed: bool = False) -> str:
    """A tool call: what was asked, what came back, and what came of it when it failed."""
    result, error = item.result, item.error
    head = (
        f"<b>{escaped(line(item.call.name, 80))}</b><code>{escaped(arguments(item.call.arguments, pieces.LINE))}</code>"
    )
    if error is not None:
        head += pieces.failed(error) + (_came_of_it(item.recovery) if item.recovery else "")
    elif result is not None:
        head += skim(result.content)
    head += "".join(_tags(item))
    if item.start is not None and item.end is not None:
        head += f"<small>{seconds(item.end - item.start)}</small>{pieces.bar(axis.at(item.start), axis.at(item.end))}"
    else:
        head += "<small></small><i></i>"
    body = "".join(_call_body(item))
    shape = ("c" if error is None else "f") + (" d" if changed else "")
    return pieces.row(shape, head, body, anchor=item.anchor, failures=error or "", call_id=item.call.id)


def _came_of_it(it: Recovery) -> str:
    words = {"recovered": "recovered", "replaced": "went on", "answered": "answered without", "open": "not recovered"}
    return tag(words[it.how], "hg" if it.good else "hb")


def _tags(item: CallRow) -> Iterable[str]:
    result = item.result
    if item.decision:
        yield tag("allowed" if item.decision.allowed else "denied", "hn")
    elif result is None:
        yield tag("waits for a person" if item.requested else "no result", "hn" if item.requested else "hw")
    if result and result.arguments is not None:
        yield tag("edited", "hn")
    if result and result.repeat > 1:
        yield tag(f"same again, no. {result.repeat}", "hw")
    if item.once:
        yield tag("once")
    if result and result.untrusted:
        yield tag("untrusted")
    if item.hidden:
        yield tag("no longer seen", "hn")


def _call_body(item: CallRow) -> Iterable[str]:
    result = item.result
    if item.recovery:
        said = escaped(item.recovery.text)
        link = f'<a href="#{item.recovery.anchor}">{said}</a>' if item.recovery.anchor else said
        yield f"<p class={'good' if item.recovery.good else 'open'}>{link}"
    if item.hidden:
        yield f'<p class=cut>Seen by the model until <a href="#{item.hidden}">the compaction</a>; a stub since then.'
    if item.decision:
        yield f"<p>{decided(item.decision)}"
    if result and result.arguments is not None:
        yield titled("Arguments that ran, edited by a person", given(result.arguments))
        yield titled("Arguments the model asked for", given(item.call.arguments))
    else:
        yield given(item.call.arguments)
    if changed := change_lines(item.call, result) if result else []:
        yield titled("What it changed", patch(changed))
    if result:
        yield _came(result)


def _came(result: ToolReturned) -> str:
    found = fields(result.content) if result.error is not None else None
    return pairs(found.items()) if found and "message" in found else block(pretty(result.content))
