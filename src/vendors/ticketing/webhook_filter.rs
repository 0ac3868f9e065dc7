//! Filter for webhook events of the ticketing systems. In doubt an event is relevant: a poll that was not necessary costs
//! less than a ticket that waits for the next one.

use serde_json::Value;

use super::jira::collect_values;
use domain::ids::Repo;
use domain::issue::System;
use domain::mapping::{Mapping, TicketingConfig};

/// Returns whether an event may change the result of a poll of these mappings.
pub fn is_relevant_event(system: System, payload: &Value, mappings: &[Mapping]) -> bool {
    let mut own = mappings
        .iter()
        .filter(|mapping| mapping.system() == system)
        .peekable();
    if own.peek().is_none() {
        return false;
    }
    match system {
        System::Linear => linear(payload, own),
        System::Jira => jira(payload, own),
        System::GitHub => github(payload, own),
    }
}

/// Returns the id and the key of the issue on which an event announces a comment. Events name one or both. Empty for
/// other events.
pub fn announced_issue(system: System, payload: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let issue = &payload["issue"];
    let (is_comment, names) = match system {
        System::Linear => {
            let (data, issue) = (&payload["data"], &payload["data"]["issue"]);
            let id = text(&data["issueId"]).or_else(|| text(&issue["id"]));
            let is_comment = payload["type"].as_str() == Some("Comment");
            (is_comment, [id, text(&issue["identifier"])])
        }
        System::Jira => {
            let event = payload["webhookEvent"].as_str().unwrap_or_default();
            let is_comment = matches!(event, "comment_created" | "comment_updated")
                || event.starts_with("jira:issue_") && payload["comment"].is_object();
            (is_comment, [text(&issue["id"]), text(&issue["key"])])
        }
        System::GitHub => {
            let repo = payload["repository"]["full_name"].as_str();
            let number = repo.zip(issue["number"].as_u64());
            let key = number.map(|(repo, number)| format!("{repo}#{number}"));
            let is_comment = payload["comment"].is_object() && issue["pull_request"].is_null();
            (is_comment, [text(&issue["node_id"]), key])
        }
    };
    let names = names.into_iter().flatten();
    names.filter(|_| is_comment).collect()
}

/// Returns whether a Linear event is relevant. Stage, blockers and state of an issue depend on these three
/// types only.
fn linear<'m>(payload: &Value, mut own: impl Iterator<Item = &'m Mapping>) -> bool {
    if !matches!(
        payload["type"].as_str(),
        Some("Issue" | "IssueLabel" | "IssueRelation")
    ) {
        return false;
    }
    match payload["data"]["team"]["key"].as_str() {
        Some(team) => own.any(|mapping| mapping.source_team().as_str().eq_ignore_ascii_case(team)),
        None => true,
    }
}

/// Returns whether a Jira event is relevant. Only the repo field is checked, because a query clause cannot
/// be evaluated here. An event without the issue's fields is relevant.
fn jira<'m>(payload: &Value, mut own: impl Iterator<Item = &'m Mapping>) -> bool {
    let event = payload["webhookEvent"].as_str().unwrap_or_default();
    if !event.starts_with("jira:issue_") && !event.starts_with("issuelink_") {
        return false;
    }
    let Some(fields) = payload["issue"]["fields"].as_object() else {
        return true;
    };
    let mut field_values = Vec::new();
    for (name, value) in fields {
        if name.starts_with("customfield_") {
            collect_values(value, &mut field_values);
        }
    }
    own.any(|mapping| match &mapping.ticketing {
        TicketingConfig::Linear { .. } | TicketingConfig::GitHub { .. } => false,
        TicketingConfig::Jira {
            repo_field_value, ..
        } => field_values
            .iter()
            .any(|value| value == repo_field_value.trim()),
    })
}

