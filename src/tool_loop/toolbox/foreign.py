"""Arrays, numbers and tables of other libraries (numpy, pandas, polars, torch), as lists and mappings.

Known by what their objects can do; none of the libraries is imported, or has to be there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

NOT_ONE: Final = object()

# Of a table so many rows are taken, when there is room for more characters than that.
_ROWS: Final = 10_000


def foreign(value: Any, most: int) -> tuple[Any, str]:
    """The value as Python has it, and how much there is of it where only about `most` items were taken.

    `NOT_ONE` for what is no array, number or table.
    """
    if can(value, "head") and hasattr(value, "columns"):
        return _table(value, min(most, _ROWS))
    if can(value, "tolist"):
        return _series(value, most) if can(value, "head") and hasattr(value, "index") else _array(value, most)
    for name in ("to_pylist", "to_list"):  # pyarrow, polars
        if can(value, name):
            return getattr(value, name)(), ""
    if can(value, "item") and not hasattr(value, "items"):
        try:
            return value.item(), ""
        except TypeError:
            pass  # an item of something else
    return NOT_ONE, ""


def can(value: Any, name: str) -> bool:
    """Whether its type has such a method. Not asked of the object: a mock, or a proxy, has any name there is."""
    return callable(getattr(type(value), name, None))


def _array(value: Any, most: int) -> tuple[Any, str]:
    dtype, shape = getattr(value, "dtype", None), tuple(getattr(value, "shape", ()))
    total, count = "", math.prod(shape)
    if shape and count > most:
        total = f"{count:,} values" + (f", {' x '.join(map(str, shape))}" if len(shape) > 1 else "")
        width = count // shape[0]
        value = value[: max(1, most // width)] if width <= most else value.reshape(-1)[:most]
    if getattr(dtype, "kind", "") in ("m", "M"):
        value = value.astype(str)  # a list of them would be one of bare numbers, of nanoseconds
    found = value.tolist()
    names = getattr(dtype, "names", None)
    if names and shape:
        found = _with_names(found, names, len(shape))
    return dict(zip(names, found, strict=True)) if names and not shape else found, total


def _with_names(rows: Any, names: Sequence[str], depth: int) -> Any:
    if depth:
        return [_with_names(row, names, depth - 1) for row in rows]
    return dict(zip(names, rows, strict=True))


def _series(value: Any, most: int) -> tuple[Any, str]:
    """A column: with labels where they say more than the position does."""
    head = value.head(most)
    total = f"{len(value):,} values" if len(value) > len(head) else ""
    values = [_cell(cell) for cell in head.tolist()]
    if _counts(head.index):
        return values, total
    labels = [_label(label) for label in head.index.tolist()]
    if len(set(labels)) < len(labels):
        return [list(pair) for pair in zip(labels, values, strict=True)], total
    return dict(zip(labels, values, strict=True)), total


def _table(value: Any, most: int) -> tuple[Any, str]:
    """Rows as mappings; an index that was given names belongs to each row."""
    head = value.head(most)
    total = f"{len(value):,} rows" if len(value) > len(head) else ""
    if can(head, "to_dicts"):
        return head.to_dicts(), total
    if not can(head, "itertuples"):
        return head.to_dict(orient="records"), total
    if not _counts(head.index):
        head = head.reset_index(names=[name or f"index{i or ''}" for i, name in enumerate(head.index.names)])
    names = [_label(name) for name in head.columns]
    rows = [[_cell(cell) for cell in row] for row in head.itertuples(index=False, name=None)]
    if len(set(names)) < len(names):
        return {"columns": names, "rows": rows}, total
    return [dict(zip(names, row, strict=True)) for row in rows], total


def _counts(index: Any) -> bool:
    """Whether the labels only count the rows from 0."""
    return getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1


def _cell(cell: Any) -> Any:
    """A gap in a table is null: NaN is how floats spell it, NaT and NA are pandas' own."""
    gap = (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ in ("NaTType", "NAType")
    return None if gap else cell


def _label(label: Any) -> str:
    return "/".join(map(str, label)) if isinstance(label, tuple) else str(label)
