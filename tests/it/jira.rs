//! Jira tickets: select field as the marker, rich text in comments, queries, and the mapping form.

use domain::job::JobState;
use domain::mapping::{Mapping, TicketingConfig};
use domain::report::FailureCode;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeService, FaultRates, FieldHistoryEntry, InjectedFault, JiraTicket};
use reqwest::Method;
use serde_json::json;
use store::jobs;

use crate::api_server::{ApiResponse, ApiServer};
use crate::test_env::{TestEnv, mapping, planning_mapping};

const STATUS: &str = "Agent-Implement Status";

/// Mapping of project `OPS` for one value of the repo field.
pub fn mapping_for_repo(team: &str, value: &str) -> Mapping {
    mapping_with_query(team, "project = OPS", value)
}

/// Mapping of a query clause for one value of the repo field.
pub fn mapping_with_query(team: &str, jql: &str, value: &str) -> Mapping {
    Mapping {
        team_key: team.into(),
        ticketing: TicketingConfig::Jira {
            jql: jql.to_owned(),
            repo_field_value: value.to_owned(),
            status_field_override: None,
            repo_field_override: None,
        },
        ..mapping()
    }
}

async fn start_env() -> TestEnv {
    TestEnv::with_mappings([mapping_for_repo("OPS", "shop")]).await
}

/// Creates a ticket for repository `shop`, without the trigger.
pub fn create_ticket(env: &TestEnv, key: &str, title: &str) -> JiraTicket {
    let ticket = env.vendors.jira().issue(key).title(title);
    ticket.describe("Please.").repo("shop")
}

/// Script that changes nothing.
fn idle() -> Script {
    Script::new().pass([ScriptStep::message("There is nothing to do.")])
}

