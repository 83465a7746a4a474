"""The calculator: what comes out, what is refused, and that neither takes long."""

from __future__ import annotations

import json
import math
import re
import time
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings, strategies as st

from tool_loop.errors import ToolError
from tool_loop.tools import _arithmetic, _numbers
from tool_loop.tools._calculator import calc, calculator


def refused(expression: str) -> ToolError:
    started = time.perf_counter()
    with pytest.raises(ToolError) as caught:
        calc(expression)
    assert time.perf_counter() - started < 0.5
    assert caught.value.kind == "invalid_argument"
    assert caught.value.fields == {"field": "expression"}
    return caught.value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("15 * 20", "300"),
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("10-2-3", "5"),
        ("100/10/2", "5"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("1.5 % 0.4", "0.3"),
        ("2**10", "1024"),
        ("2**3**2", "512"),
        ("-2**2", "-4"),
        ("(-2)**2", "4"),
        ("2**-1", "0.5"),
        ("--1", "1"),
        ("+-+1", "-1"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.333333333333333"),
        ("1/3*3", "1"),
        ("10/4", "2.5"),
        (".5 + 5.", "5.5"),
        ("1_000 * 2", "2000"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("6.02e23 * 2", "1.204e+24"),
        ("1e-400", "1e-400"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("0.0000001", "1e-7"),
        ("2**200", str(2**200)),
        ("(10**40 + 5) / 5", str((10**40 + 5) // 5)),
        ("1.05**30", "4.32194237515066"),
        ("1.000001 ** 1000000", "2.71828046909575"),
        ("9 ** 0.5", "3"),
        ("4 ** 1.0", "4"),
        ("2.5 ** 2", "6.25"),
        ("0 ** 0", "1"),
        ("1 ** 999999999999", "1"),
        ("(-1) ** 999999999999", "-1"),
        ("0 ** 999999999999", "0"),
        ("0.5 ** 2000", "8.70980981621722e-603"),
        ("1/3**900/3**900/3**900", "0"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.4142135623731"),
        ("sqrt(1/4)", "0.5"),
        ("sqrt(10**60)", "1" + "0" * 30),
        ("abs(-3) + abs(2)", "5"),
        ("round(2.5) + round(-2.5)", "0"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("floor(-1.5) + ceil(1.2)", "0"),
        ("min(3, 1, 2) + max(3, 1, 2)", "4"),
        ("log(100, 10) + log10(100) + log2(8)", "7"),
        ("exp(0) + sin(0) + cos(0) + tan(0)", "2"),
        ("pi * 2", "6.28318530717959"),
        ("-e", "-2.71828182845905"),
        ("round(sin(pi), 10)", "0"),
        ("5 × 4 − 6 ÷ 2 · 1", "17"),
        ("  1\t+\n1  ", "2"),
        ("0 * -1", "0"),
        ("0.0 * -1", "0"),
        ("7 % 2.0 - sqrt(2)*0", "1"),
    ],
)
def test_arithmetic_comes_out_as_people_write_it(expression, value):
    assert calc(expression) == value


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("", "the expression is empty", "15 * 20"),
        (" \n", "the expression is empty", "15 * 20"),
        ("3 +", "a number is missing before the end", "allowed are numbers"),
        ("* 3", "a number is missing before '*' at position 1", "allowed are numbers"),
        ("3 + ) 4", "a number is missing before ')' at position 5", "allowed are numbers"),
        ("(1 + 2", "')' is missing at the end; the expression in question starts at position 1", ""),
        ("(1 2)", "')' is missing before '2' at position 4; the expression in question starts at position 1", ""),
        ("1 + 2)", "unexpected ')' at position 6", "allowed are numbers"),
        ("1 2", "an operator is missing before '2' at position 3", "allowed are numbers"),
        ("2(3)", "an operator is missing before '(' at position 2", "a product is written 2 * (3 + 4)"),
        ("2pi", "an operator is missing before 'pi' at position 2", "allowed are numbers"),
        ("1.2.3", "an operator is missing before '.3' at position 4", "allowed are numbers"),
        ("2^10", "unexpected '^' at position 2", "a power is written 2**10"),
        ("1,000", "unexpected ',' at position 2", "write 1000 for 1,000"),
        ("15% of 200", "unknown name 'of' at position 5", "15 percent of 200 is 15 / 100 * 200"),
        ("15%", "a number is missing before the end", "% is the remainder"),
        ("x = 3", "unexpected '=' at position 3", "give the expression alone"),
        ("$5", "unexpected '$' at position 1", "allowed are numbers"),
        ("1 + ٣", "unexpected '٣' at position 5", "allowed are numbers"),
        ("1 + \0", "unexpected '\\x00' at position 5", "allowed are numbers"),
        ("foo(1)", "unknown name 'foo' at position 1", "the names are: pi, e, abs, "),
        ("sqrt 2", "'sqrt' at position 1 needs parentheses", "write sqrt(...)"),
        ("__import__('os')", 'unexpected "\'" at position 12', "allowed are numbers"),
        ("().__class__", "unexpected '.' at position 3", "allowed are numbers"),
        ("sqrt(1, 2)", "sqrt takes 1 arguments, got 2", ""),
        ("round(1, 2, 3)", "round takes 1 or 2 arguments, got 3", ""),
        ("max(" + "1," * 100 + "1)", "max takes 1 to 100 arguments, got 101", ""),
        ("1/0", "division by zero: 1 / 0", ""),
        ("5 % (2 - 2)", "division by zero: 5 % 0", ""),
        ("1 // 0.0", "division by zero: 1 // 0", ""),
        ("sqrt(2) / 0", "division by zero: 1.4142135623731 / 0", ""),
        ("0 ** -1", "division by zero: 0 ** -1", ""),
        ("0 ** -0.5", "0 ** -0.5 is not defined", ""),
        ("(-8) ** (1/3)", "a negative number has no real power: (-8) ** 0.333333333333333", ""),
        ("sqrt(-1)", "sqrt(-1) is not defined", ""),
        ("log(0)", "log(0) is not defined", ""),
        ("log(5, 1)", "log(5, 1) is not defined", ""),
        ("round(1, 0.5)", "round(1, 0.5) is not defined", ""),
        ("round(1, 1001)", "round(1, 1001) is not defined", ""),
        ("9**9**9", "the result is too large: 9 ** 387420489", "results have up to 1000 digits"),
        ("2**4000", "the result is too large: 2 ** 4000", ""),
        ("2.0**4000", "the result is too large: 2 ** 4000", ""),
        ("sqrt(2)**4000", "the result is too large: 1.4142135623731 ** 4000", ""),
        ("exp(1000)", "the result is too large: exp(1000)", ""),
        ("exp(700) * exp(700)", "the result is too large: 1.01423205473", ""),
        ("sqrt(2) + 10**900", "the result is too large: 1.4142135623731 + 1000", ""),
        ("1e999 * 1e999", "the result is too large: 1e+999 * 1e+999", ""),
        ("1e1001", "the number at position 1 has more than 1000 digits", ""),
        ("1e99999999999999999999", "the number at position 1 has more than 1000 digits", ""),
        ("1" * 1001, "the expression has 1001 characters; 1000 are allowed", "do it in parts"),
        ("(" * 41 + "1" + ")" * 41, "the expression is nested deeper than 40 levels", "do it in parts"),
        ("-" * 500 + "1", "the expression is nested deeper than 40 levels", "do it in parts"),
        ("**".join(["1"] * 60), "the expression is nested deeper than 40 levels", "do it in parts"),
        ("sqrt(" * 60, "the expression is nested deeper than 40 levels", "do it in parts"),
    ],
)
def test_what_cannot_be_computed_says_what_and_where(expression, message, hint):
    error = refused(expression)

    assert error.message.startswith(message)
    assert error.hint.startswith(hint) or hint in error.hint
    assert len(error.message) < 400


def test_long_sums_and_products_are_quick():
    started = time.perf_counter()

    assert calc("+".join(["1"] * 500)) == "500"
    assert calc("*".join(["9" * 90] * 10)) == str(int("9" * 90) ** 10)
    assert calc("/".join(["7"] * 500)) != ""
    assert calc("+".join(f"1/{n}" for n in range(2, 180))).startswith("4.767392166")
    assert time.perf_counter() - started < 1


numbers = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=3, allow_nan=False).map(str),
)
expressions = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(" ".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"({text}) ** 2"),
    ),
    max_leaves=8,
)


