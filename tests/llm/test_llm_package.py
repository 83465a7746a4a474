"""The names of `tool_loop.llm`: there, listed, and loaded only when they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tool_loop.llm


@pytest.mark.parametrize("name", tool_loop.llm.__all__)
def test_a_listed_name_is_there(name: str) -> None:
    assert getattr(tool_loop.llm, name).__name__ == name


def test_the_list_is_sorted_and_is_what_dir_says() -> None:
    assert sorted(tool_loop.llm.__all__) == dir(tool_loop.llm)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        tool_loop.llm.Nothing  # noqa: B018


def test_making_a_model_does_not_load_the_http_client_before_it_is_asked() -> None:
    code = (
        "import sys, tool_loop.llm as m; m.ScriptedLLM('a'); m.Retrying(m.OpenAIChat('m', 'http://127.0.0.1:9/v1'));"
        "m.OpenAIResponses('m', 'http://127.0.0.1:9/v1');"
        "print({'httptools', 'httpx2', 'pydantic', 'anyio', 'jsonschema_rs'} & set(sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
