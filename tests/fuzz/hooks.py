"""What the fuzzer must know beside the document: how webhooks are signed and what they look like, and that
nobody may sign out with the token that everything else is asked with."""

import hashlib
import hmac
import json
import os
import pathlib
import random
import time

import requests
import schemathesis

HOOK_SECRET = os.environ["FUZZ_HOOK_SECRET"].encode()
SPARE_TOKENS = iter(os.environ["FUZZ_SPARE_TOKENS"].split())
CHANCE = random.Random(int(os.environ["FUZZ_SEED"]))

# Where each sender of webhooks puts its signature, and what stands before it.
SIGNATURES = {
    "/api/repo-host/webhook": ("X-Hub-Signature-256", "sha256="),
    "/api/ticketing-a/webhook": ("Linear-Signature", ""),
    "/api/ticketing-b/webhook": ("X-Hub-Signature", "sha256="),
}

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
    """Signs the bytes that are sent, as their sender does."""

    def __init__(self, header, before):
        self.header, self.before = header, before

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        digest = hmac.new(HOOK_SECRET, body, hashlib.sha256).hexdigest()
        request.headers[self.header] = f"{self.before}{digest}"
        return request


def nearly_real():
    """A payload as the host sends it, with a few places that it would not fill like that."""
    name = CHANCE.choice(sorted(EVENTS))
    return EVENTS[name], spoilt(json.loads((DELIVERIES / f"{name}.json").read_text()))


def ticket_event(path):
    """The same of a ticketing system."""
    if path == "/api/ticketing-a/webhook":
        now = int(time.time() * 1000)
        labels = {"id": "i", "identifier": "DEMO-1", "team": {"key": "DEMO"}, "labels": [{"name": "Agent-Implement"}]}
        return spoilt({"action": "update", "type": "Issue", "webhookTimestamp": now, "data": labels, "updatedFrom": {}})
    fields = {"project": {"key": "DEMO"}, "status": {"name": "To Do"}}
    return spoilt({"webhookEvent": "jira:issue_updated", "timestamp": 1, "issue": {"id": "1", "key": "DEMO-1", "fields": fields}})


def spoilt(payload):
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
    return payload


@schemathesis.hook
def before_call(context, case, kwargs):
    path = context.operation.path
    header, before = SIGNATURES.get(path, ("", ""))
    if header and case.headers.get(header) == TO_BE_SIGNED:
        if isinstance(case.body, dict) and case.media_type == "application/json" and CHANCE.random() < 0.8:
            if path == "/api/repo-host/webhook":
                case.headers["X-GitHub-Event"], case.body = nearly_real()
            else:
                case.body = ticket_event(path)
        kwargs["auth"] = Signed(header, before)
    if path == "/api/auth/logout" and "Authorization" in case.headers:
        if case.headers["Authorization"] == f"Bearer {os.environ['FUZZ_ADMIN_TOKEN']}":
            case.headers["Authorization"] = f"Bearer {next(SPARE_TOKENS)}"
