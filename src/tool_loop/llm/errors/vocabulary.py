"""The vocabulary of provider errors: which code and which wording means what.

Data, with the one function that looks things up in it. Every word here was sent by some server;
nothing here knows how an error's body is shaped or what is done about it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from tool_loop.errors import ProviderKind


@dataclass(frozen=True, slots=True)
class _Row:
    """`codes` are compared with an error's code, type and status words (letters only, lower case);
    `words` are searched in its message.
    """

    kind: ProviderKind
    codes: frozenset[str]
    words: re.Pattern[str]


def _row(kind: ProviderKind, codes: str, *words: str) -> _Row:
    return _Row(kind, frozenset(codes.split()), re.compile("|".join(words) or r"(?!)", re.IGNORECASE))


# In the order they are asked: what needs another act than waiting comes first.
_ROWS: Final = (
    _row(
        "context_length",
        "contextlengthexceeded contextlengthexceedederror exceedcontextsizeerror contextwindowexceeded "
        "contextwindowexceedederror requesttoolarge modelmaxprompttokensexceeded modelcontextwindowexceeded "
        "promptistoolong prompttoolong inputtoolong tokenslimitreached",
        r"context[ _-]?(?:length|window|size|limit)[^.]{0,80}(?:exceed|too|overflow|(?:larg|long|great)er|reach|full)",
        r"(?:exceed|(?:larg|long|great)er than|over|beyond|too (?:long|large|big) for|out of)[^.]{0,80}\bcontext\b",
        r"(?:maximum|max|model'?s?) context (?:length|window|size)",
        r"maximum prompt length|\bn_ctx\b|context[^.]{0,40}overflow|max(?:imum)?[ _]model[ _]len",
        r"\b(?:prompt|input)\b(?![^.]{0,40}\b(?:image|file|audio))[^.]{0,40}\bexceed",
        r"\b(?:prompt|input|inputs|messages|conversation)\b[^.]{0,30}(?: is| are| was)? ?too (?:long|large|big)",
        r"(?:input|prompt)[ _]?(?:token|length|size)[^.]{0,60}(?:exceed|too |(?:larg|long|great)er|(?:must|should) be)",
        r"(?:exceed|(?:more|larger) than)[^.]{0,60}(?:token limit|(?:input|prompt) tokens|tokens allowed)",
        r"(?:exceed|(?:more|larger) than)[^.]{0,60}(?:maximum )?(?:input|prompt) length",
        r"too many (?:input |prompt )?tokens(?! per)|token limit (?:exceeded|reached)|range of input length",
        r"request (?:entity )?too large|payload too large|request exceeds the maximum size",
        r"reduce the length|(?:reduce|shorten) your (?:message|prompt|input)",
        r"must have less than \d+ (?:input )?tokens|`?inputs`? tokens \+",
    ),
    _row(
        "quota",
        "insufficientquota quotaexceeded billingnotactive billinghardlimitreached insufficientbalance "
        "insufficientcredits insufficientfunds paymentrequired exceededcurrentquotaerror billingerror arrearage "
        "creditbalancetoolow insufficientuserquota accountoverdue budgetexceeded",
        r"exceeded your (?:current |monthly |assigned )?quota|budget has been exceeded|exceeded (?:your |the )?budget",
        r"insufficient (?:account )?(?:quota|balance|credit|fund)|credit balance|payment (?:is )?required",
        r"(?:more|enough|no|out of|insufficient|remaining|add) credits?\b",
        r"(?:spend(?:ing)?|billing|(?:monthly|weekly) usage) (?:hard )?limit|account (?:is )?(?:overdue|in arrears)",
    ),
    _row(
        "content_filter",
        "contentfilter contentpolicyviolation responsibleaipolicyviolation datainspectionfailed moderationblocked "
        "contentmoderation safety promptblocked prohibitedcontent contentblocked sensitivecontent",
        r"content (?:management )?polic|content[ _-]filter|response was filtered|usage polic(?:y|ies)",
        r"(?:is|was|were|been) flagged|flagged (?:by|as|for|\")|moderation",
        r"content exists risk|inappropriate content|safety (?:system|filter|reasons)",
    ),
    _row(
        "model_output",
        "toolusefailed outputparsefailed jsonvalidatefailed toolcallparseerror invalidtooloutput modelerror",
        r"failed to call a function|tool call validation failed|attempted to call tool|failed_generation",
        r"model did not call a tool|tool choice is required, but|failed to parse (?:the )?(?:model|generated) output",
    ),
    _row(
        "auth",
        "invalidapikey authenticationerror unauthorized unauthenticated permissiondenied permissionerror "
        "invalidauthentication authenticationfailed accessdenied accessdeniedexception forbidden unauthorizederror "
        "missingapikey invalidtoken expiredtoken invalidiamtoken keydisabled unrecognizedclientexception",
        r"(?:invalid|incorrect|wrong|bad|missing|no|expired|valid|revoked|unknown|provide an?|disabled) "
        r"(?:api|access|x-api|auth\w*)[ _-]?(?:key|token|credentials?)",
        r"(?:api|access|x-api)[ _-]?(?:key|token)[^.]{0,60}(?:invalid|incorrect|not (?:valid|found|provided))",
        r"(?:api|access|x-api)[ _-]?(?:key|token)[^.]{0,60}(?:missing|expired|revoked|required|disabled)",
        r"authentication (?:fail|required|error)|unauthori[sz]ed",
    ),
    _row(
        "not_found",
        "modelnotfound deploymentnotfound notfounderror notfound modelnotavailable modelnotexist "
        "modelnotsupported resourcenotfound unknownmodel invalidmodel unknownurl modeldecommissioned modeldeprecated",
        r"model\b[^.]{0,120}(?:does(?: not|n't) exist|not (?:found|exist|available)|was not found)",
        r"(?:no such|unknown|invalid|unrecognized|not a valid) model|no endpoints found",
        r"deployment[^.]{0,60}does not exist|model\b[^.]{0,80}(?:decommissioned|no longer (?:supported|available))",
    ),
    _row(
        "overloaded",
        "overloadederror overloaded serviceunavailable serviceunavailableerror engineoverloadederror engineoverloaded "
        "unavailable unavailableerror modeloverloaded capacityexceeded slowdown",
        r"\boverloaded\b|(?:at|over|no|insufficient|out of) (?:available )?capacity|queue is full|too busy",
        r"loading model|model is (?:currently )?loading|temporarily unavailable",
        r"no available (?:workers?|channel|server|instance)",
    ),
    _row(
        "rate_limit",
        "ratelimitexceeded ratelimiterror toomanyrequests resourceexhausted throttlingexception throttling ratelimited "
        "ratelimit ratelimitreached requestlimitexceeded tokens requests ratelimitreachederror limitrequests",
        r"rate[ _-]?limit|too many requests|(?:requests|tokens) per (?:minute|day|second|hour)|throttl",
        r"\b(?:TPM|RPM|TPD|RPD)\b",
    ),
    _row(
        "timeout",
        "timeout timeouterror requesttimeout gatewaytimeout deadlineexceeded",
        r"timed? ?out\b|deadline exceeded",
    ),
    _row(
        "server_error",
        "servererror internalservererror apierror internalerror internal provider providererror badgateway "
        "upstreamerror",
    ),
    _row(
        "bad_request",
        "invalidrequesterror badrequest badrequesterror invalidargument validationerror validationexception "
        "unsupportedparameter unsupportedvalue invalidvalue invalidparameter invalidparametererror invalidrequest "
        "missingrequiredparameter unprocessableentity requestvalidationerror invalidencryptedcontent unknownparameter",
    ),
)

# "max_tokens is too large: 100000. This model supports at most 16384 completion tokens": a setting,
# which no compaction cures, though it speaks of tokens and of too many.
_OUTPUT_SETTING: Final = re.compile(
    r"max_(?:completion_|output_)?tokens\W+(?:is |was )?too (?:large|high|big)|at most \d+ completion tokens"
    r"|number of (?:output|completion) tokens",
    re.IGNORECASE,
)
_OF_CONTEXT: Final = re.compile(r"context (?:length|window|size|limit)", re.IGNORECASE)

# A 429 speaks of tokens and of too many in any case; only this says that waiting is in vain, because
# the request alone is larger than the limit of a minute.
_NEVER_FITS: Final = re.compile(
    r"request too large|too large for|context[ _]length|reduce (?:the length|your message)", re.IGNORECASE
)

_4XX: Final[tuple[ProviderKind, ...]] = (
    "context_length",
    "quota",
    "content_filter",
    "model_output",
    "auth",
    "not_found",
)
# Which kinds the words of an error may turn a status into, and what it is without such words.
_ALLOWED: Final[dict[int, tuple[ProviderKind, ...]]] = {
    401: (),
    402: (),
    403: ("quota", "content_filter", "not_found"),
    404: (),
    408: (),
    413: (),
    429: ("context_length", "quota", "overloaded"),
}
_DEFAULT: Final[dict[int, ProviderKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server_error",  # a conflict with a request that is still at work: passes by itself
    410: "not_found",
    413: "context_length",
    425: "server_error",
    429: "rate_limit",
    498: "overloaded",  # Groq: no capacity at this tier
    499: "server_error",
    503: "overloaded",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}
_5XX: Final[tuple[ProviderKind, ...]] = ("context_length", "model_output", "overloaded")
_ANY: Final = tuple(row.kind for row in _ROWS)


def sort_error(status: int | None, codes: Collection[str], text: str) -> ProviderKind:
    """The kind of an error. `status` is None where an error without a code of its own stood in a 200."""
    allowed, default = _row_of(status)
    for row in _ROWS:
        if row.kind in allowed and (not row.codes.isdisjoint(codes) or _speaks_of(row, status, text)):
            return row.kind
    return default


def _row_of(status: int | None) -> tuple[tuple[ProviderKind, ...], ProviderKind]:
    if status is None:
        return _ANY, "server_error"
    if status >= 500:
        return _5XX, _DEFAULT.get(status, "server_error")
    return _ALLOWED.get(status, _4XX), _DEFAULT.get(status, "bad_request")


def _speaks_of(row: _Row, status: int | None, text: str) -> bool:
    if row.kind == "context_length":
        if status == 429:
            return _NEVER_FITS.search(text) is not None
        if _OUTPUT_SETTING.search(text) and not _OF_CONTEXT.search(text):
            return False
    return row.words.search(text) is not None


# --- the size of the context, out of the sentence that says it was exceeded -------------------------

_SIZE: Final = r"(\d[\d,_]{2,12})"
_WINDOWS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"> ?{_SIZE}\b",
        rf"(?:context (?:length|window|size|limit)|prompt length|token limit)(?: is| of|:)? ?(?:only )?\(?{_SIZE}\b",
        rf"{_SIZE} (?:tokens? )?(?:maximum|max\b)",
        rf"allowed(?: is)? ?\(?{_SIZE}\b",
        rf"limit:? {_SIZE}, requested",
        rf"\[\d+, ?{_SIZE}\]",
        rf"less than {_SIZE}\b",
        rf"(?:limit is|model length of) {_SIZE}\b",
        rf"<=? ?{_SIZE}\b",
    )
)


def window_in(text: str) -> int | None:
    """The largest number of tokens the sentence says there is room for."""
    for pattern in _WINDOWS:
        if found := pattern.search(text):
            return int(re.sub(r"[,_]", "", found[1]))
    return None
