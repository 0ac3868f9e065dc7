//! Mappings that share one Linear team or one repository of issues: labels and projects of an issue choose its mapping.

mod github;

use std::time::Duration;

use domain::job::{JobKind, JobState};
use domain::mapping::Mapping;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};

use crate::api_server::{ApiResponse, send_checked};
use crate::gap_fill::{INSTRUCTION, options, send_trigger, trigger_body};
use crate::planning::write_steps;
use crate::test_env::{Gate, TestEnv, TestEnvOptions, mapping_with};

/// Mapping of team `ENG` with this key and match.
fn matching(key: &str, matching: Value) -> Mapping {
    let config = json!({"kind": "A", "teamKey": "ENG", "match": matching});
    mapping_with(&json!({"teamKey": key, "ticketingConfig": config}))
}

fn web_and_api() -> [Mapping; 2] {
    [
        matching("web", json!({"label": "repo:web"})),
        matching("api", json!({"label": "repo:api"})),
    ]
}

fn create(env: &TestEnv, key: &str, labels: &[&str], project: Option<&str>) {
    let linear = env.vendors.linear();
    let mut issue = linear.issue(key).title("Add the feature");
    for label in labels {
        issue = issue.add_label(label);
    }
    if let Some(project) = project {
        issue = issue.project(project);
    }
    issue.add_label("Agent-Implement");
}

async fn poll(env: &TestEnv) {
    engine::poll::run_once(&env.app).await.unwrap();
}

async fn decision(env: &TestEnv, key: &str) -> Value {
    env.admin_get(&format!("/api/why/{key}")).await["decision"].clone()
}