/// Values of a select field, oldest first.
fn stages(ticket: &JiraTicket, field: &str) -> Vec<String> {
    let history = ticket.snapshot().unwrap().history.into_iter();
    let of_field = history.filter(|change: &FieldHistoryEntry| change.field == field);
    of_field.filter_map(|change| change.value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_ticket_becomes_a_pull_request() {
    let env = start_env().await;
    let ticket = create_ticket(&env, "OPS-1", "Add the feature").status("Ready");
    let job = env.wait_for_job_end("OPS-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.team.as_str(), "OPS");
    let pulls = env.repo().pulls();
    assert_eq!(pulls[0].title, "OPS-1: Add the feature");
    assert_eq!(
        stages(&ticket, STATUS),
        ["Ready", "Implementing", "PR Ready"]
    );
    let comments = ticket.snapshot().unwrap().comments;
    let url = env.repo().pull_url(pulls[0].number);
    let link = json!([{"type": "link", "attrs": {"href": url}}]);
    assert_eq!(
        comments[0].body["content"],
        json!([{"type": "paragraph", "content": [
            {"type": "text", "text": "Pull request opened: "},
            {"type": "text", "text": format!("#{}", pulls[0].number), "marks": link},
        ]}])
    );
    assert_eq!(comments.len(), 1);
    assert_eq!(
        job.issue.url,
        format!("{}/browse/OPS-1", env.vendors.jira_url())
    );
    env.wait_for_polls().await;
    assert_eq!(env.jobs("OPS-1").len(), 1, "an open pull request is final");
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_completed_and_unmapped_tickets_are_not_started() {
    let env = start_env().await;
    create_ticket(&env, "OPS-1", "First");
    let blocked = create_ticket(&env, "OPS-2", "Second").blocked_by("OPS-1");
    blocked.status("Ready");
    create_ticket(&env, "OPS-3", "Done already")
        .complete()
        .status("Ready");
    env.vendors
        .jira()
        .issue("OPS-4")
        .title("Elsewhere")
        .repo("web")
        .status("Ready");
    create_ticket(&env, "OTHER-1", "Another project").status("Ready");
    env.wait_for_polls().await;
    let why = env.admin_get("/api/why/OPS-2").await;
    assert_eq!(why["decision"]["message"], "Blocked by OPS-1, still open.");
    for key in ["OPS-2", "OPS-3", "OPS-4", "OTHER-1"] {
        assert!(env.jobs(key).is_empty(), "{key}");
    }
    env.vendors.jira().issue("OPS-1").complete();
    env.wait_for_job_end("OPS-2").await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mappings_with_a_shared_query_each_dispatch_their_own_tickets() {
    let fields = |mapping: Mapping| {
        let mut mapping = mapping;
        if let TicketingConfig::Jira {
            status_field_override,
            repo_field_override,
            ..
        } = &mut mapping.ticketing
        {
            *status_field_override = Some("Robot Stage".to_owned());
            *repo_field_override = Some("Component".to_owned());
        }
        mapping
    };
    let clause = "project = OPS OR project = WEB";
    let broken = mapping_with_query("BROKEN", "project = GONE", "shop");
    let env = TestEnv::with_mappings([
        broken,
        fields(mapping_with_query("ROBOT", clause, "Shop front")),
        mapping_with_query("SHOP", clause, "shop"),
        mapping_with_query("WEB", clause, "web"),
    ])
    .await;
    let jira = env.vendors.jira();
    // This field has no planning options; Jira would reject a query that contains them.
    jira.ensure_select_field(
        "Robot Stage",
        &["Ready", "Implementing", "PR Ready", "Implementation Failed"],
    );
    create_ticket(&env, "OPS-1", "One").status("Ready");
    jira.issue("WEB-1").title("Two").repo("web").status("Ready");
    let robot = jira
        .issue("OPS-2")
        .title("Three")
        .field("Component", "Shop front");
    let robot = robot.field("Robot Stage", "Ready");
    for (key, team) in [("OPS-1", "SHOP"), ("WEB-1", "WEB"), ("OPS-2", "ROBOT")] {
        assert_eq!(env.wait_for_job_end(key).await.team.as_str(), team, "{key}");
    }
    assert_eq!(
        stages(&robot, "Robot Stage"),
        ["Ready", "Implementing", "PR Ready"]
    );
    assert!(stages(&robot, STATUS).is_empty());

    // A broken query does not affect the other mappings; its own mapping is stale.
    env.vendors.requests().clear();
    env.wait_for_polls().await;
    let shown = env.admin_get("/api/issues").await;
    assert_eq!(shown["stale"], json!(["BROKEN"]), "{shown}");
    let requests = env.vendors.requests().for_service(FakeService::Jira);
    let shared = requests.iter().filter(|request| {
        let body = request.body["jql"].as_str().unwrap_or_default();
        body.contains("WEB") && body.contains("Plan Approved") && request.status == Some(200)
    });
    let polls = env.app.live.heartbeats.polls();
    assert!(
        shared.count() <= 3,
        "one search per poll for both mappings, after {polls} polls"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_posted_as_rich_text_and_read_back() {
    let planning = Mapping {
        ticketing: mapping_for_repo("OPS", "shop").ticketing,
        team_key: "OPS".into(),
        ..planning_mapping()
    };
    let env = TestEnv::with_mapping(planning).await;
    let plan = "## Steps\n\n1. Write `feature.txt`\n2. Test it";
    let planned = [
        ScriptStep::write("ai-output/comments/01-steps.md", plan),
        ScriptStep::message("Planned."),
    ];
    let written = [
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message("I wrote the feature."),
    ];
    // Only a prompt that contains the plan matches the second pass.
    let script = Script::new()
        .pass_if_prompt_contains("You are planning", planned)
        .pass_if_prompt_contains("1. Write `feature.txt`", written);
    env.set_agent_script("OPS-1", script);
    create_ticket(&env, "OPS-2", "The large thing");
    create_ticket(&env, "OPS-3", "The other half").child_of("OPS-2");
    let ticket = create_ticket(&env, "OPS-1", "Add the feature").child_of("OPS-2");
    ticket.clone().status("Ready");
    env.wait_until("two runs have ended", || {
        let jobs = env.jobs("OPS-1");
        jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    for job in env.jobs("OPS-1") {
        assert_eq!(job.state, JobState::Completed);
    }
    assert_eq!(
        stages(&ticket, STATUS),
        [
            "Ready",
            "Planning",
            "Plan Approved",
            "Implementing",
            "PR Ready"
        ]
    );
    let comments = ticket.snapshot().unwrap().comments;
    assert_eq!(comments[0].body["content"][0]["type"], "heading");
    assert_eq!(comments[0].body["content"][1]["type"], "orderedList");
    assert_eq!(comments.len(), 2, "{:?}", ticket.comments());
    for run in env.repo().runs() {
        assert_eq!(run.inputs["siblings"], "OPS-3: The other half (To Do)");
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_with_a_lost_response_is_posted_once() {
    let env = start_env().await;
    let faults = env.vendors.faults(FakeService::Jira);
    faults.inject_on_match("/comment", InjectedFault::DropResponse);
    let ticket = create_ticket(&env, "OPS-1", "Add the feature").status("Ready");
    env.wait_for_job_end("OPS-1").await;
    assert_eq!(faults.injected().len(), 1);
    assert_eq!(ticket.comments().len(), 1, "{:?}", ticket.comments());
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_search_index_causes_no_second_dispatch() {
    let env = start_env().await;
    env.vendors.jira().enable_index_lag();
    env.set_agent_script("OPS-1", idle());
    let ticket = create_ticket(&env, "OPS-1", "Do nothing").status("Ready");
    env.wait_for_job_end("OPS-1").await;
    env.wait_for_polls().await;
    env.wait_for_polls().await;
    assert_eq!(env.jobs("OPS-1").len(), 1, "{:?}", stages(&ticket, STATUS));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_complete_despite_random_faults_of_jira() {
    let env = start_env().await;
    env.set_fault_rates(&FaultRates {
        drop_request_rate: 0.2,
        drop_response_rate: 0.2,
        error_rate: 0.2,
        ..FaultRates::default()
    });
    let tickets: Vec<JiraTicket> = (1..=4)
        .map(|number| create_ticket(&env, &format!("OPS-{number}"), "Feature").status("Ready"))
        .collect();
    for (at, ticket) in tickets.iter().enumerate() {
        let job = env.wait_for_job_end(&format!("OPS-{}", at + 1)).await;
        assert_eq!(job.state, JobState::Completed);
        assert_eq!(ticket.comments().len(), 1, "{:?}", ticket.comments());
        assert_eq!(
            ticket.snapshot().unwrap().status.as_deref(),
            Some("PR Ready")
        );
    }
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mapping_form_reads_queries_and_fields_from_jira() {
    let env = start_env().await;
    let jira = env.vendors.jira();
    create_ticket(&env, "OPS-1", "Seen");
    let validate = async |jql: &str| {
        let path = "/api/ticketing-b/validate-query";
        env.admin_request(Method::POST, path, Some(json!({"jql": jql})))
            .await
    };
    let good = (200, json!({"ok": true}));
    assert_eq!(
        validate("project = OPS AND (labels = x OR status = Done)").await,
        good
    );
    for (query, problem) in [
        ("universe = 42", "Field 'universe' does not exist"),
        ("project = OPS ORDER BY created", "Remove ORDER BY"),
        ("project = OPS) OR (project = OPS", "Expecting"),
        ("invalid query", "Expecting operator but got 'query'"),
    ] {
        let (status, answer) = validate(query).await;
        assert_eq!(status, 400, "{query}");
        assert!(
            answer["error"].as_str().unwrap().contains(problem),
            "{query}: {answer}"
        );
    }

    let (_, all) = env
        .admin_request(Method::GET, "/api/ticketing-b/fields", None)
        .await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    let path = "/api/ticketing-b/fields?name=agent-implement%20repo";
    let (_, found) = env.admin_request(Method::GET, path, None).await;
    assert_eq!(found[0]["name"], "Agent-Implement Repo");
    let id = found[0]["id"].as_str().unwrap();
    assert_eq!(
        found,
        json!([{"id": id, "name": "Agent-Implement Repo", "custom": true}])
    );

    // Without administrator rights, options are read from an issue, or without issues from the form.
    // With administrator rights, they are read from the field.
    let path = format!("/api/ticketing-b/field-options?fieldId={id}");
    let options = async || env.admin_request(Method::GET, &path, None).await;
    let by_issue = options().await;
    assert_eq!((by_issue.0, &by_issue.1[0]["value"]), (200, &json!("shop")));
    jira.issue("OPS-1").delete();
    assert_eq!(options().await, by_issue);
    jira.grant_admin();
    assert_eq!(options().await, by_issue);
    let empty = jira.ensure_select_field("Empty", &[]);
    let path = format!("/api/ticketing-b/field-options?fieldId={empty}");
    assert_eq!(
        env.admin_request(Method::GET, &path, None).await,
        (200, json!([]))
    );

    env.vendors.faults(FakeService::Jira).set_outage(true);
    let (status, answer) = validate("project = OPS").await;
    assert_eq!(status, 500);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("Jira answered 503"),
        "{answer}"
    );
    env.vendors.faults(FakeService::Jira).set_outage(false);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_is_validated_with_jira_before_it_is_stored() {
    let env = start_env().await;
    let save = async |jql: &str, field: Option<&str>| {
        let config =
            json!({"kind": "B", "jql": jql, "repoFieldValue": "x", "statusFieldOverride": field});
        let body = json!({
            "teamKey": "NEW", "owner": "acme", "repo": "shop", "defaultBranch": "main",
            "ticketingProvider": "B", "ticketingConfig": config,
        });
        env.admin_request(Method::POST, "/api/mappings", Some(body))
            .await
    };
    let (status, answer) = save("universe = 42", None).await;
    assert_eq!(status, 400, "{answer}");
    assert!(
        answer["error"].as_str().unwrap().contains("universe"),
        "{answer}"
    );
    let (status, answer) = save("project = OPS", Some("No such field")).await;
    assert_eq!(status, 400, "{answer}");
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("'No such field'"),
        "{answer}"
    );
    let (status, answer) = save("project = OPS", None).await;
    assert_eq!(status, 200, "{answer}");
    // A rejected credential does not reject the mapping.
    let faults = env.vendors.faults(FakeService::Jira);
    for refusal in [401, 403] {
        faults.inject_on_match("/jql/parse", InjectedFault::ErrorStatus(refusal));
        let (status, answer) = save("project = OPS", None).await;
        assert_eq!(status, 200, "{refusal}: {answer}");
    }
    assert_eq!(faults.injected().len(), 2);
    env.finish().await;
}

#[tokio::test]
async fn the_mapping_form_endpoints_return_an_error_without_jira() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let request = async |method: &str, path: &str, body: Option<&str>| -> ApiResponse {
        let path = format!("/api/ticketing-b/{path}");
        server
            .send(method, &path, &token, body.map(str::to_owned))
            .await
    };
    let off = (501, "Ticketing-B not configured");
    let rows = [
        (
            "POST",
            "validate-query",
            Some("{"),
            (400, "Invalid JSON body"),
        ),
        (
            "POST",
            "validate-query",
            Some("{}"),
            (400, "jql field required"),
        ),
        (
            "POST",
            "validate-query",
            Some(r#"{"jql": " "}"#),
            (400, "jql field required"),
        ),
        (
            "POST",
            "validate-query",
            Some(r#"{"jql": "project = A"}"#),
            off,
        ),
        ("GET", "fields", None, off),
        ("GET", "fields?name=a&name=b", None, off),
        (
            "GET",
            "field-options",
            None,
            (400, "fieldId query param required"),
        ),
        (
            "GET",
            "field-options?fieldId=",
            None,
            (400, "fieldId query param required"),
        ),
        ("GET", "field-options?fieldId=x", None, off),
        ("GET", "validate-query", None, (405, "Method not allowed")),
    ];
    for (method, path, body, expected) in rows {
        let answer = request(method, path, body).await;
        assert_eq!(answer.error(), expected, "{method} {path}");
    }
    let unauthenticated = server
        .send("GET", "/api/ticketing-b/fields", "", None)
        .await;
    assert_eq!(unauthenticated.error(), (401, "Unauthorized"));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_closed_or_deleted_ticket_is_cancelled() {
    let hang = Script::new().pass([ScriptStep::Hang]);
    for (key, end) in [
        (
            "OPS-1",
            (|ticket| drop(ticket.complete())) as fn(JiraTicket),
        ),
        ("OPS-2", |ticket| drop(ticket.delete())),
    ] {
        let env = start_env().await;
        env.set_agent_script(key, hang.clone());
        let ticket = create_ticket(&env, key, "Add the feature").status("Ready");
        env.wait_until("it runs", || {
            env.jobs(key)
                .first()
                .is_some_and(|job| job.state == JobState::Running)
        })
        .await;
        let id = env.jobs(key)[0].id.clone();
        env.wait_for_polls().await;
        end(ticket);
        let state = || {
            let job = env.store.read(|tx| jobs::get(tx, &id)).unwrap();
            job.unwrap().state
        };
        env.wait_until("it has ended", || state().is_terminal())
            .await;
        assert!(
            matches!(state(), JobState::Failed { code: Some(FailureCode::Cancelled), reason }
                if reason == "the issue was closed")
        );
        env.finish().await;
    }
}
