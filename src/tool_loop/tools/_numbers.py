"""Numbers of a calculator: operations and functions with bounds, and numbers as text.

Knows nothing about how an expression is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from tool_loop.errors import ToolError

MAX_DIGITS = 1_000

# Integers and what was written with a decimal point are exact; a float comes only out of a function.
Number: TypeAlias = int | Fraction | float

_MAX_BITS = int(MAX_DIGITS * math.log2(10))
_SHOWN_DIGITS = 15  # as many as a float holds for sure


def computed(sign: str, left: Number, right: Number) -> Number:
    """One operation, or a ToolError that says why it has no result."""
    try:
        if sign == "**":
            return _bounded(_raised(left, right))
        if sign == "/":
            return _bounded(_quotient(left, right))
        return _bounded(_SIGNS[sign](left, right))
    except ZeroDivisionError:
        raise invalid(f"division by zero: {text_of(left)} {sign} {text_of(right)}", "") from None
    except OverflowError:
        raise _too_large(f"{text_of(left)} {sign} {text_of(right)}") from None
    except ValueError:  # 0 ** -0.5
        raise invalid(f"{text_of(left)} {sign} {text_of(right)} is not defined", "") from None


_SIGNS: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _quotient(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right  # an integer of any size stays exact to the last digit
    return Fraction(left) / Fraction(right)


def _raised(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        exponent = exponent.numerator
    if isinstance(base, float) or not isinstance(exponent, int):
        return _inexact_power(base, exponent)
    # Before it is computed: 9**9**9 has 370 million digits.
    size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if size * abs(exponent) <= _MAX_BITS:
        return Fraction(base) ** exponent if exponent < 0 else base**exponent
    if isinstance(base, Fraction):
        return _inexact_power(base, exponent)  # 1.000001 ** 1000000 is no large number
    raise OverflowError


def _inexact_power(base: Number, exponent: Number) -> Number:
    if base < 0 and exponent != int(exponent):
        raise invalid(f"a negative number has no real power: ({text_of(base)}) ** {text_of(exponent)}", "")
    return math.pow(base, exponent)


def _bounded(value: Number) -> Number:
    """The value, if it is one that can be shown; a fraction of too many digits becomes inexact."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError
        return value
    if value.numerator.bit_length() - value.denominator.bit_length() > _MAX_BITS:
        raise OverflowError
    if isinstance(value, Fraction) and value.denominator.bit_length() > _MAX_BITS:
        return float(value)
    return value


def applied(name: str, arguments: Sequence[Number]) -> Number:
    least, most, function = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        expected = str(least) if least == most else f"1 to {_MANY}" if most == _MANY else f"{least} or {most}"
        raise invalid(f"{name} takes {expected} arguments, got {len(arguments)}", "")
    call = f"{name}({', '.join(map(text_of, arguments))})"
    try:
        return _bounded(function(*arguments))
    except OverflowError:
        raise _too_large(call) from None
    except (ValueError, ZeroDivisionError):
        raise invalid(f"{call} is not defined", "") from None


def _square_root(value: Number) -> Number:
    if not isinstance(value, float) and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return top if bottom == 1 else Fraction(top, bottom)
    return math.sqrt(value)


def _rounded(value: Number, digits: Number = 0) -> Number:
    if digits != int(digits) or not -MAX_DIGITS <= digits <= MAX_DIGITS:
        raise ValueError
    # Half goes up, as people expect of a calculator; Python's round goes to the even digit.
    scale = Fraction(10) ** int(digits)
    whole = math.floor(abs(Fraction(value)) * scale + Fraction(1, 2)) / scale
    return -whole if value < 0 else whole


_MANY = 100
CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}


def _size(value: Number) -> Number:
    return -value if value < 0 else value


def _least(*values: Number) -> Number:
    return min(values)


def _most(*values: Number) -> Number:
    return max(values)


FUNCTIONS: dict[str, tuple[int, int, Callable[..., Number]]] = {
    "abs": (1, 1, _size),
    "round": (1, 2, _rounded),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "min": (1, _MANY, _least),
    "max": (1, _MANY, _most),
    "sqrt": (1, 1, _square_root),
    "exp": (1, 1, math.exp),
    "log": (1, 2, math.log),
    "log2": (1, 1, math.log2),
    "log10": (1, 1, math.log10),
    "sin": (1, 1, math.sin),
    "cos": (1, 1, math.cos),
    "tan": (1, 1, math.tan),
}
NAMES = (*CONSTANTS, *FUNCTIONS)


def text_of(value: Number) -> str:
    """A number as people write it: no trailing zeros, an exponent only where it saves many zeros."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Fraction) and value.denominator == 1 and abs(value) < 10**21:
        return str(value.numerator)
    from decimal import Context, Decimal  # unlike a float, it has room for every exponent

    exact = Fraction(value)
    digits = Context(prec=_SHOWN_DIGITS).divide(Decimal(exact.numerator), Decimal(exact.denominator))
    if digits and -7 < digits.adjusted() < 21:
        plain = f"{digits:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    return f"{digits.normalize():e}" if digits else "0"


def _too_large(what: str) -> ToolError:
    return invalid(f"the result is too large: {what[:200]}", f"results have up to {MAX_DIGITS} digits")


def invalid(message: str, hint: str) -> ToolError:
    return ToolError(message, kind="invalid_argument", hint=hint, field="expression")