fn team_of_job(env: &TestEnv, key: &str) -> Option<String> {
    let jobs = env.jobs(key);
    assert!(jobs.len() <= 1, "{key}: {jobs:#?}");
    jobs.first().map(|job| job.team.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_projects_choose_the_mapping_of_an_issue() {
    let mappings = web_and_api().into_iter().chain([
        matching("docs", json!({"project": "Handbook"})),
        matching("rest", json!({"default": true})),
    ]);
    let env = TestEnv::with_manual_engine(mappings).await;
    let linear = env.vendors.linear();
    // Another team has a label of the same name.
    linear.ensure_label(Some("OPS"), "repo:web");
    let many: Vec<String> = (0..12).map(|number| format!("label-{number}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push("repo:api");
    let rows = [
        ("ENG-1", &["bug", "repo:web"][..], None, "web"),
        ("ENG-2", &many, Some("Roadmap"), "api"),
        ("ENG-3", &["ui"], Some("Handbook"), "docs"),
        ("ENG-4", &["ui", "Repo:Web"], Some("Roadmap"), "rest"),
        ("ENG-5", &[], None, "rest"),
    ];
    for (key, labels, project, _) in rows {
        create(&env, key, labels, project);
    }
    create(&env, "ENG-6", &["repo:web", "repo:api"], None);
    create(&env, "OPS-1", &["repo:web"], None);
    poll(&env).await;
    for (key, _, _, team) in rows {
        assert_eq!(team_of_job(&env, key).as_deref(), Some(team), "{key}");
        assert_eq!(decision(&env, key).await["teamKey"], team, "{key}");
    }
    for (key, reason, message) in [
        (
            "ENG-6",
            "ambiguous",
            "Two projects match: api (label repo:api) and web (label repo:web). Remove one label.",
        ),
        (
            "OPS-1",
            "no-mapping",
            "No mapping for team OPS. Add one in Projects.",
        ),
    ] {
        let decision = decision(&env, key).await;
        assert_eq!(
            (&decision["reason"], &decision["message"]),
            (&json!(reason), &json!(message))
        );
        assert_eq!(team_of_job(&env, key), None);
    }
    let blockers = env.admin_get("/api/blockers?all=true").await;
    assert_eq!(
        blockers["totals"]["byReason"],
        json!({"ambiguous": 1, "no-mapping": 1})
    );
    // One label less, and the next poll starts it.
    linear.issue("ENG-6").remove_label("repo:web");
    poll(&env).await;
    assert_eq!(team_of_job(&env, "ENG-6").as_deref(), Some("api"));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_no_mapping_takes_waits_and_its_ticket_says_what_decides() {
    let mut env_mappings = web_and_api().to_vec();
    // The key of a mapping may be that of the team without taking all of its issues.
    env_mappings.push(matching("ENG", json!({"project": "Core"})));
    let env = TestEnv::with_manual_engine(env_mappings).await;
    create(&env, "ENG-1", &["ui"], None);
    create(&env, "ENG-2", &["repo:web"], Some("Core"));
    // Not taken, although its marker shows work in progress: it uses no slot of the mapping ENG.
    let linear = env.vendors.linear();
    linear.issue("ENG-3").title("x").add_label("Agent-Working");
    poll(&env).await;
    let sentence = "No project takes this issue. Set one of the labels repo:api, repo:web, or move it to the project \
                    Core.";
    assert_eq!(decision(&env, "ENG-1").await["message"], sentence);
    assert_eq!(decision(&env, "ENG-2").await["reason"], "ambiguous");
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(issues["inProgressCountsByTeam"], json!({}));
    env.advance_clock(Duration::from_secs(5 * 60 + 1));
    env.tick().await;
    let comments = env.comments("ENG-1");
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(comments[0].contains(sentence), "{comments:?}");
    assert!(env.comments("ENG-2")[0].contains("Two projects match"));
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_without_a_match_takes_the_other_issues_of_its_team() {
    let [web, _] = web_and_api();
    let env = TestEnv::with_manual_engine([web, mapping_with(&json!({"teamKey": "ENG"}))]).await;
    create(&env, "ENG-1", &["repo:web"], None);
    create(&env, "ENG-2", &["ui"], None);
    poll(&env).await;
    assert_eq!(team_of_job(&env, "ENG-1").as_deref(), Some("web"));
    assert_eq!(team_of_job(&env, "ENG-2").as_deref(), Some("ENG"));
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
    env.set_agent_script("ENG-1", script);
    create(&env, "ENG-1", &["repo:web"], None);
    env.wait_until("the run is running", || {
        env.jobs("ENG-1")
            .iter()
            .any(|job| job.state == JobState::Running)
    })
    .await;
    let linear = env.vendors.linear();
    linear
        .issue("ENG-1")
        .remove_label("repo:web")
        .add_label("repo:api");
    env.wait_for_polls().await;
    let during = decision(&env, "ENG-1").await;
    assert_eq!(
        (&during["outcome"], &during["teamKey"]),
        (&json!("in-progress"), &json!("web"))
    );
    let issues = env.admin_get("/api/issues").await;
    assert_eq!(issues["inProgressCountsByTeam"], json!({"web": 1}));
    gate.open();
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!((job.state, job.team.as_str()), (JobState::Completed, "web"));
    env.wait_for_empty_outbox().await;
    env.wait_for_polls().await;
    assert_eq!(env.jobs("ENG-1").len(), 1, "no second run");
    assert!(
        linear
            .issue("ENG-1")
            .labels()
            .contains(&"Ready for Review".to_owned())
    );
    // Work on the open pull request belongs to the mapping of its run.
    let number = env.repo().pulls()[0].number;
    let response = send_trigger(&env, trigger_body("ENG-1", number)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let jobs = env.jobs("ENG-1");
    let last = jobs.last().unwrap();
    assert_eq!((last.kind, last.team.as_str()), (JobKind::GapFill, "web"));
    env.wait_until("the gap-fill run has ended", || {
        env.jobs("ENG-1").iter().all(|job| !job.is_active())
    })
    .await;
    env.wait_for_empty_outbox().await;
    env.finish().await;
}

async fn put(env: &TestEnv, key: &str, config: Value) -> (u16, Value) {
    let body = json!({
        "teamKey": key, "owner": "acme", "repo": "shop", "defaultBranch": "main", "ticketingConfig": config,
    });
    let token = env.sign_in().await;
    let request = reqwest::Client::new().post(format!("{}/api/mappings", env.address));
    let response = send_checked(request.bearer_auth(token).json(&body)).await;
    (response.status, response.body)
}

#[tokio::test(flavor = "multi_thread")]
async fn matches_are_validated_and_stored_as_given() {
    let env = TestEnv::with_manual_engine([]).await;
    env.vendors.linear().ensure_label(None, "repo:web");
    let match_rule = "ticketingConfig.match must have exactly one of label, project and default, such as \
                      {\"label\": \"repo:web\"} or {\"default\": true}";
    let name_rule = "ticketingConfig.match must name a label or project: 1 to 255 bytes without control characters";
    let team_rule = "ticketingConfig.teamKey must be the key of a Linear team, such as ENG";
    let of_jira = "ticketingConfig.match is not available for Jira: jql and repoFieldValue select the tickets";
    for (config, error) in [
        (json!({"kind": "A", "match": {}}), match_rule),
        (json!({"kind": "A", "match": "repo:web"}), match_rule),
        (
            json!({"kind": "A", "match": {"label": "a", "project": "b"}}),
            match_rule,
        ),
        (
            json!({"kind": "A", "match": {"label": "a", "default": true}}),
            match_rule,
        ),
        (
            json!({"kind": "A", "match": {"default": false}}),
            match_rule,
        ),
        (json!({"kind": "A", "match": {"label": ["a"]}}), match_rule),
        (json!({"kind": "A", "match": {"labels": "a"}}), match_rule),
        (json!({"kind": "A", "match": {"label": " "}}), name_rule),
        (
            json!({"kind": "A", "match": {"project": "a\nb"}}),
            name_rule,
        ),
        (
            json!({"kind": "A", "match": {"label": "x".repeat(256)}}),
            name_rule,
        ),
        (json!({"kind": "A", "teamKey": "E N G"}), team_rule),
        (json!({"kind": "A", "teamKey": 7}), team_rule),
        (
            json!({"kind": "B", "jql": "project = OPS", "repoFieldValue": "shop", "match": {"default": true}}),
            of_jira,
        ),
    ] {
        let (status, body) = put(&env, "web", config.clone()).await;
        assert_eq!((status, body), (400, json!({"error": error})), "{config}");
    }
    // Stored as given; a body without the new fields is as before.
    for (key, config) in [
        (
            "web",
            json!({"kind": "A", "teamKey": "ENG", "match": {"label": "repo:web"}}),
        ),
        (
            "api",
            json!({"kind": "A", "teamKey": "ENG", "match": {"label": " Repo:API "}}),
        ),
        (
            "rest",
            json!({"kind": "A", "teamKey": "ENG", "match": {"default": true}}),
        ),
        ("OPS", json!({"kind": "A"})),
    ] {
        let (status, body) = put(&env, key, config.clone()).await;
        assert!(status == 200 || status == 201, "{body}");
        assert_eq!(body["ticketingConfig"], config);
        assert_eq!(
            env.admin_get("/api/mappings").await[key]["ticketingConfig"],
            config
        );
    }
    let warned = env.admin_get("/api/mappings").await;
    assert!(warned["web"]["warnings"].is_null(), "{warned}");
    let taken = "ticketingConfig selects the same tickets as the mapping rest; give one of them another match";
    for config in [
        json!({"kind": "A"}),
        json!({"kind": "A", "teamKey": "ENG", "match": {"default": true}}),
    ] {
        assert_eq!(
            put(&env, "ENG", config).await,
            (400, json!({"error": taken}))
        );
    }
    let (status, body) = put(
        &env,
        "docs",
        json!({"kind": "A", "teamKey": "ENG", "match": {"project": "Handbook"}}),
    )
    .await;
    let warning = "Linear shows no project \"Handbook\" in team ENG. Upper and lower case matter. No ticket matches \
                   until it exists.";
    assert!((200..300).contains(&status));
    assert_eq!(
        body["warnings"],
        json!([{"field": "match", "message": warning}])
    );
    env.stop().await;
}

async fn apply(env: &TestEnv, file: &Value) -> ApiResponse {
    let request = reqwest::Client::new().post(format!("{}/api/projects-file", env.address));
    let request = request.bearer_auth(env.sign_in().await);
    send_checked(request.json(&json!({"file": file}))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projects_file_may_exchange_matches_but_not_repeat_one() {
    let env = TestEnv::with_manual_engine(web_and_api()).await;
    let exported = env.admin_get("/api/projects-file").await;
    let mut file = exported.clone();
    let config = |key: &str| exported["mappings"][key]["ticketingConfig"].clone();
    assert_eq!(
        config("web"),
        json!({"kind": "A", "teamKey": "ENG", "match": {"label": "repo:web"}})
    );
    file["mappings"]["web"]["ticketingConfig"] = config("api");
    let refused = apply(&env, &file).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused
            .body
            .to_string()
            .contains("selects the same tickets as api"),
        "{refused:?}"
    );
    file["mappings"]["api"]["ticketingConfig"] = config("web");
    let applied = apply(&env, &file).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    let stored = env.admin_get("/api/mappings").await;
    assert_eq!(
        stored["web"]["ticketingConfig"]["match"],
        json!({"label": "repo:api"})
    );
    file["mappings"]["web"]["ticketingConfig"]["teamKey"] = json!("E N G");
    let refused = apply(&env, &file).await;
    assert!(
        refused
            .body
            .to_string()
            .contains("mappings.web.ticketingConfig.teamKey"),
        "{refused:?}"
    );
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_labels_and_projects_to_match() {
    let env = TestEnv::with_manual_engine([]).await;
    let linear = env.vendors.linear();
    linear
        .ensure_label(None, "repo:web")
        .ensure_label(Some("OPS"), "ops-only");
    create(&env, "ENG-1", &["ui"], Some("Handbook"));
    let values = async |list: &str| {
        let list = env
            .admin_get(&format!("/api/choices/{list}?team=ENG"))
            .await;
        let choices = list["choices"].as_array().unwrap().iter();
        choices
            .map(|one| one["value"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let labels = values("labels").await;
    assert!(
        labels.contains(&"repo:web".to_owned()) && labels.contains(&"ui".to_owned()),
        "{labels:?}"
    );
    assert!(
        !labels.contains(&"ops-only".to_owned()) && !labels.contains(&"Agent-Implement".to_owned())
    );
    assert_eq!(values("projects").await, ["Handbook"]);
    for list in ["labels", "projects?team=", "labels?team=a%20b"] {
        let path = format!("/api/choices/{list}");
        let response = env.admin_request(Method::GET, &path, None).await;
        let error = json!({"error": "team must be the key of a team"});
        assert_eq!(response, (400, error), "{path}");
    }
    env.stop().await;
}
