//! Tickets on Jira: the same road, with a select field for a marker and rich text for comments.

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

/// Tickets of project `OPS` for one value of the repo field.
pub fn mapping_for_repo(team: &str, value: &str) -> Mapping {
    mapping_with_query(team, "project = OPS", value)
}

/// The tickets that a query clause finds, for one value of the repo field.
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

async fn world() -> TestEnv {
    TestEnv::with_mappings([mapping_for_repo("OPS", "shop")]).await
}

pub fn create_ticket(world: &TestEnv, key: &str, title: &str) -> JiraTicket {
    let ticket = world.vendors.jira().issue(key).title(title);
    ticket.describe("Please.").repo("shop")
}

/// An agent that changes nothing.
fn idle() -> Script {
    Script::new().pass([ScriptStep::message("There is nothing to do.")])
}

/// What the status field showed, one after the other.
fn stages(ticket: &JiraTicket, field: &str) -> Vec<String> {
    let history = ticket.snapshot().unwrap().history.into_iter();
    let of_field = history.filter(|change: &FieldHistoryEntry| change.field == field);
    of_field.filter_map(|change| change.value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_ticket_becomes_a_pull_request() {
    let world = world().await;
    let ticket = create_ticket(&world, "OPS-1", "Add the feature").status("Ready");
    let job = world.wait_for_job_end("OPS-1").await;
    assert_eq!(job.state, JobState::Completed);
    assert_eq!(job.team.as_str(), "OPS");
    let pulls = world.repo().pulls();
    assert_eq!(pulls[0].title, "OPS-1: Add the feature");
    assert_eq!(
        stages(&ticket, STATUS),
        ["Ready", "Implementing", "PR Ready"]
    );
    let comments = ticket.snapshot().unwrap().comments;
    let url = world.repo().pull_url(pulls[0].number);
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
        format!("{}/browse/OPS-1", world.vendors.jira_url())
    );
    world.wait_for_polls().await;
    assert_eq!(
        world.jobs("OPS-1").len(),
        1,
        "an open pull request is final"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_blocked_done_or_for_nobody_waits() {
    let world = world().await;
    create_ticket(&world, "OPS-1", "First");
    let blocked = create_ticket(&world, "OPS-2", "Second").blocked_by("OPS-1");
    blocked.status("Ready");
    create_ticket(&world, "OPS-3", "Done already")
        .complete()
        .status("Ready");
    world
        .vendors
        .jira()
        .issue("OPS-4")
        .title("Elsewhere")
        .repo("web")
        .status("Ready");
    create_ticket(&world, "OTHER-1", "Another project").status("Ready");
    world.wait_for_polls().await;
    let why = world.admin_get("/api/why/OPS-2").await;
    assert_eq!(why["decision"]["message"], "Blocked by OPS-1, still open.");
    for key in ["OPS-2", "OPS-3", "OPS-4", "OTHER-1"] {
        assert!(world.jobs(key).is_empty(), "{key}");
    }
    world.vendors.jira().issue("OPS-1").complete();
    world.wait_for_job_end("OPS-2").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mappings_share_a_query_and_each_takes_its_own() {
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
    let world = TestEnv::with_mappings([
        broken,
        fields(mapping_with_query("ROBOT", clause, "Shop front")),
        mapping_with_query("SHOP", clause, "shop"),
        mapping_with_query("WEB", clause, "web"),
    ])
    .await;
    let jira = world.vendors.jira();
    // The robots' field knows no planning; a query that names it would be refused.
    jira.ensure_select_field(
        "Robot Stage",
        &["Ready", "Implementing", "PR Ready", "Implementation Failed"],
    );
    create_ticket(&world, "OPS-1", "One").status("Ready");
    jira.issue("WEB-1").title("Two").repo("web").status("Ready");
    let robot = jira
        .issue("OPS-2")
        .title("Three")
        .field("Component", "Shop front");
    let robot = robot.field("Robot Stage", "Ready");
    for (key, team) in [("OPS-1", "SHOP"), ("WEB-1", "WEB"), ("OPS-2", "ROBOT")] {
        assert_eq!(
            world.wait_for_job_end(key).await.team.as_str(),
            team,
            "{key}"
        );
    }
    assert_eq!(
        stages(&robot, "Robot Stage"),
        ["Ready", "Implementing", "PR Ready"]
    );
    assert!(stages(&robot, STATUS).is_empty());

    // The broken query keeps no other from being answered, and its mapping is shown as stale.
    world.vendors.requests().clear();
    world.wait_for_polls().await;
    let shown = world.admin_get("/api/issues").await;
    assert_eq!(shown["stale"], json!(["BROKEN"]), "{shown}");
    let requests = world.vendors.requests().for_service(FakeService::Jira);
    let shared = requests.iter().filter(|request| {
        let body = request.body["jql"].as_str().unwrap_or_default();
        body.contains("WEB") && body.contains("Plan Approved") && request.status == Some(200)
    });
    let polls = world.app.heartbeats.polls();
    assert!(
        shared.count() <= 3,
        "one search for both mappings a poll, after {polls} polls"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_posted_as_rich_text_and_read_back_as_people_left_it() {
    let planning = Mapping {
        ticketing: mapping_for_repo("OPS", "shop").ticketing,
        team_key: "OPS".into(),
        ..planning_mapping()
    };
    let world = TestEnv::with_mapping(planning).await;
    let plan = "## Steps\n\n1. Write `feature.txt`\n2. Test it";
    let planned = [
        ScriptStep::write("ai-output/comments/01-steps.md", plan),
        ScriptStep::message("Planned."),
    ];
    let written = [
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message("I wrote the feature."),
    ];
    // Only a prompt that holds the plan, and the issue beside, makes the file.
    let script = Script::new()
        .pass_if_prompt_contains("You are planning", planned)
        .pass_if_prompt_contains("1. Write `feature.txt`", written);
    world.set_agent_script("OPS-1", script);
    create_ticket(&world, "OPS-2", "The large thing");
    create_ticket(&world, "OPS-3", "The other half").child_of("OPS-2");
    let ticket = create_ticket(&world, "OPS-1", "Add the feature").child_of("OPS-2");
    ticket.clone().status("Ready");
    world
        .wait_until("two runs have ended", || {
            let jobs = world.jobs("OPS-1");
            jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
        })
        .await;
    world.wait_for_empty_outbox().await;
    for job in world.jobs("OPS-1") {
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
    for run in world.repo().runs() {
        assert_eq!(run.inputs["siblings"], "OPS-3: The other half (To Do)");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_whose_answer_is_lost_is_not_doubled() {
    let world = world().await;
    let faults = world.vendors.faults(FakeService::Jira);
    faults.inject_on_match("/comment", InjectedFault::DropResponse);
    let ticket = create_ticket(&world, "OPS-1", "Add the feature").status("Ready");
    world.wait_for_job_end("OPS-1").await;
    assert_eq!(faults.injected().len(), 1);
    assert_eq!(ticket.comments().len(), 1, "{:?}", ticket.comments());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_lags_starts_nothing_twice() {
    let world = world().await;
    world.vendors.jira().enable_index_lag();
    world.set_agent_script("OPS-1", idle());
    let ticket = create_ticket(&world, "OPS-1", "Do nothing").status("Ready");
    world.wait_for_job_end("OPS-1").await;
    world.wait_for_polls().await;
    world.wait_for_polls().await;
    assert_eq!(
        world.jobs("OPS-1").len(),
        1,
        "{:?}",
        stages(&ticket, STATUS)
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_survive_a_bad_day_of_jira() {
    let world = world().await;
    world.set_fault_rates(&FaultRates {
        drop_request_rate: 0.2,
        drop_response_rate: 0.2,
        error_rate: 0.2,
        ..FaultRates::default()
    });
    let tickets: Vec<JiraTicket> = (1..=4)
        .map(|number| create_ticket(&world, &format!("OPS-{number}"), "Feature").status("Ready"))
        .collect();
    for (at, ticket) in tickets.iter().enumerate() {
        let job = world.wait_for_job_end(&format!("OPS-{}", at + 1)).await;
        assert_eq!(job.state, JobState::Completed);
        assert_eq!(ticket.comments().len(), 1, "{:?}", ticket.comments());
        assert_eq!(
            ticket.snapshot().unwrap().status.as_deref(),
            Some("PR Ready")
        );
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_form_of_a_mapping_gets_its_answers_from_jira() {
    let world = world().await;
    let jira = world.vendors.jira();
    create_ticket(&world, "OPS-1", "Seen");
    let validate = async |jql: &str| {
        let path = "/api/ticketing-b/validate-query";
        world
            .admin_request(Method::POST, path, Some(json!({"jql": jql})))
            .await
    };
    let good = (200, json!({"ok": true}));
    assert_eq!(
        validate("project = OPS AND (labels = x OR status = Done)").await,
        good
    );
    for (query, problem) in [
        ("universe = 42", "Field 'universe' does not exist"),
        ("project = OPS ORDER BY created", "leave out ORDER BY"),
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

    let (_, all) = world
        .admin_request(Method::GET, "/api/ticketing-b/fields", None)
        .await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    let path = "/api/ticketing-b/fields?name=agent-implement%20repo";
    let (_, found) = world.admin_request(Method::GET, path, None).await;
    assert_eq!(found[0]["name"], "Agent-Implement Repo");
    let id = found[0]["id"].as_str().unwrap();
    assert_eq!(
        found,
        json!([{"id": id, "name": "Agent-Implement Repo", "custom": true}])
    );

    // Not an administrator of Jira, by an issue; without one, by the form; then as one.
    let path = format!("/api/ticketing-b/field-options?fieldId={id}");
    let options = async || world.admin_request(Method::GET, &path, None).await;
    let by_issue = options().await;
    assert_eq!((by_issue.0, &by_issue.1[0]["value"]), (200, &json!("shop")));
    jira.issue("OPS-1").delete();
    assert_eq!(options().await, by_issue);
    jira.grant_admin();
    assert_eq!(options().await, by_issue);
    let empty = jira.ensure_select_field("Empty", &[]);
    let path = format!("/api/ticketing-b/field-options?fieldId={empty}");
    assert_eq!(
        world.admin_request(Method::GET, &path, None).await,
        (200, json!([]))
    );

    world.vendors.faults(FakeService::Jira).set_outage(true);
    let (status, answer) = validate("project = OPS").await;
    assert_eq!(status, 500);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("jira answered 503"),
        "{answer}"
    );
    world.vendors.faults(FakeService::Jira).set_outage(false);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_is_checked_with_jira_before_it_is_kept() {
    let world = world().await;
    let save = async |jql: &str, field: Option<&str>| {
        let config =
            json!({"kind": "B", "jql": jql, "repoFieldValue": "x", "statusFieldOverride": field});
        let body = json!({
            "teamKey": "NEW", "owner": "acme", "repo": "shop", "defaultBranch": "main",
            "ticketingProvider": "B", "ticketingConfig": config,
        });
        world
            .admin_request(Method::POST, "/api/mappings", Some(body))
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
    // Our credential is refused: that says nothing about the mapping.
    let faults = world.vendors.faults(FakeService::Jira);
    for refusal in [401, 403] {
        faults.inject_on_match("/jql/parse", InjectedFault::ErrorStatus(refusal));
        let (status, answer) = save("project = OPS", None).await;
        assert_eq!(status, 200, "{refusal}: {answer}");
    }
    assert_eq!(faults.injected().len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn without_jira_the_form_is_told_so() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let ask = async |method: &str, path: &str, body: Option<&str>| -> ApiResponse {
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
        let answer = ask(method, path, body).await;
        assert_eq!(answer.error(), expected, "{method} {path}");
    }
    let stranger = server
        .send("GET", "/api/ticketing-b/fields", "", None)
        .await;
    assert_eq!(stranger.error(), (401, "Unauthorized"));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_of_a_ticket_that_was_closed_or_deleted_is_ended() {
    let hang = Script::new().pass([ScriptStep::Hang]);
    for (key, end) in [
        (
            "OPS-1",
            (|ticket| drop(ticket.complete())) as fn(JiraTicket),
        ),
        ("OPS-2", |ticket| drop(ticket.delete())),
    ] {
        let world = world().await;
        world.set_agent_script(key, hang.clone());
        let ticket = create_ticket(&world, key, "Add the feature").status("Ready");
        world
            .wait_until("it runs", || {
                world
                    .jobs(key)
                    .first()
                    .is_some_and(|job| job.state == JobState::Running)
            })
            .await;
        let id = world.jobs(key)[0].id.clone();
        world.wait_for_polls().await;
        end(ticket);
        let state = || {
            let job = world.app.store.read(|tx| jobs::get(tx, &id)).unwrap();
            job.unwrap().state
        };
        world
            .wait_until("it has ended", || state().is_terminal())
            .await;
        assert!(
            matches!(state(), JobState::Failed { code: Some(FailureCode::Cancelled), reason }
                if reason == "the issue was closed")
        );
        world.finish().await;
    }
}
