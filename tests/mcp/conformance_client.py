"""The program that the official MCP conformance suite starts: our adapter, our agent, a scripted model.

The suite gives the address of its server as the last argument and the scenario in the environment. What
it asserts is on the wire, so all that happens here is what a user's program would do: connect, let a
model call tools, answer what a server asks, end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlparse

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from tool_loop import Agent, Limits, ScriptedLLM, Tool, ToolCall, ToolContext, ToolError
from tool_loop.events import ApprovalDecided
from tool_loop.mcp import McpServer, mcp_tools
from tool_loop.ports import PendingApproval

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
BACK = "http://localhost:3030/callback"


def mode() -> str:
    # The mock of one scenario of the new revision speaks the handshake of the old ones only.
    old = (VERSION and VERSION < "2026") or SCENARIO == "json-schema-ref-no-deref"
    return "legacy" if old else "auto"


async def reviewer(pending: PendingApproval) -> ApprovalDecided:
    """A person who takes what is suggested, and confirms what the multi-round scenarios ask."""
    content = json.loads(pending.call.arguments)
    if SCENARIO.startswith("sep-2322"):
        content = {"confirmed": True}
    return ApprovalDecided(pending.call.id, allowed=True, arguments=json.dumps(content))


class Tokens:
    tokens: Any = None
    info: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.info

    async def set_client_info(self, info: Any) -> None:
        self.info = info


class Browser:
    """Follows the authorization address as a person's browser would, and comes back with the code."""

    back: AuthorizationCodeResult

    async def go(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            response = await client.get(url, follow_redirects=False)
        query = parse_qs(urlparse(response.headers["location"]).query)
        one = {name: values[0] for name, values in query.items()}
        self.back = AuthorizationCodeResult(code=one["code"], state=one.get("state"), iss=one.get("iss"))

    async def code(self) -> AuthorizationCodeResult:
        return self.back


def oauth(url: str) -> Any:
    if SCENARIO == "auth/client-credentials-jwt":
        signed = SignedJWTParameters(
            issuer=CONTEXT["client_id"],
            subject=CONTEXT["client_id"],
            signing_algorithm=CONTEXT.get("signing_algorithm", "ES256"),
            signing_key=CONTEXT["private_key_pem"],
        )
        return PrivateKeyJWTOAuthProvider(
            server_url=url,
            storage=Tokens(),
            client_id=CONTEXT["client_id"],
            assertion_provider=signed.create_assertion_provider(),
        )
    if SCENARIO == "auth/client-credentials-basic":
        return ClientCredentialsOAuthProvider(
            server_url=url,
            storage=Tokens(),
            client_id=CONTEXT["client_id"],
            client_secret=CONTEXT["client_secret"],
            token_endpoint_auth_method="client_secret_basic",
        )
    browser, tokens = Browser(), Tokens()
    if "client_id" in CONTEXT:
        secret = CONTEXT.get("client_secret")
        tokens.info = OAuthClientInformationFull(
            client_id=CONTEXT["client_id"],
            client_secret=secret,
            redirect_uris=[AnyUrl(BACK)],
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
        )
    return OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(
            client_name="tool-loop",
            redirect_uris=[AnyUrl(BACK)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        ),
        storage=tokens,
        redirect_handler=browser.go,
        callback_handler=browser.code,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )


def stub(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit, whatever they are."""
    values = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}
    fields = schema.get("properties", {})
    return {name: values.get(fields.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


def plan(tools: Iterable[Tool]) -> list[tuple[str, dict[str, Any]]]:
    """Which calls the model makes in this scenario."""
    by_name = {tool.name: tool for tool in tools}
    if SCENARIO in ("initialize", "json-schema-ref-no-deref"):
        return []
    if SCENARIO == "json-schema-2020-12-preservation":
        focal = by_name["s_json_schema_2020_12_tool"]
        return [("s_json_schema_echo", {"schema": dict(focal.parameters or {})})]
    if SCENARIO.startswith("sep-2322"):
        return [(f"s_test_mrtr_{name}", {}) for name in ("echo_state", "unrelated", "no_state", "no_result_type")]
    if "s_add_numbers" in by_name and SCENARIO != "http-invalid-tool-headers":
        return [("s_add_numbers", {"a": 5, "b": 3})]
    return [(name, stub(dict(tool.parameters or {}))) for name, tool in by_name.items()]


async def below_the_registry(tools: Iterable[Tool]) -> None:
    """One scenario sends null where its own schema says boolean. The registry refuses that, rightly, so the
    transport is shown by the tool's own function."""
    for call in CONTEXT.get("toolCalls", []):
        for tool in (each for each in tools if each.name == f"s_{call['name']}"):
            try:
                await tool.func(tool_loop_context=ToolContext(), **(call.get("arguments") or {}))
            except ToolError as error:
                print(error, file=sys.stderr)


async def main(url: str) -> None:
    auth = oauth(url) if SCENARIO.startswith("auth/") else None
    server = McpServer("s", url=url, mode=mode(), auth=auth)
    async with mcp_tools(server, reviewer=reviewer) as tools:
        if SCENARIO == "http-custom-headers":
            await below_the_registry(tools)
            return
        if turns := [ToolCall(str(n), name, json.dumps(args)) for n, (name, args) in enumerate(plan(tools))]:
            result = await Agent(ScriptedLLM(*turns, "done"), tools, limits=Limits(repeats=9, steps=50)).run("go")
            print([(each.error, each.content[:300]) for each in result.failures], file=sys.stderr)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    asyncio.run(main(sys.argv[-1]))