def exact(expression: str) -> Fraction:
    """What Python makes of it when every number is a fraction. Only for expressions made above."""
    return eval(re.sub(r"[0-9.]+(?:E[+-]?[0-9]+)?", r"Fraction('\g<0>')", expression), {"Fraction": Fraction})


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_the_value_is_the_exact_one_rounded_to_what_is_shown(expression):
    try:
        value = exact(expression)
    except ZeroDivisionError:
        assert "division by zero" in refused(expression).message
        return

    shown = Fraction(calc(expression))

    assert abs(shown - value) <= abs(value) * Fraction(1, 10**14)
    if value.denominator == 1 and abs(value) < 10**21:
        assert shown == value


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_integers_are_exact_to_the_last_digit(a, b):
    assert calc(f"({a}) * ({b}) + {abs(a)}") == str(a * b + abs(a))
    assume(b)
    assert calc(f"({a}) // ({b})") == str(a // b)
    assert calc(f"({a}) % ({b})") == str(a % b)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("0123456789.eE+-*/%() ,pisqrt^_"), max_size=40))
def test_any_text_is_computed_or_refused_in_words(expression):
    try:
        text = calc(expression)
    except ToolError as error:
        assert error.message
    else:
        assert math.isfinite(float(text)) or len(text) > 300


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_no_text_is_a_crash(expression):
    try:
        assert calc(expression)
    except ToolError as error:
        assert json.dumps(error.message)


def test_the_tool_names_every_function_there_is():
    assert calculator.name == "calc"
    assert calculator.effect == "read"
    assert all(name in calculator.description for name in _numbers.NAMES)
    assert calculator.func is calc
    assert _arithmetic.MAX_LENGTH == 1000
