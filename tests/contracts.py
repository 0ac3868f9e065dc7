"""Checks every request in the log of the fake vendors against the published contracts of the vendors.

    contracts.py CHECKER_DIR LOG.jsonl ...

CHECKER_DIR contains `validate.py`, which knows the contracts. Each line of a log is one request as the vendor
would receive it. Prints one line per violation, and the number of checked requests per kind. Exits with 1 if there
is a violation.
"""
import json
import re
import sys
from collections import Counter

CLOSED_PATHS = re.compile(r"/(?:\d+|[0-9a-f]{14}|[0-9a-f]{40}|[0-9a-f]{64})(?=/|$)")


def graphql(check, vendor, body):
    """Checks a GraphQL request: query, variables, and for Linear its complexity."""
    if not isinstance(body, dict) or not isinstance(body.get("query"), str):
        return ["body: a GraphQL request needs a query"]
    query, variables = body["query"], body.get("variables") or {}
    extra = sorted(set(body) - {"query", "variables", "operationName"})
    errors = [f"body.{name}: not a part of a GraphQL request" for name in extra]
    errors += check.validate_graphql(query, variables, schema=vendor)
    if vendor == "linear" and not errors:
        points = check.linear_complexity(query, variables)
        if points > 10_000:
            errors.append(f"the query costs {points} points; the limit of Linear is 10,000")
    return errors


def linear(check, request, headers):
    errors = []
    if (request["method"], request["url"]) != ("POST", "https://api.linear.app/graphql"):
        errors.append("the only endpoint of Linear is POST https://api.linear.app/graphql")
    if headers.get("authorization") != "[redacted]":
        errors.append("headers: Authorization must be the personal key alone, without a scheme")
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
    errors = check.validate_request("github", request["method"], url, headers, request["body"])
    if re.search(r"/app-manifests/[^/]+/conversions$", url):
        # The only call without credentials: its code is the credential.
        errors = [error for error in errors if error != "headers: Authorization missing"]
    return errors


def chat(check, request, headers):
    kind = "slack" if request["url"].startswith("https://hooks.slack.com/") else "teams"
    errors = [] if request["method"] == "POST" else ["a webhook accepts only POST"]
    if "json" not in headers.get("content-type", ""):
        errors.append("headers: Content-Type must be application/json")
    return errors + check.validate_chat(kind, request["body"])


def jira(check, request, headers):
    url, headers = request["url"], dict(request["headers"])
    if request["method"] == "POST" and re.search(r"/rest/api/3/(field|screens/addToDefault/[^/]+)$", url):
        return []  # The copy of the contract has no creation of fields; src/fake_vendors/contract/jira.rs checks it.
    if re.search(r"/rest/api/3/(attachment/content/\d+|user/permission/search)(\?|$)", url):
        return []  # Nor has it contents of attachments and people by permission.
    return check.validate_request("jira", request["method"], url, headers, request["body"])


def fly(check, request, headers):
    url, headers = request["url"], dict(request["headers"])
    return check.validate_request("fly", request["method"], url, headers, request["body"], strict=True)


def docker(check, request, headers):
    """Checks strictly: the engine ignores unknown fields, so a misspelt limit would have no effect."""
    url, headers = request["url"], dict(request["headers"])
    if (request["method"], url.split("?")[0]) == ("POST", "http://docker/build"):
        return []  # The copy of the contract has no builds; src/fake_vendors/contract/machines.rs checks them.
    return check.validate_request("docker", request["method"], url, headers, request["body"], strict=True)


def kubernetes(check, request, headers):
    return []  # tests/it/contracts/kubernetes.rs checks it against the published types.


VENDORS = {
    "linear": linear, "github": github, "chat": chat, "jira": jira, "fly": fly, "docker": docker,
    "kubernetes": kubernetes,
}


def call(request):
    """Returns the kind of a call in a few words."""
    if request["url"].endswith("/graphql") and isinstance(request["body"], dict):
        query = request["body"].get("query") or ""
        fields = re.findall(r"[{ ](?:\w+: )?(\w+)(?=\(|\s*\{)", query.split("{", 1)[-1])
        return f"{request['vendor']} {' '.join(query.split()[:1]).split('(')[0]} {fields[0] if fields else '?'}"
    path = re.sub(r"^https?://[^/]+", "", request["url"]).split("?")[0]
    return f"{request['vendor']} {request['method']} {CLOSED_PATHS.sub('/N', path)}"


def main(arguments):
    checker, arguments = arguments[0], arguments[1:]
    sys.path.insert(0, checker)
    import validate

    seen, violations = Counter(), 0
    for name in arguments:
        for number, line in enumerate(open(name, encoding="utf-8"), 1):
            request = json.loads(line)
            headers = {key.lower(): value for key, value in request["headers"].items()}
            seen[call(request)] += 1
            check_vendor = VENDORS.get(request["vendor"])
            errors = check_vendor(validate, request, headers) if check_vendor else ["an unknown vendor"]
            for error in errors:
                violations += 1
                print(f"{name}:{number}: {request['method']} {request['url']}: {error}")
    for kind, count in sorted(seen.items()):
        print(f"  {count:5} × {kind}")
    print(f"{sum(seen.values())} requests of {len(seen)} kinds, {violations} violation(s)")
    return 1 if violations or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
