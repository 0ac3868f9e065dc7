"""Hooks of the fuzzer: sign webhooks, generate realistic payloads, and keep the main admin token signed in."""

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
RANDOM = random.Random(int(os.environ["FUZZ_SEED"]))

# Path of each webhook -> header of its signature, and the prefix of the value.
SIGNATURES = {
    "/api/repo-host/webhook": ("X-Hub-Signature-256", "sha256="),
    "/api/ticketing-a/webhook": ("Linear-Signature", ""),
    "/api/ticketing-b/webhook": ("X-Hub-Signature", "sha256="),
}

# Placeholder of a signature in schemathesis.toml, replaced by a valid signature.
SIGNATURE_PLACEHOLDER = "to be signed"

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
INVALID_VALUES = [None, True, 0, -1, 2**63, 1.5, "", "\0", "x" * 5000, "/agent-implement \u202e", [], {}, [[]]]


class Signed(requests.auth.AuthBase):
    """Signs the request body as the sender of the webhook does."""

    def __init__(self, header, prefix):
        self.header, self.prefix = header, prefix

    def __call__(self, request):
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        digest = hmac.new(HOOK_SECRET, body, hashlib.sha256).hexdigest()
        request.headers[self.header] = f"{self.prefix}{digest}"
        return request


def repository_event():
    """Returns the name and payload of an event of the repository host, with a few invalid values."""
    name = RANDOM.choice(sorted(EVENTS))
    return EVENTS[name], with_invalid_values(json.loads((DELIVERIES / f"{name}.json").read_text()))


def ticket_event(path):
    """Returns the payload of an event of a ticketing system, with a few invalid values."""
    if path == "/api/ticketing-a/webhook":
        now = int(time.time() * 1000)
        labels = {"id": "i", "identifier": "DEMO-1", "team": {"key": "DEMO"}, "labels": [{"name": "Agent-Implement"}]}
        return with_invalid_values({"action": "update", "type": "Issue", "webhookTimestamp": now, "data": labels, "updatedFrom": {}})
    fields = {"project": {"key": "DEMO"}, "status": {"name": "To Do"}}
    return with_invalid_values({"webhookEvent": "jira:issue_updated", "timestamp": 1, "issue": {"id": "1", "key": "DEMO-1", "fields": fields}})


def with_invalid_values(payload):
    for _ in range(RANDOM.randrange(4)):
        place = payload
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = RANDOM.choice(keys) if keys else None
            if key is None:
                break
            below = place[key]
            if isinstance(below, (dict, list)) and below and RANDOM.random() < 0.8:
                place = below
                continue
            place[key] = RANDOM.choice(INVALID_VALUES)
            break
    return payload


@schemathesis.hook
def before_call(context, case, kwargs):
    path = context.operation.path
    header, prefix = SIGNATURES.get(path, ("", ""))
    if header and case.headers.get(header) == SIGNATURE_PLACEHOLDER:
        if isinstance(case.body, dict) and case.media_type == "application/json" and RANDOM.random() < 0.8:
            if path == "/api/repo-host/webhook":
                case.headers["X-GitHub-Event"], case.body = repository_event()
            else:
                case.body = ticket_event(path)
        kwargs["auth"] = Signed(header, prefix)
    if path == "/api/auth/logout" and "Authorization" in case.headers:
        if case.headers["Authorization"] == f"Bearer {os.environ['FUZZ_ADMIN_TOKEN']}":
            case.headers["Authorization"] = f"Bearer {next(SPARE_TOKENS)}"
