//! Mappings that share the issues of one repository of GitHub.

use std::time::Duration;

use domain::job::{JobKind, JobState};
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{FakeIssue, FakeRepo, FakeService, InjectedFault};
use serde_json::{Value, json};
use vendors::http::percent_encode;

use super::{poll, put, team_of_job};
use crate::gap_fill::{INSTRUCTION, options, send_trigger, trigger_body};
use crate::planning::write_steps;
use crate::test_env::{Gate, TestEnv, TestEnvOptions, mapping_with};
use crate::test_ticket::github_mapping;

const MINUTE: Duration = Duration::from_secs(60);

/// Mapping of `acme/shop` with this key and match.
fn matching(key: &str, matching: Value) -> Mapping {
    let config = json!({"kind": "C", "match": matching});
    mapping_with(&json!({"teamKey": key, "ticketingProvider": "C", "ticketingConfig": config}))
}

fn web_and_api() -> [Mapping; 2] {
    [
        matching("web", json!({"label": "repo:web"})),
        matching("api", json!({"label": "repo:api"})),
    ]
}

/// Creates a flagged issue with these labels.
fn create(repo: &FakeRepo, number: u64, labels: &[&str]) -> FakeIssue {
    let mut issue = repo.issue(number).title("Add the feature");
    for label in labels {
        issue = issue.add_label(label);
    }
    issue.add_label("Agent-Implement")
}

