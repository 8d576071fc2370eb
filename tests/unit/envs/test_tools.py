from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from hyperrl.envs.json_schema import schema_coercer
from hyperrl.envs.tool_text import result_text, shorten
from hyperrl.envs.tools import ToolResult, tool
from hyperrl.errors import ToolDefinitionError


class Unit(StrEnum):
    METRE = "m"
    MILE = "mi"


class Place(BaseModel):
    name: str
    height: float = 0.0


@tool
def measure(
    place: Place,
    unit: Unit = Unit.METRE,
    mode: Literal["fast", "exact"] = "fast",
    tags: list[str] | None = None,
    note: Annotated[str, Field(description="Said in the annotation.")] = "",
) -> str:
    """Measure a place.

    Goes there first.

    Args:
        place: where,
            with its name: the long one.
        unit (Unit): of the result.
        mode: how.
        tags: what to remember.

    Returns:
        A text that no policy reads about.
    """
    return f"{place.name} {place.height:g} {unit} {mode} {tags} {note}"


def call(offered, arguments):
    return asyncio.run(offered.call(arguments))


def test_the_schema_comes_from_signature_and_docstring():
    function = measure.schema["function"]
    assert measure.schema["type"] == "function"
    assert function["name"] == "measure"
    assert function["description"] == "Measure a place.\n\nGoes there first."
    properties = function["parameters"]["properties"]
    assert function["parameters"]["type"] == "object"
    assert function["parameters"]["required"] == ["place"]
    assert properties["place"]["description"] == "where, with its name: the long one."
    assert properties["unit"]["default"] == "m"
    assert properties["mode"] == {
        "default": "fast",
        "description": "how.",
        "enum": ["fast", "exact"],
        "type": "string",
    }
    assert properties["note"]["description"] == "Said in the annotation."
    assert properties["tags"]["anyOf"] == [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]
    assert "title" not in str(function)


def test_arguments_are_coerced_to_the_signature():
    result = call(measure, {"place": {"name": "5", "height": "2"}, "unit": "mi", "tags": ["a"]})
    assert (result.status, result.text) == ("ok", "5 2 mi fast ['a'] ")


def test_an_argument_that_is_encoded_twice_is_read_and_recorded():
    twice = {"place": '{"name": "[here]"}', "tags": '["a", "b"]', "note": "{}"}
    result = call(measure, twice)
    assert (result.status, result.repairs) == ("ok", ("double_encoded",))
    assert result.text == "[here] 0 m fast ['a', 'b'] {}"
    assert call(measure, {"place": {"name": "x"}, "note": "[]"}).repairs == ()
    assert call(measure, {"place": "{oops"}).status == "bad_arguments"
    assert call(measure, {"place": "[" * 100_000}).status == "bad_arguments"


class Branch(BaseModel):
    size: int
    inner: Branch | None = None
    leaves: list[Branch] = []


@tool
def grow(branch: Branch, step: Literal[1, 2] = 1, sure: Literal[True] | None = None, free: Any = None) -> str:
    """Let a branch grow.

    Args:
        branch: which one.
        step: how far.
        sure: that it should.
        free: anything.
    """
    return f"{branch!r} {step!r} {sure!r} {free!r}"


def test_texts_are_read_at_any_depth_where_no_text_fits():
    nested = {"size": "1", "inner": '{"size": 2, "leaves": "[{\'size\': 3},]"}', "leaves": ['{"size": 4}']}
    result = call(grow, {"branch": nested, "step": "2", "sure": "True", "free": "[1]"})
    assert (result.status, result.repairs) == ("ok", ("double_encoded",))
    four, three = (f"Branch(size={size}, inner=None, leaves=[])" for size in (4, 3))
    inner = f"Branch(size=2, inner=None, leaves=[{three}])"
    assert result.text == f"Branch(size=1, inner={inner}, leaves=[{four}]) 2 True '[1]'"
    only_numbers = call(grow, {"branch": {"size": 1}, "step": "2"})
    assert (only_numbers.status, only_numbers.repairs) == ("ok", ())
    assert call(grow, {"branch": {"size": 1}, "step": "3"}).status == "bad_arguments"
    assert call(grow, {"branch": {"size": 1}, "step": "true"}).status == "bad_arguments"


@tool
def wait(
    seconds: float = 0.0, times: int | None = 1, why: str | None = None, at: tuple[int, int] = (0, 0)
) -> str:
    """Wait.

    Args:
        seconds: how long.
        times: how often.
        why: for what.
        at: where.
    """
    return f"{seconds!r} {times!r} {why!r} {at!r}"


@pytest.mark.parametrize("seconds", ["nan", "NaN", "Infinity", "-inf", "1e999", float("inf")])
def test_what_is_no_finite_number_is_none(seconds):
    assert call(wait, {"seconds": seconds}).status == "bad_arguments"


