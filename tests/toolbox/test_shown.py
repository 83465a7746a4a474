"""What the model is shown and what is accepted are one thing: aliases, keys of mappings, formats in hints."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import json
from typing import Annotated, Any, Literal

import pytest
from jsonschema_rs import validator_for
from pydantic import AliasChoices, Field

from tool_loop.errors import UsageError
from tool_loop.events import ToolCall
from tool_loop.toolbox.registry import Tool, ToolRegistry, tool
from tool_loop.toolbox.wording import _FORMATS


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


def shown(func: Any) -> dict[str, Any]:
    return dict(ToolRegistry([func]).specs()[0].parameters)


def call(func: Any, arguments: dict[str, Any]) -> Any:
    """What the function returned, or the message and the hint of the failure."""
    registry = ToolRegistry([func])
    found = asyncio.run(registry.run(ToolCall("c", registry.names[0], json.dumps(arguments))))
    if found.error is None:
        return found.content
    told = json.loads(found.content)
    assert found.error == "invalid_arguments", told
    return told["message"], told.get("hint", "")


# --- aliases --------------------------------------------------------------------------------------


def aliased(
    user_id: Annotated[int, Field(alias="userId", description="Who.")],
    until: Annotated[str, Field(validation_alias="until_day")] = "x",
    either: Annotated[int, Field(validation_alias=AliasChoices("oneName", "other"))] = 1,
    last: str = Field("z", alias="lastOne"),
) -> str:
    """Do."""
    return f"{user_id} {until} {either} {last}"


def test_an_alias_is_the_name_that_is_shown_and_the_only_one_that_is_accepted():
    assert list(shown(aliased)["properties"]) == ["userId", "until_day", "oneName", "lastOne"]
    assert shown(aliased)["required"] == ["userId"]
    assert shown(aliased)["properties"]["userId"] == {"type": "integer", "description": "Who."}
    assert shown(aliased)["properties"]["lastOne"]["default"] == "z"
    assert call(aliased, {"userId": 1}) == "1 x 1 z"
    assert call(aliased, {"userId": 1, "until_day": "y", "oneName": 2, "lastOne": "q"}) == "1 y 2 q"
    assert call(aliased, {"user_id": 1})[0] == (
        "'user_id' is not a field of aliased; fields are: userId, until_day, oneName, lastOne; 'userId' is required"
    )
    assert call(aliased, {"userId": 1, "other": 2})[0].startswith("'other' is not a field of aliased")


def test_a_required_field_in_the_place_of_a_default_stays_required():
    def func(a: int = Field(..., alias="theA", description="First.")) -> str:
        """Do."""
        return str(a)

    assert shown(func)["required"] == ["theA"]
    assert shown(func)["properties"]["theA"] == {"type": "integer", "description": "First."}
    assert call(func, {"theA": 1}) == "1"


def test_a_probe_and_a_policy_see_the_names_of_the_function():
    asked = []

    @tool(effect="once", needs_approval=lambda arguments: asked.append(arguments) or False)
    def pay(user_id: Annotated[int, Field(alias="userId")]) -> str:
        """Pay."""
        return "paid"

    @pay.probe
    def look(user_id: int) -> str:
        return f"paid {user_id}"

    registry = ToolRegistry([pay])
    one = ToolCall("c", "pay", '{"userId": 7}')
    assert registry.needs_approval(one) is False
    assert asked == [{"user_id": 7}]
    assert asyncio.run(registry.probe(one)).content == "paid 7"


def test_two_parameters_of_one_name_are_refused():
    def func(a: Annotated[int, Field(alias="x")], b: Annotated[int, Field(alias="x")]) -> None:
        """Do."""

    with pytest.raises(UsageError, match="two parameters have the same name"):
        shown(func)


# --- keys -----------------------------------------------------------------------------------------


def keyed(
    sides: dict[Literal["x", "y"], int],
    colours: dict[Colour, str] | None = None,
    levels: dict[Level, str] | None = None,
    mixed: dict[Mixed, str] | None = None,
    days: dict[dt.date, int] | None = None,
    counts: dict[int, int] | None = None,
) -> str:
    """Do."""
    return repr([sides, colours, levels, mixed, days, counts])


def test_the_keys_of_a_mapping_are_shown_where_only_some_are_accepted():
    fields = shown(keyed)["properties"]

    assert fields["sides"] == {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}
    names = {name: list(fields[name]["anyOf"][0].get("properties", ())) for name in ("colours", "levels", "mixed")}
    assert names == {"colours": ["red", "blue"], "levels": ["1", "2"], "mixed": ["two"]}


@pytest.mark.parametrize(
    ("name", "keys"),
    [("sides", ["x", "y"]), ("colours", ["red", "blue"]), ("levels", ["1", "2"]), ("mixed", ["two"])],
)
def test_every_key_that_is_shown_is_accepted_and_any_other_is_refused_with_the_choices(name, keys):
    value = 1 if name == "sides" else "text"
    for key in keys:
        assert isinstance(call(keyed, {"sides": {}, name: {key: value}}), str)

    message, _ = call(keyed, {"sides": {}, name: {"elsewhere": value}})
    assert message == f"'{name}.elsewhere' is not a key of '{name}'; keys are: {', '.join(keys)}"


def test_a_key_that_is_nearly_right_is_named():
    assert call(keyed, {"sides": {}, "colours": {"rad": "x"}})[1] == 'Did you mean "red" instead of "rad"?'


def test_keys_that_are_dates_or_numbers_are_read_as_such():
    assert "datetime.date(2026, 1, 31): 1" in call(keyed, {"sides": {}, "days": {"2026-01-31": 1}})
    assert "{7: 1}" in call(keyed, {"sides": {}, "counts": {"7": 1}})
    assert call(keyed, {"sides": {}, "days": {"20": 1}})[0].startswith("'days.20' is not a key that 'days' may have")


def test_keys_that_json_cannot_write_are_refused_when_the_tool_is_made():
    def func(a: list[dict[Literal[1, 2], int]]) -> None:
        """Do."""

    with pytest.raises(UsageError, match=r"'a' has keys that JSON cannot write \(1, 2\)"):
        shown(func)


# --- formats --------------------------------------------------------------------------------------


def formatted(name: str) -> Tool:
    parameters = {"type": "object", "properties": {"x": {"type": "string", "format": name}}, "required": ["x"]}
    return Tool("formatted", "Do.", parameters, lambda x: x)


@pytest.mark.parametrize("name", [*_FORMATS, "no-format-at-all"])
def test_whatever_a_hint_offers_is_accepted(name):
    given = [{}, {"x": 20260131}, {"x": "@ @"}, {"x": ["2026-01-31"]}]
    for failed in (call(formatted(name), arguments) for arguments in given):
        if isinstance(failed, tuple) and '"' in failed[1]:
            offered = json.loads(failed[1][failed[1].index('"') :].partition(", not ")[0].rstrip("."))
            assert isinstance(call(formatted(name), {"x": offered}), str)


@pytest.mark.parametrize("name", _FORMATS)
def test_each_example_of_a_format_is_one(name):
    assert validator_for({"type": "string", "format": name}, validate_formats=True).is_valid(_FORMATS[name])


def test_a_number_for_a_date_is_not_told_to_be_put_into_quotes():
    def on(day: dt.date) -> str:
        """Do."""
        return str(day)

    assert call(on, {"day": 20260131})[1] == "Send 'day' as string, for example \"2026-01-31\"."
    assert call(on, {"day": "2026"})[1] == "Write 'day' as in \"2026-01-31\"."


def test_no_example_is_better_than_a_wrong_one():
    def func(code: Annotated[str, Field(pattern="^[A-Z]{3}$")], n: Annotated[int, Field(gt=5, lt=7)]) -> str:
        """Do."""
        return code

    assert call(func, {})[1] == "Add 'code': string. Add 'n': integer."
