"""Which tools there are in a run, where some of them are there only when a function of the run says so."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from tool_loop.ports import ToolSpec
from tool_loop.runtime.context import CURRENT, NO_RUN, RunContext

if TYPE_CHECKING:
    from .tool import Tool

logger = logging.getLogger(__name__)


def specs_here(owner: object, tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    """The specs of those of `owner`'s tools that the run which is being driven here has.

    Worked out once for a run: the tools are the first bytes of each of its requests.
    """
    run = CURRENT.get()
    if (specs := run.memo.get(owner)) is None or run is NO_RUN:
        specs = tuple(tool.spec for tool in tools if _is_there(tool, run))
        run.memo[owner] = specs
    return cast("tuple[ToolSpec, ...]", specs)


def _is_there(tool: Tool, run: RunContext) -> bool:
    try:
        return tool.when is None or bool(tool.when(run))
    except Exception:
        # Like a lock: one that is broken is shut.
        logger.exception("the condition of tool %s failed, so this run does not have it", tool.name)
        return False
