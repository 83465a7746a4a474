"""Arithmetic in a grammar of its own, exact where numbers are exact.

    sum      product (("+" | "-") product)*
    product  signed (("*" | "/" | "//" | "%") signed)*
    signed   ("+" | "-") signed | power
    power    atom ("**" signed)?
    atom     number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"

Nothing is evaluated as Python. What would take long or fill memory is refused before it is computed:
a long text, deep nesting, a number of very many digits. Knows nothing about tools.
"""

from __future__ import annotations

import re
from fractions import Fraction

from ._numbers import CONSTANTS, FUNCTIONS, MAX_DIGITS, NAMES, Number, applied, computed, invalid, text_of

MAX_LENGTH = 1_000
MAX_DEPTH = 40

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|[-+*/%(),]))"
)
# What people and models write for the same thing, and mean nothing else by.
_SPELLINGS = str.maketrans("\N{MULTIPLICATION SIGN}\N{MIDDLE DOT}\N{DIVISION SIGN}\N{MINUS SIGN}", "**/-")


def evaluate(expression: str) -> str:
    """The value as text. Raises `ToolError` of kind `invalid_argument` that says what is wrong and where."""
    if len(expression) > MAX_LENGTH:
        raise invalid(f"the expression has {len(expression)} characters; {MAX_LENGTH} are allowed", "do it in parts")
    return text_of(_Parser(expression).value())


class _Parser:
    """Reads and computes in one go, from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def value(self) -> Number:
        if not self._tokens:
            raise invalid("the expression is empty", 'give one such as "15 * 20"')
        value = self._sum()
        kind, token, position = self._token()
        if kind:
            what = f"unexpected {token!r}" if token in (")", ",") else f"an operator is missing before {token!r}"
            raise invalid(f"{what} at position {position}", _advice(token))
        return value

    def _token(self) -> tuple[str, str, int]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("", "", 0)

    def _accept(self, *signs: str) -> str:
        kind, token, _ = self._token()
        if kind != "sign" or token not in signs:
            return ""
        self._next += 1
        return token

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._accept("+", "-"):
            value = computed(sign, value, self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while sign := self._accept("*", "/", "//", "%"):
            value = computed(sign, value, self._signed())
        return value

    def _signed(self) -> Number:
        # Every way to nest goes through here: signs, powers of powers, parentheses, arguments.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise invalid(f"the expression is nested deeper than {MAX_DEPTH} levels", "do it in parts")
        sign = self._accept("+", "-")
        value = self._signed() if sign else self._power()
        self._depth -= 1
        return -value if sign == "-" else value

    def _power(self) -> Number:
        value = self._atom()
        return computed("**", value, self._signed()) if self._accept("**") else value

    def _atom(self) -> Number:
        kind, token, position = self._token()
        self._next += 1
        if kind == "number":
            return _number(token, position)
        if kind == "name":
            return self._named(token, position)
        if (kind, token) != ("sign", "("):
            where = f"{token!r} at position {position}" if kind else "the end"
            before = self._tokens[self._next - 2][1] if self._next > 1 else ""
            raise invalid(f"a number is missing before {where}", _advice(before if before == "%" else token))
        value = self._sum()
        self._close(position)
        return value

    def _named(self, name: str, position: int) -> Number:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            known = ", ".join(NAMES)
            raise invalid(f"unknown name {name!r} at position {position}", _ADVICE.get(name, f"the names are: {known}"))
        if not self._accept("("):
            raise invalid(f"{name!r} at position {position} needs parentheses", f"write {name}(...)")
        arguments = [self._sum()]
        while self._accept(","):
            arguments.append(self._sum())
        self._close(position)
        return applied(name, arguments)

    def _close(self, opened: int) -> None:
        if not self._accept(")"):
            kind, token, position = self._token()
            where = f"before {token!r} at position {position}" if kind else "at the end"
            raise invalid(f"')' is missing {where}; the expression in question starts at position {opened}", "")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """(kind, text, position from 1) of each token."""
    source = text.translate(_SPELLINGS).rstrip()
    tokens: list[tuple[str, str, int]] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            at = position + len(source[position:]) - len(source[position:].lstrip())
            raise invalid(f"unexpected {text[at]!r} at position {at + 1}", _advice(text[at]))
        kind = match.lastgroup or ""
        tokens.append((kind, match[kind], match.start(kind) + 1))
        position = match.end()
    return tokens


_ADVICE = {
    "^": "a power is written 2**10",
    "%": "% is the remainder; 15 percent of 200 is 15 / 100 * 200",
    "of": "15 percent of 200 is 15 / 100 * 200",
    ",": "write 1000 for 1,000",
    "=": "give the expression alone, without a name or an equals sign",
    "(": "a product is written 2 * (3 + 4)",
}


def _advice(token: str) -> str:
    return _ADVICE.get(token, "allowed are numbers, + - * / // % **, parentheses and functions such as sqrt(2)")


def _number(token: str, position: int) -> Number:
    token = token.replace("_", "")
    exponent = token.lower().partition("e")[2]
    if exponent and abs(int(exponent)) > MAX_DIGITS:
        raise invalid(f"the number at position {position} has more than {MAX_DIGITS} digits", "")
    return int(token) if token.isdecimal() else Fraction(token)
