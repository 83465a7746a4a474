"""Which event loop the tests run on: `--loop uvloop` runs them on what most web servers use.

Tests on virtual time have a loop of their own and stay on it.
"""

from __future__ import annotations

import asyncio
import warnings

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=["asyncio", "uvloop"], default="asyncio", help="the loop of `asyncio.run`")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--loop") == "uvloop":
        import uvloop

        with warnings.catch_warnings():
            # A policy is the one place that also reaches the loops which the code under test starts,
            # and servers that run in threads. Python 3.14 says that it will go in 3.16.
            warnings.simplefilter("ignore", DeprecationWarning)
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def pytest_report_header(config: pytest.Config) -> str:
    return f"event loop: {config.getoption('--loop')}"