@pytest.mark.parametrize("seconds", ["nan", "Infinity", "1e999"])
def test_what_is_no_finite_number_is_none_by_a_schema_either(seconds):
    pytest.importorskip("jsonschema")
    coerce = schema_coercer({"type": "object", "properties": {"s": {"type": "number"}}})
    assert coerce({"s": "2.5"}) == {"s": 2.5}
    with pytest.raises(ValueError, match="is not of type 'number'"):
        coerce({"s": seconds})


def test_a_text_is_no_value_only_where_no_text_fits():
    result = call(wait, {"times": "null", "why": "null", "at": "(1, 2)"})
    assert (result.status, result.text) == ("ok", "0.0 None 'null' (1, 2)")
    assert call(wait, {"times": " None "}).text == "0.0 None None (0, 0)"
    assert call(wait, {"seconds": "null"}).status == "bad_arguments"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "argument 'place' is missing"),
        ({"place": {"name": "x"}, "mod": "fast"}, "no argument 'mod' Did you mean 'mode'"),
        ({"place": {"name": "x"}, "qqqq": 1}, "no argument 'qqqq'; known: place, unit"),
        (
            {"place": {"name": "x"}, "mode": "slow"},
            "argument 'mode': Input should be 'fast' or 'exact', got 'slow'",
        ),
        ({"place": {"name": "x", "height": "tall"}}, "argument 'place.height'"),
        ({"place": "x" * 1000}, "..."),
    ],
)
def test_arguments_that_do_not_fit_are_explained_to_the_policy(arguments, said):
    result = call(measure, arguments)
    assert result.status == "bad_arguments"
    assert result.text.startswith("Error: ")
    assert said in result.text


class Open(BaseModel):
    model_config = {"extra": "allow"}


@tool
def keep(
    place: Place,
    more: list[Place] | None = None,
    free: Open | None = None,
    table: dict[str, Any] | None = None,
) -> str:
    """Keep places.

    Args:
        place: one.
        more: others.
        free: anything.
        table: anything.
    """
    return f"{place!r} {more!r} {free!r} {table!r}"


def test_nothing_that_a_call_says_is_dropped_at_any_depth():
    place = {"name": "x"}
    assert call(keep, {"place": place, "free": {"a": 1}, "table": {"b": {"c": 1}}}).status == "ok"
    refused = call(keep, {"place": {"name": "x", "hight": 5}})
    assert refused.status == "bad_arguments"
    assert refused.text == "Error: there is no argument 'place.hight'; known: name, height"
    for more in ([place, {"name": "y", "z": 1}], '[{"name": "y", "z": 1}]'):
        assert call(keep, {"place": place, "more": more}).status == "bad_arguments"


def test_what_a_policy_wrote_wrong_comes_back_shortened():
    many = call(grow, {"branch": {"size": 1, "leaves": ["x"] * 5_000}})
    assert "branch.leaves.0" in many.text
    assert many.text.endswith("; and 4995 more")
    assert len(many.text) < 2_000
    long = call(grow, {"branch": {"size": 1}, "x" * 50_000: 1})
    assert long.text.startswith("Error: there is no argument 'xxx")
    assert len(long.text) < 300
    few = tool(max_output_chars=200)(grow.function)
    assert len(call(few, {"branch": {"size": "x" * 500}, "step": "9" * 99, "sure": "9" * 99}).text) <= 200


def test_what_a_policy_wrote_wrong_by_a_schema_comes_back_shortened():
    pytest.importorskip("jsonschema")
    with pytest.raises(ValueError, match="no argument 'xxx") as refused:
        schema_coercer({"type": "object", "properties": {"s": {}}})({"x" * 50_000: 1})
    assert len(str(refused.value)) < 300


def test_an_exception_is_a_text():
    @tool
    def broken() -> str:
        """Break."""
        raise ValueError("bad luck")

    assert (call(broken, {}).status, call(broken, {}).text) == ("error", "Error: ValueError: bad luck")
    with pytest.raises(ValueError, match="bad luck"):
        broken()


def test_leaving_the_program_is_an_error_of_the_tool():
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit(1)

    assert call(leave, {}).status == "error"


def test_an_async_tool_is_cancelled_in_time_and_its_own_timeouts_are_errors():
    @tool(timeout=0.02)
    async def forever() -> str:
        """Wait."""
        await asyncio.sleep(3600)
        return ""

    @tool(timeout=60)
    async def impatient() -> str:
        """Give up."""
        raise TimeoutError("the server is slow")

    assert (call(forever, {}).status, call(forever, {}).text) == (
        "timeout",
        "Error: the tool did not finish within 0.02 s and was stopped",
    )
    assert (call(impatient, {}).status, call(impatient, {}).text) == (
        "error",
        "Error: TimeoutError: the server is slow",
    )


