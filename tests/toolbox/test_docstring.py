"""What of a docstring reaches the model: all of it, each part in its place, in whatever style.

After public reports about other frameworks: openai-agents-python #4985 (Keyword Args, Other Parameters),
smolagents #1073 (types), agno #5301 (words removed), llama_index #22687 (NumPy style dropped, texts cut).
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tool_loop.toolbox.docstring import read_docstring
from tool_loop.toolbox.registry import ToolContext, ToolRegistry

NAMES = ("a", "b", "mode", "size")


def told(text: str, names: tuple[str, ...] = NAMES) -> tuple[str, dict[str, str]]:
    import inspect

    found = read_docstring(inspect.cleandoc(text), names)
    return found.description, found.parameters


STYLES = {
    "google": """Do.

        Args:
            a: First.
            b (int): Second,
                on two lines.

        Keyword Args:
            mode: How.

        Other Parameters:
            size: Width.
        """,
    "google with types": """Do.

        Arguments:
            a (tuple(int, int)): First.
            b (Dict[str, Tuple[int, ...]], optional): Second, on two lines.
            mode (Callable[[int], str] | None): How.
            size (typing.Optional[int]): Width.
        """,
    "numpy": """Do.

        Parameters
        ----------
        a : int
            First.
        b : dict of str, optional
            Second,
            on two lines.

        Other Parameters
        ----------------
        mode
            How.
        size : int or None
            Width.
        """,
    "sphinx": """Do.

        :param a: First.
        :param int b: Second,
            on two lines.
        :type b: int
        :keyword mode: How.
        :arg size: Width.
        """,
    "epydoc": """Do.

        @param a: First.
        @param b: Second, on two lines.
        @type b: int
        @keyword mode: How.
        @param size: Width.
        """,
    "markdown": """Do.

        ### Parameters
        - `a`: First.
        - `b` (int): Second, on two lines.
        - **mode**: How.
        * size: Width.
        """,
    "not indented": """Do.

        Args:
        a: First.
        b: Second, on two lines.
        mode (str): How.
        size: Width.
        """,
}


@pytest.mark.parametrize("style", STYLES)
def test_every_style_says_the_same(style):
    description, notes = told(STYLES[style])

    assert description == "Do."
    assert notes == {"a": "First.", "b": "Second, on two lines.", "mode": "How.", "size": "Width."}


ARGS = "Args:\n    a: First.\n"
NUMPY = "Parameters\n----------\na : int\n    First.\n"
KEPT = [
    ("Never call this twice.", "Never call this twice."),
    ("Warning:\n    Ask before.", "Warning:\n    Ask before."),
    ("Attention:\n    Ask before.", "Attention:\n    Ask before."),
    ("See Also\n--------\nother : A tool.", "See Also\n--------\nother : A tool."),
    ("Returns:\n    Text.", "Returns:\n    Text."),
    (":returns: Text.\n:rtype: str", ":returns: Text.\n:rtype: str"),
    (".. note:: Slow.\n    Very.", ".. note:: Slow.\n    Very."),
    ("Example::\n\n    call(1)\n\n\n    call(2)", "Example::\n\n    call(1)\n\n\n    call(2)"),
    (
        "Notes\n-----\nSlow.\n\nReferences\n----------\n[1] None.",
        "Notes\n-----\nSlow.\n\nReferences\n----------\n[1] None.",
    ),
    ("- one\n- two", "- one\n- two"),
    ("Costs: a cent.", "Costs: a cent."),
]


@pytest.mark.parametrize("section", [ARGS, NUMPY, ":param a: First.\n"], ids=["google", "numpy", "sphinx"])
@pytest.mark.parametrize(("after", "kept"), KEPT, ids=range(len(KEPT)))
def test_what_stands_after_the_parameters_is_kept(section, after, kept):
    assert told(f"Do.\n\n{section}\n{after}") == (f"Do.\n\n{kept}", {"a": "First."})


@pytest.mark.parametrize("section", [ARGS, ":param a: First.\n"], ids=["google", "sphinx"])
@pytest.mark.parametrize("after", ["Never call this twice.", "Warning:\n    Ask before."])
def test_a_section_ends_without_a_blank_line(section, after):
    assert told(f"Do.\n\n{section}{after}") == (f"Do.\n\n{after}", {"a": "First."})


def test_what_a_type_in_brackets_says_beyond_the_type_is_kept():
    notes = told("""Do.

    Args:
        a (int, optional): First.
        b (str, one of ("x", "y")): Second.
        mode (Literal["r)", 'w']): How.
        size (int, 0 < size <= 10): Width.
    """)[1]

    assert notes["a"] == "First."
    assert notes["b"] == 'Second. (one of ("x", "y"))'
    assert "[\"r)\", 'w']" in notes["mode"]
    assert notes["size"] == "Width. (0 < size <= 10)"


def test_a_text_with_lists_and_paragraphs_is_kept_whole():
    notes = told("""Do.

    Args:
        a: One of:
            - fast: quick
            - deep: slow

            Else nothing.
        b: See https://example.com/x: there.
    """)[1]

    assert notes == {"a": "One of: - fast: quick - deep: slow Else nothing.", "b": "See https://example.com/x: there."}


def test_a_blank_before_the_colon_and_a_return_without_a_blank_line_change_nothing():
    text = """Args:
        a (str) : Title (e.g. "Genesis").
        b (str): Example: "3:5" for 3:5, "4a" for 4a.
    Returns:
        str : The text.
    """

    assert told(text) == (
        "Returns:\n    str : The text.",
        {"a": 'Title (e.g. "Genesis").', "b": 'Example: "3:5" for 3:5, "4a" for 4a.'},
    )


def test_several_names_of_one_entry_are_all_described():
    assert told("Do.\n\nArgs:\n    a, b: The sides.")[1] == {"a": "The sides.", "b": "The sides."}
    assert told("Do.\n\nParameters\n----------\na, b : int\n    The sides.")[1] == {
        "a": "The sides.",
        "b": "The sides.",
    }


def test_words_before_the_first_entry_are_kept_with_the_description():
    assert told("Do.\n\nArgs:\n    Some words first.\n    a: First.") == ("Do.\n\nSome words first.", {"a": "First."})


def test_exceptions_are_left_out_in_every_style():
    for raises in (
        "Raises:\n    ValueError: never",
        "Raises\n------\nValueError\n    never",
        ":raises ValueError: never",
    ):
        assert told(f"Do.\n\n{raises}\n\nKept.") == ("Do.\n\nKept.", {})


@pytest.mark.parametrize("text", ["Parameters are read from a file.", "Arguments", "Args: none", "Keyword: x"])
def test_what_only_looks_like_a_section_is_text(text):
    assert told(f"Do.\n\n{text}\n\nMore.") == (f"Do.\n\n{text}\n\nMore.", {})


def test_what_describes_no_parameter_is_told_to_the_author(caplog: Any):
    def func(city: str, _api_key: str, context: ToolContext) -> str:
        """Do.

        Args:
            citty: The name.
            _api_key: Secret.
            context: Filled in.
        """
        return city

    with caplog.at_level(logging.WARNING, "tool_loop"):
        ToolRegistry([func])

    assert "describes citty, no parameter of it" in caplog.text
    assert "context" not in caplog.text
