"""What the fuzzer must know beside the document: how webhooks are signed and what they look like, and that
nobody may sign out with the token that everything else is asked with."""

import hashlib
import hmac
import json
import os
import pathlib
import random

import requests
import schemathesis

HOOK_SECRET = os.environ["FUZZ_HOOK_SECRET"].encode()
SPARE_TOKENS = iter(os.environ["FUZZ_SPARE_TOKENS"].split())
CHANCE = random.Random(int(os.environ["FUZZ_SEED"]))

SIGNATURE = "X-Hub-Signature-256"

# What schemathesis.toml has for a signature, to be replaced by a good one.
TO_BE_SIGNED = "to be signed"

DELIVERIES = pathlib.Path("tests/data/webhooks")
EVENTS = {
    "check_run": "check_run",
    "closed": "pull_request",
    "issue_comment": "issue_comment",
    "issue_comment_on_issue": "issue_comment",
    "merged": "pull_request",
    "opened": "pull_request",
    "ping": "ping",
    "review": "pull_request_review",
    "review_comment": "pull_request_review_comment",
    "review_dismissed": "pull_request_review",
    "synchronize": "pull_request",
    "thread_resolved": "pull_request_review_thread",
}
STRANGE = [None, True, 0, -1, 2**63, 1.5, "", "\0", "x" * 5000, "/agent-implement \u202e", [], {}, [[]]]


class Signed(requests.auth.AuthBase):
    """Signs the bytes that are sent, as the repository host does."""

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        digest = hmac.new(HOOK_SECRET, body, hashlib.sha256).hexdigest()
        request.headers[SIGNATURE] = f"sha256={digest}"
        return request


def nearly_real():
    """A payload as the host sends it, with a few places that it would not fill like that."""
    name = CHANCE.choice(sorted(EVENTS))
    payload = json.loads((DELIVERIES / f"{name}.json").read_text())
    for _ in range(CHANCE.randrange(4)):
        place = payload
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = CHANCE.choice(keys) if keys else None
            if key is None:
                break
            below = place[key]
            if isinstance(below, (dict, list)) and below and CHANCE.random() < 0.8:
                place = below
                continue
            place[key] = CHANCE.choice(STRANGE)
            break
    return EVENTS[name], payload


@schemathesis.hook
def before_call(context, case, kwargs):
    path = context.operation.path
    if path == "/api/repo-host/webhook" and case.headers.get(SIGNATURE) == TO_BE_SIGNED:
        if isinstance(case.body, dict) and case.media_type == "application/json" and CHANCE.random() < 0.8:
            case.headers["X-GitHub-Event"], case.body = nearly_real()
        kwargs["auth"] = Signed()
    if path == "/api/auth/logout" and "Authorization" in case.headers:
        if case.headers["Authorization"] == f"Bearer {os.environ['FUZZ_ADMIN_TOKEN']}":
            case.headers["Authorization"] = f"Bearer {next(SPARE_TOKENS)}"
