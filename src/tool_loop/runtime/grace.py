"""How long what was told to stop may take, from the inside out. Each layer waits longer than the one in it.

A test holds the order: were a layer less patient than what it waits for, it would report as lost what
was about to be cleaned up.
"""

from __future__ import annotations

from typing import Final

# A child process that was killed, until the system says that it is gone.
REAP_SECONDS: Final = 0.4

# A tool that was cancelled, to clean up: its child process is one of the things it cleans up. A run has
# to end within one second of its deadline, and this leaves the loop the other half.
GRACE_SECONDS: Final = 0.5

# How long cancelled work may take to clean up. After that it is left behind: a run has to end within
# a second of its deadline, whatever a tool or a server does. (`Limits.grace_seconds`, how long a call
# that must not run twice may go on after a cancel, is the caller's, and comes before all of these.)
UNWIND_SECONDS: Final = 0.8