def test_long_results_keep_head_and_tail_and_say_so():
    @tool(max_output_chars=400)
    def talk(error: bool = False) -> str:
        """Talk.

        Args:
            error: fail.
        """
        text = "a" * 5000 + "z" * 5000
        if error:
            raise ValueError(text)
        return text

    for arguments in ({}, {"error": True}):
        text = call(talk, arguments).text
        assert len(text) <= 400
        assert "characters left out" in text
        assert text.endswith("z" * 100)
    assert "9,680 of 10,000 characters left out" in call(talk, {}).text


@pytest.mark.parametrize("length", [0, 1, 16_000, 16_001, 16_100, 1_000_000])
def test_shorten_keeps_within_the_limit(length):
    text = "".join(chr(97 + i % 26) for i in range(length))
    short = shorten(text, 16_000)
    assert len(short) <= 16_000
    assert (short == text) == (length <= 16_000)
    assert text.startswith(short[:7_000])
    assert text.endswith(short[-7_000:])


def test_results_become_text():
    assert result_text("as it is") == "as it is"
    assert result_text({"a": [1, None, True], "ü": 2.5}) == '{"a": [1, null, true], "ü": 2.5}'
    assert result_text(None) == "(no result)"
    assert result_text(Place(name="x")) == '{"name": "x", "height": 0.0}'
    assert result_text({"b", "a", "c"}) == '["a", "b", "c"]'
    assert (
        result_text([Speed.FAST, Point(x=1, y=Point(x=2))]) == '["fast", {"x": 1, "y": {"x": 2, "y": null}}]'
    )
    assert result_text({"at": datetime.date(2020, 1, 2)}) == '{"at": "2020-01-02"}'
    loop: list[object] = []
    loop.append(loop)
    assert result_text(loop) == "[[...]]"


@pytest.mark.parametrize("value", [iter(()), (x for x in "ab"), object(), {"a": [object()]}, lambda: 1])
def test_what_has_no_text_is_an_error_and_no_address(value):
    with pytest.raises(TypeError, match=r"the tool returned a \w+; it must return a text or plain data"):
        result_text(value)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(status=None, text="x"), "the status of a ToolResult must be a str, got None"),
        (ToolResult(status="ok", text=3), "the text of a ToolResult must be a str, got 3"),
    ],
)
def test_a_result_that_a_tool_makes_itself_is_checked(result, text):
    @tool
    def tell() -> ToolResult:
        """Tell."""
        return result

    called = asyncio.run(tell.call({}))
    assert called.status == "error"
    assert text in called.text


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


class Speed(enum.Enum):
    FAST = "fast"


def _undocumented(x: int) -> int:
    """Do something."""
    return x


def _untyped(x):
    """Do something.

    Args:
        x: this.
    """
    return x


def _silent(x: int) -> int:
    return x


def _misspelt(number: int) -> int:
    """Do something.

    Args:
        nunber: this.
    """
    return number


def _collecting(*args: int) -> int:
    """Do something.

    Args:
        *args: these.
    """
    return len(args)


def _strange(x: Nowhere) -> int:  # noqa: F821
    """Do something.

    Args:
        x: this.
    """
    return x


def _no_schema(x: asyncio.AbstractEventLoop) -> int:
    """Do something.

    Args:
        x: this.
    """
    return 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_undocumented, "'x' is not described; add a line"),
        (_untyped, "'x' has no type"),
        (_silent, "has no docstring"),
        (_misspelt, "documents 'nunber', not a parameter. Did you mean 'number'"),
        (_collecting, "cannot be passed by name"),
        (_strange, "types cannot be read"),
        (_no_schema, "no JSON schema"),
    ],
)
def test_what_a_policy_cannot_use_is_refused_at_definition(function, said):
    with pytest.raises(ToolDefinitionError, match=said):
        tool(function)


@pytest.mark.parametrize("name", ["", "has space", "ü", "x" * 65])
def test_names_that_cannot_be_called_are_refused(name):
    if name:
        with pytest.raises(ToolDefinitionError, match="letters, digits"):
            tool(name=name)(measure.function)


@pytest.mark.parametrize(
    "limits", [{"timeout": 0}, {"timeout": -1}, {"max_output_chars": 10}, {"max_input_chars": 0}]
)
def test_impossible_limits_are_refused(limits):
    with pytest.raises(ToolDefinitionError, match="must be"):
        tool(**limits)(measure.function)


def test_a_timeout_on_an_inline_function_or_method_is_refused():
    def inline() -> str:
        """Hang."""
        return ""

    class Env:
        def method(self) -> str:
            """Hang."""
            return ""

    for function in (inline, Env.method):
        with pytest.raises(ToolDefinitionError, match="module-level function"):
            tool(timeout=1.0)(function)


def test_a_timeout_where_no_worker_can_import_is_refused(monkeypatch):
    import sys
    import types

    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.setattr(_undocumented, "__module__", "__main__")
    monkeypatch.setattr(_undocumented, "__doc__", "Do.\n\nArgs:\n    x: this.")
    with pytest.raises(ToolDefinitionError, match="put it into a module file"):
        tool(timeout=1.0)(_undocumented)
