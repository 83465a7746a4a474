"""A run as one self-contained HTML page: `page(journal.records(run_id), run_id=run_id)`.
Two runs side by side, from where they part: `diff(records, other_records)`.

Made from the journal's records alone, by pure functions; needs nothing but the standard library.
"""

from __future__ import annotations

from .diff import diff
from .page import embedded, page

__all__ = ["diff", "embedded", "page"]
