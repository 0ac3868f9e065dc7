"""Holds every request of a stand-in town's log against the vendors' published contracts.

    contracts.py CHECKER_DIR [--expect FILE] LOG.jsonl ...

CHECKER_DIR holds `validate.py`, which knows the contracts. Each line of a log is one request as the
vendor would have seen it. Prints what does not conform, one line each, and how much was looked at
of what; exits with 1 when anything did not conform, or when a call that FILE names was never made.
"""
import json
import re
import sys
from collections import Counter

CLOSED_PATHS = re.compile(r"/(?:\d+|[0-9a-f]{14}|[0-9a-f]{40}|[0-9a-f]{64})(?=/|$)")


def graphql(check, vendor, body):
    """A GraphQL request: its query, its variables, and at Linear its price."""
    if not isinstance(body, dict) or not isinstance(body.get("query"), str):
        return ["body: a GraphQL request needs a query"]
    query, variables = body["query"], body.get("variables") or {}
    extra = sorted(set(body) - {"query", "variables", "operationName"})
    errors = [f"body.{name}: not a part of a GraphQL request" for name in extra]
    errors += check.validate_graphql(query, variables, schema=vendor)
    if vendor == "linear" and not errors:
        points = check.linear_complexity(query, variables)
        if points > 10_000:
            errors.append(f"the query costs {points} points; Linear takes 10,000")
    return errors


def linear(check, request, headers):
    errors = []
    if (request["method"], request["url"]) != ("POST", "https://api.linear.app/graphql"):
        errors.append("Linear has one address only: POST https://api.linear.app/graphql")
    if headers.get("authorization") != "[redacted]":
        errors.append("headers: a personal key stands in Authorization alone, without a scheme")
    if "json" not in headers.get("content-type", ""):
        errors.append("headers: Content-Type must be application/json")
    return errors + graphql(check, "linear", request["body"])


def github(check, request, headers):
    if request["url"].split("?")[0] == "https://api.github.com/graphql":
        errors = [] if headers.get("user-agent") else ["headers: User-Agent is required"]
        if not headers.get("authorization", "").lower().startswith("bearer "):
            errors.append("headers: Authorization must be 'Bearer <token>'")
        return errors + graphql(check, "github", request["body"])
    url, headers = request["url"], dict(request["headers"])
    return check.validate_request("github", request["method"], url, headers, request["body"])


def chat(check, request, headers):
    kind = "slack" if request["url"].startswith("https://hooks.slack.com/") else "teams"
    errors = [] if request["method"] == "POST" else ["a webhook takes POST only"]
    if "json" not in headers.get("content-type", ""):
        errors.append("headers: Content-Type must be application/json")
    return errors + check.validate_chat(kind, request["body"])


def jira(check, request, headers):
    url, headers = request["url"], dict(request["headers"])
    return check.validate_request("jira", request["method"], url, headers, request["body"])


def fly(check, request, headers):
    url, headers = request["url"], dict(request["headers"])
    return check.validate_request("fly", request["method"], url, headers, request["body"], strict=True)


def docker(check, request, headers):
    """The engine ignores what it does not know, so a misspelt limit would be none."""
    url, headers = request["url"], dict(request["headers"])
    return check.validate_request("docker", request["method"], url, headers, request["body"], strict=True)


VENDORS = {"linear": linear, "github": github, "chat": chat, "jira": jira, "fly": fly, "docker": docker}


def call(request):
    """What kind of call it is, in a few words."""
    if request["url"].endswith("/graphql") and isinstance(request["body"], dict):
        query = request["body"].get("query") or ""
        fields = re.findall(r"[{ ](?:\w+: )?(\w+)(?=\(|\s*\{)", query.split("{", 1)[-1])
        return f"{request['vendor']} {' '.join(query.split()[:1]).split('(')[0]} {fields[0] if fields else '?'}"
    path = re.sub(r"^https?://[^/]+", "", request["url"]).split("?")[0]
    return f"{request['vendor']} {request['method']} {CLOSED_PATHS.sub('/N', path)}"


def main(arguments):
    checker, arguments = arguments[0], arguments[1:]
    expected = []
    if arguments[0] == "--expect":
        expected = [line.strip() for line in open(arguments[1], encoding="utf-8") if line.strip()]
        arguments = arguments[2:]
    sys.path.insert(0, checker)
    import validate

    seen, complaints = Counter(), 0
    for name in arguments:
        for number, line in enumerate(open(name, encoding="utf-8"), 1):
            request = json.loads(line)
            headers = {key.lower(): value for key, value in request["headers"].items()}
            seen[call(request)] += 1
            judge = VENDORS.get(request["vendor"])
            errors = judge(validate, request, headers) if judge else ["an unknown vendor"]
            for error in errors:
                complaints += 1
                print(f"{name}:{number}: {request['method']} {request['url']}: {error}")
    for missing in (want for want in expected if not any(want in kind for kind in seen)):
        complaints += 1
        print(f"never called: {missing}")
    for kind, count in sorted(seen.items()):
        print(f"  {count:5} × {kind}")
    print(f"{sum(seen.values())} requests of {len(seen)} kinds, {complaints} complaint(s)")
    return 1 if complaints or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
