"""`dataclass(frozen=True, slots=True)`, made in a quarter of the time and filled in two thirds of it.

The standard library writes six functions for each such class and compiles them one by one: 0.6 ms, and
the fifty that a command needs were a fifth of all it did before its first request. Here only `__init__`
is compiled; the other five are the same for all classes. The class is a dataclass in every other way:
`fields`, `replace`, `asdict`, `match` and pickle know it, and to type checkers it is the standard one.

Knows nothing about what is recorded.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass as _standard, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what type checkers take it for
else:
    T = TypeVar("T")

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type[T]], type[T]]:
        """Both are always true, and said where the class is, as readers expect it there."""
        if not (frozen and slots):
            raise TypeError("this one is for frozen classes with slots; the others are dataclasses.dataclass")
        return _made


def _made(cls: type[Any]) -> type[Any]:
    # An empty docstring keeps the standard library from writing one, for which it inspects the class.
    documented, cls.__doc__ = cls.__doc__, cls.__doc__ or " "
    made = _standard(init=False, repr=False, eq=False, slots=True)(cls)
    made.__doc__ = documented
    names = tuple(field.name for field in fields(made))
    shared = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash, "__getstate__": _getstate}
    guards = {"__setstate__": _setstate, "__setattr__": _setattr, "__delattr__": _delattr}
    own = {"__init__": _init(made), "_values": staticmethod(_values(names))}
    for name, method in (shared | guards | own).items():
        setattr(made, name, method)
    return made


def _init(cls: type[Any]) -> Any:
    known: dict[str, Any] = {}
    parameters, lines = [], []
    for field in fields(cls):
        name, value = field.name, field.name
        if field.kw_only or not field.init:
            raise TypeError(f"{cls.__name__}.{name}: for fields like this one use dataclasses.dataclass")
        known[f"set_{name}"] = getattr(cls, name).__set__  # past `__setattr__`, which refuses
        if field.default is not MISSING:
            known[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        elif field.default_factory is not MISSING:
            known["missing"], known[f"make_{name}"] = MISSING, field.default_factory
            parameters.append(f"{name}=missing")
            value = f"make_{name}() if {name} is missing else {name}"
        else:
            parameters.append(name)
        lines.append(f"  set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines or ["  pass"]), known)  # noqa: S102
    init = known["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {field.name: field.type for field in fields(cls)} | {"return": None}
    return init


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _repr(self: Any) -> str:
    shown = zip(self.__dataclass_fields__, self._values(self), strict=True)
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in shown)})"


def _eq(self: Any, other: Any) -> Any:
    return self._values(self) == self._values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._values(self))


def _getstate(self: Any) -> list[Any]:
    return list(self._values(self))


def _setstate(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


def _setattr(_: Any, name: str, __: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(_: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