/// Returns whether an event of GitHub is about a repository of a mapping. The kind of the event is checked
/// by the parser of the repository host's webhooks.
fn github<'m>(payload: &Value, mut own: impl Iterator<Item = &'m Mapping>) -> bool {
    let name = payload["repository"]["full_name"].as_str();
    let Some(repo) = name.and_then(Repo::parse) else {
        return false;
    };
    own.any(|mapping| mapping.targets(&repo))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mappings() -> Vec<Mapping> {
        let rows = [
            json!({"teamKey": "ENG", "ticketingProvider": "A"}),
            json!({"teamKey": "web", "ticketingConfig":
                {"kind": "A", "teamKey": "APP", "match": {"label": "repo:web"}}}),
            json!({"teamKey": "OPS", "ticketingProvider": "B",
                "ticketingConfig": {"jql": "project = OPS", "repoFieldValue": "shop"}}),
        ];
        rows.iter().map(test_support::mapping).collect()
    }

    #[test]
    fn a_comment_event_names_its_issue() {
        use System::{GitHub, Jira, Linear};
        let jira = |event: &str, issue: Value| json!({"webhookEvent": event, "issue": issue, "comment": {"id": "1"}});
        let rows = [
            (
                Linear,
                json!({"type": "Comment", "data": {"issueId": "u7", "issue": {"id": "u7", "identifier": "ENG-7"}}}),
                &["u7", "ENG-7"][..],
            ),
            (
                Linear,
                json!({"type": "Comment", "data": {"issue": {"id": "u7"}}}),
                &["u7"],
            ),
            (
                Linear,
                json!({"type": "Comment", "data": {"projectId": "p"}}),
                &[],
            ),
            (
                Linear,
                json!({"type": "Issue", "data": {"issueId": "u7"}}),
                &[],
            ),
            (
                Jira,
                jira("comment_created", json!({"id": "7", "key": "OPS-7"})),
                &["7", "OPS-7"],
            ),
            (
                Jira,
                jira("comment_updated", json!({"key": "OPS-7"})),
                &["OPS-7"],
            ),
            (Jira, jira("jira:issue_updated", json!({"id": "7"})), &["7"]),
            (Jira, jira("comment_deleted", json!({"id": "7"})), &[]),
            (
                Jira,
                json!({"webhookEvent": "jira:issue_updated", "issue": {"id": "7"}}),
                &[],
            ),
            (
                GitHub,
                json!({"comment": {}, "issue": {"node_id": "I_7", "number": 7}, "repository": {"full_name": "acme/shop"}}),
                &["I_7", "acme/shop#7"],
            ),
            (
                GitHub,
                json!({"comment": {}, "issue": {"node_id": "I_7", "pull_request": {}}}),
                &[],
            ),
            (GitHub, json!({"issue": {"node_id": "I_7"}}), &[]),
            (GitHub, json!([]), &[]),
        ];
        for (system, payload, expected) in rows {
            assert_eq!(announced_issue(system, &payload), expected, "{payload}");
        }
    }

    #[test]
    fn keeps_only_events_that_can_change_a_poll() {
        use System::{Jira, Linear};
        let of_team = |kind: &str, team: &str| json!({"type": kind, "action": "update", "data": {"team": {"key": team}}});
        let of_repo = |event: &str, fields: Value| json!({"webhookEvent": event, "issue": {"key": "OPS-1", "fields": fields}});
        let shop = json!({"summary": "shop", "customfield_10050": {"value": "shop"}, "customfield_1": null});
        let rows = [
            (Linear, of_team("Issue", "ENG"), true),
            (Linear, of_team("Issue", "eng"), true),
            (Linear, of_team("Issue", "WEB"), false),
            (Linear, of_team("Issue", "APP"), true),
            (
                Linear,
                json!({"type": "IssueLabel", "data": {"name": "Agent-Implement"}}),
                true,
            ),
            (Linear, json!({"type": "IssueRelation", "data": {}}), true),
            (Linear, of_team("Comment", "ENG"), false),
            (Linear, of_team("Project", "ENG"), false),
            (Linear, json!({}), false),
            (Linear, json!({"type": ["Issue"]}), false),
            (Jira, of_repo("jira:issue_updated", shop.clone()), true),
            (
                Jira,
                of_repo(
                    "jira:issue_created",
                    json!({"customfield_10050": {"value": "other"}}),
                ),
                false,
            ),
            (
                Jira,
                of_repo("jira:issue_updated", json!({"summary": {"value": "shop"}})),
                false,
            ),
            (Jira, of_repo("comment_created", shop), false),
            (
                Jira,
                of_repo(
                    "jira:issue_updated",
                    json!({"customfield_10051": [{"value": "api"}, {"value": " shop"}]}),
                ),
                true,
            ),
            (
                Jira,
                of_repo("jira:issue_updated", json!({"customfield_10051": "shop"})),
                true,
            ),
            (
                Jira,
                json!({"webhookEvent": "issuelink_created", "issueLink": {"id": 1}}),
                true,
            ),
            (Jira, json!({"webhookEvent": 7}), false),
        ];
        for (system, payload, expected) in rows {
            assert_eq!(
                is_relevant_event(system, &payload, &mappings()),
                expected,
                "{payload}"
            );
        }
        let linear_mapping = &mappings()[..1];
        let event = json!({"webhookEvent": "issuelink_created"});
        assert!(
            !is_relevant_event(Jira, &event, linear_mapping),
            "no mapping uses Jira"
        );
    }
}