async fn decision(env: &TestEnv, key: &str) -> Value {
    let path = format!("/api/why/{}", percent_encode(key));
    env.admin_get(&path).await["decision"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_choose_the_mapping_of_an_issue() {
    let lib = github_mapping("lib", "acme", "lib");
    let rest = matching("rest", json!({"default": true}));
    let env = TestEnv::with_manual_engine(web_and_api().into_iter().chain([lib, rest])).await;
    let many: Vec<String> = (0..40).map(|number| format!("label-{number}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push("repo:api");
    let rows = [
        (1, &["bug", "repo:web"][..], "web"),
        (2, &many, "api"),
        (3, &["ui", "repo:web2"], "rest"),
        // GitHub ignores the case of labels.
        (4, &["Repo:WEB"], "web"),
        (5, &[], "rest"),
    ];
    for (number, labels, _) in rows {
        create(&env.repo(), number, labels);
    }
    let both = create(&env.repo(), 6, &["repo:web", "repo:api"]);
    create(&env.vendors.github().repo("acme", "lib"), 1, &["repo:web"]);
    poll(&env).await;
    for (number, _, team) in rows {
        let key = format!("shop#{number}");
        assert_eq!(team_of_job(&env, &key).as_deref(), Some(team), "{key}");
        assert_eq!(decision(&env, &key).await["teamKey"], team, "{key}");
    }
    assert_eq!(team_of_job(&env, "lib#1").as_deref(), Some("lib"));
    let waiting = decision(&env, "shop#6").await;
    assert_eq!(waiting["reason"], "ambiguous");
    let sentence =
        "Two projects match: api (label repo:api) and web (label repo:web). Remove one label.";
    assert_eq!(waiting["message"], sentence);
    assert_eq!(team_of_job(&env, "shop#6"), None);
    // One label less, and the next poll starts it.
    both.remove_label("repo:web");
    poll(&env).await;
    assert_eq!(team_of_job(&env, "shop#6").as_deref(), Some("api"));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_no_mapping_takes_waits_and_its_ticket_says_what_decides() {
    let env = TestEnv::with_manual_engine(web_and_api()).await;
    let issue = create(&env.repo(), 1, &["ui"]);
    // Not taken, although its marker shows work in progress: it uses no slot.
    env.repo().issue(2).title("x").add_label("Agent-Working");
    poll(&env).await;
    let sentence = "No project takes this issue. Set one of the labels repo:api, repo:web.";
    let waiting = decision(&env, "shop#1").await;
    assert_eq!(
        (&waiting["reason"], &waiting["message"]),
        (&json!("no-mapping"), &json!(sentence))
    );
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(issues["inProgressCountsByTeam"], json!({}));
    env.advance_clock(Duration::from_secs(5 * 60 + 1));
    env.tick().await;
    let comments = issue.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(comments[0].contains(sentence), "{comments:?}");
    issue.clone().add_label("repo:api");
    env.tick().await;
    env.tick_until_drained().await;
    let team = team_of_job(&env, "shop#1");
    let decision = decision(&env, "shop#1").await;
    assert_eq!(team.as_deref(), Some("api"), "{decision}");
    assert!(!issue.comments().iter().any(|text| text.contains(sentence)));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_without_a_match_takes_the_other_issues_of_its_repository() {
    let [web, _] = web_and_api();
    let env = TestEnv::with_manual_engine([web, github_mapping("SHOP", "Acme", "Shop")]).await;
    create(&env.repo(), 1, &["repo:web"]);
    create(&env.repo(), 2, &["ui"]);
    poll(&env).await;
    assert_eq!(team_of_job(&env, "shop#1").as_deref(), Some("web"));
    assert_eq!(team_of_job(&env, "shop#2").as_deref(), Some("SHOP"));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_labels_start_no_run_of_another_mapping() {
    let [web, _] = web_and_api();
    let env = TestEnv::with_manual_engine([web, matching("rest", json!({"default": true}))]).await;
    create(&env.repo(), 1, &["repo:web"]);
    let github = env.vendors.faults(FakeService::GitHub);
    for _ in 0..20 {
        github.inject_on_match("Issue { labels", InjectedFault::ErrorStatus(502));
    }
    poll(&env).await;
    assert_eq!(team_of_job(&env, "shop#1"), None);
    github.clear();
    poll(&env).await;
    assert_eq!(team_of_job(&env, "shop#1").as_deref(), Some("web"));
    env.stop().await;
}

/// Polls once. Returns the number of GraphQL requests.
async fn queries_of_poll(env: &TestEnv) -> usize {
    // Issues that changed before the last poll have no new commands.
    env.advance_clock(Duration::from_secs(60));
    env.vendors.requests().clear();
    poll(env).await;
    let requests = env.vendors.requests().for_service(FakeService::GitHub);
    let queries = requests.iter().filter(|one| one.url.ends_with("/graphql"));
    queries.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_of_unchanged_issues_takes_as_many_requests_as_without_matches() {
    let paused = |mapping| Mapping {
        paused: true,
        ..mapping
    };
    let of = |number: usize| {
        matching(
            &format!("m{number}"),
            json!({"label": format!("repo:{number}")}),
        )
    };
    let mappings = (0..50).map(of).map(paused);
    let env = TestEnv::with_manual_engine(mappings).await;
    env.vendors.github().set_quota(1_000_000);
    let repo = env.repo();
    let count = repo.create_labelled_issues(90, "Agent-Implement");
    for number in 1..=count {
        repo.issue(number)
            .add_label(&format!("repo:{}", number % 50));
    }
    repo.age_issues(MINUTE);
    assert_eq!(
        queries_of_poll(&env).await,
        1 + 2,
        "fifty issues per request"
    );
    let waiting = decision(&env, "shop#57").await;
    assert_eq!(waiting["message"], "m7 is paused.");
    assert_eq!(queries_of_poll(&env).await, 1);
    repo.issue(57).remove_label("repo:7").add_label("repo:8");
    assert_eq!(queries_of_poll(&env).await, 1 + 1);
    assert_eq!(decision(&env, "shop#57").await["message"], "m8 is paused.");
    // Another label may be set within the same second.
    assert_eq!(queries_of_poll(&env).await, 1 + 1);
    repo.age_issues(MINUTE);
    assert_eq!(queries_of_poll(&env).await, 1 + 2);
    assert_eq!(queries_of_poll(&env).await, 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_in_the_mapping_that_started_it() {
    let env = TestEnv::with_options(TestEnvOptions {
        mappings: web_and_api().to_vec(),
        ..options()
    })
    .await;
    let gate = Gate::new(&env);
    let script = Script::new()
        .pass([[gate.wait_step()].as_slice(), &write_steps()].concat())
        .pass_if_prompt_contains(
            INSTRUCTION,
            [
                ScriptStep::write("b.txt", "b\n"),
                ScriptStep::message("I wrote b."),
            ],
        );
    env.set_agent_script("shop#1", script);
    let issue = create(&env.repo(), 1, &["repo:web"]);
    env.wait_until("the run is running", || {
        let jobs = env.jobs("shop#1");
        jobs.iter().any(|job| job.state == JobState::Running)
    })
    .await;
    issue.clone().remove_label("repo:web").add_label("repo:api");
    env.wait_for_polls().await;
    let during = decision(&env, "shop#1").await;
    assert_eq!(
        (&during["outcome"], &during["teamKey"]),
        (&json!("in-progress"), &json!("web"))
    );
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(issues["inProgressCountsByTeam"], json!({"web": 1}));
    gate.open();
    let job = env.wait_for_job_end("shop#1").await;
    assert_eq!((job.state, job.team.as_str()), (JobState::Completed, "web"));
    env.wait_for_empty_outbox().await;
    env.wait_for_polls().await;
    assert_eq!(env.jobs("shop#1").len(), 1, "no second run");
    assert!(issue.labels().contains(&"Ready for Review".to_owned()));
    // Work on the open pull request belongs to the mapping of its run.
    let number = env.repo().pulls()[0].number;
    let response = send_trigger(&env, trigger_body("shop#1", number)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let jobs = env.jobs("shop#1");
    let last = jobs.last().unwrap();
    assert_eq!((last.kind, last.team.as_str()), (JobKind::GapFill, "web"));
    env.wait_until("the gap-fill run has ended", || {
        env.jobs("shop#1").iter().all(|job| !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn matches_are_validated_and_stored_as_given() {
    let env = TestEnv::with_manual_engine([github_mapping("lib", "acme", "lib")]).await;
    let of_project =
        "ticketingConfig.match.project is not available for GitHub Issues: use label or default";
    let match_rule = "ticketingConfig.match must have exactly one of label, project and default, such as \
                      {\"label\": \"repo:web\"} or {\"default\": true}";
    let name_rule = "ticketingConfig.match must name a label or project: 1 to 255 bytes without control characters";
    for (matching, error) in [
        (json!({"project": "Web"}), of_project),
        (json!({}), match_rule),
        (json!("repo:web"), match_rule),
        (json!({"default": false}), match_rule),
        (json!({"label": "a\nb"}), name_rule),
    ] {
        let (status, body) = put(&env, "web", json!({"kind": "C", "match": matching})).await;
        assert_eq!((status, body), (400, json!({"error": error})), "{matching}");
    }
    env.repo().issue(1).title("x").add_label("repo:WEB");
    for (key, config) in [
        ("web", json!({"kind": "C", "match": {"label": "Repo:Web"}})),
        ("rest", json!({"kind": "C", "match": {"default": true}})),
    ] {
        let (status, body) = put(&env, key, config.clone()).await;
        assert!((200..300).contains(&status), "{body}");
        assert_eq!(body["ticketingConfig"], config);
        assert!(body["warnings"].is_null(), "{body}");
        let stored = env.admin_get("/api/mappings").await;
        assert_eq!(stored[key]["ticketingConfig"], config);
        // Saved again, it does not contradict itself.
        assert_eq!(put(&env, key, config).await.0, status.min(200));
    }
    let config = json!({"kind": "C", "match": {"label": "repo:docs"}});
    let (status, body) = put(&env, "docs", config.clone()).await;
    assert!((200..300).contains(&status), "{body}");
    let message =
        "GitHub shows no label \"repo:docs\" in acme/shop. No ticket matches until it exists.";
    let warnings = json!([{"field": "match", "message": message}]);
    assert_eq!(body["warnings"], warnings);
    let body = json!({
        "teamKey": "docs", "owner": "acme", "repo": "shop", "defaultBranch": "main",
        "ticketingConfig": config,
    });
    let checked = env.admin_post("/api/mappings/check", body).await;
    let named = checked["warnings"].as_array().unwrap();
    assert!(named.contains(&warnings[0]), "{checked}");
    for (config, other) in [
        (json!({"kind": "C"}), "rest"),
        (json!({"kind": "C", "match": {"default": true}}), "rest"),
        (json!({"kind": "C", "match": {"label": "repo:WEB"}}), "web"),
    ] {
        let error = format!(
            "ticketingConfig selects the same tickets as the mapping {other}; give one of them another match"
        );
        let answer = put(&env, "more", config.clone()).await;
        assert_eq!(answer, (400, json!({"error": error})), "{config}");
        let mut body = json!({
            "teamKey": "more", "owner": "ACME", "repo": "Shop", "defaultBranch": "main",
            "ticketingConfig": config,
        });
        let checked = env.admin_post("/api/mappings/check", body.clone()).await;
        let problem = format!("Tickets are those of the project {other}. Choose other tickets");
        assert_eq!(checked["problems"][0]["message"], problem, "{checked}");
        // The same in another repository, and a Linear project of that name, are fine.
        body["repo"] = json!("other");
        let checked = env.admin_post("/api/mappings/check", body).await;
        assert!(!checked.to_string().contains("are those of"), "{checked}");
    }
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projects_file_carries_matches() {
    let env = TestEnv::with_manual_engine(web_and_api()).await;
    let mut file = env.admin_get("/api/projects-file").await;
    let api = json!({"kind": "C", "match": {"label": "repo:api"}});
    assert_eq!(file["mappings"]["api"]["ticketingConfig"], api);
    let web = std::mem::replace(&mut file["mappings"]["web"]["ticketingConfig"], api);
    let refused = super::apply(&env, &file).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let problem = "selects the same tickets as api";
    assert!(refused.body.to_string().contains(problem), "{refused:?}");
    file["mappings"]["api"]["ticketingConfig"] = web;
    let applied = super::apply(&env, &file).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let stored = env.admin_get("/api/mappings").await;
    let label = &stored["web"]["ticketingConfig"]["match"]["label"];
    assert_eq!(label, "repo:api");
    env.stop().await;
}
