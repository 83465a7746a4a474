"""The door to answers.py, which needs pydantic: passed by what wants no form of an answer."""

from __future__ import annotations

from typing import Any

from tool_loop.ports import AnswerSpec


def form_of(answer: Any) -> AnswerSpec | None:
    """The form for a type or a JSON schema; None where any text will do. Raises UsageError."""
    if answer is None or answer is str:
        return None
    from .answers import AnswerForm

    return answer if isinstance(answer, AnswerForm) else AnswerForm(answer)
