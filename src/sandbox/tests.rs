//! The town as its clients meet it: real HTTP, real git, real processes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::faults::{Fault, Vendor};
use super::town::{Town, TownOptions};

const WORKFLOW: &str = r#"
name: Implement
run-name: "implement ${{ inputs.issue }} (${{ inputs.dispatch_id }})"
on:
  workflow_dispatch:
    inputs:
      issue: { required: true, type: string }
      dispatch_id: { required: false, default: none, type: string }
      note: { required: false, type: string }
permissions:
  contents: write
  pull-requests: write
env:
  GREETING: hello
jobs:
  implement:
    runs-on: ubuntu-latest
    timeout-minutes: ${{ fromJSON('5') }}
    steps:
      - uses: actions/checkout@v5
      - id: mask
        run: |
          note=$(sed -n 's/.*"note": "\(.*\)".*/\1/p' "$GITHUB_EVENT_PATH")
          echo "::add-mask::$note"
          echo "shouted=LOUD" >> "$GITHUB_OUTPUT"
          echo "FROM_ENV=kept" >> "$GITHUB_ENV"
      - name: Use it
        if: inputs.issue != '' && steps.mask.outputs.shouted == 'loud'
        env:
          CONFIG: ${{ toJSON(inputs) }}
          KEY: ${{ secrets.MODEL_KEY }}
        run: |
          echo "$GREETING ${{ steps.mask.outputs.shouted }} $FROM_ENV $KEY"
          echo "$CONFIG" > "$RUNNER_TEMP/config.json"
          env > "$RUNNER_TEMP/env"
          ${{ inputs.issue == 'SLEEP' && 'sleep 60' || 'true' }}
          ${{ inputs.issue == 'FAIL' && 'exit 3' || 'true' }}
      - name: Never
        if: failure()
        run: echo mended
"#;

async fn town(dir: &Path) -> Town {
    let town = Town::start(TownOptions::new(dir, "/bin/true"))
        .await
        .unwrap();
    town.github().set_start_delay(Duration::from_millis(50));
    town
}

fn client() -> reqwest::Client {
    // A second installation in the same process is refused, and just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent("town-tests")
        .build()
        .unwrap()
}

async fn linear(town: &Town, query: &str, variables: Value) -> (u16, Value) {
    let request = client().post(format!("{}/graphql", town.linear_url()));
    let request = request.header("authorization", town.linear().key());
    let answer = request
        .json(&json!({"query": query, "variables": variables}))
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn github(town: &Town, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let token = town.github().token().to_owned();
    github_as(town, &token, method, path, body).await
}

async fn github_as(
    town: &Town,
    token: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let url = format!("{}{path}", town.github_api_url());
    let mut request = client()
        .request(method.parse().unwrap(), url)
        .bearer_auth(token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default(),
    )
}

async fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn seed(town: &Town) -> super::Repo {
    let repo = town.github().repo("acme", "shop");
    let files = [
        ("README.md", "shop\n"),
        (".github/workflows/implement.yml", WORKFLOW),
    ];
    repo.seed(&files, "Open the shop").unwrap();
    repo.secret("MODEL_KEY", "sk-very-secret");
    repo
}

async fn dispatch(town: &Town, inputs: Value) -> u64 {
    let path = "/repos/acme/shop/actions/workflows/implement.yml/dispatches";
    let body = json!({"ref": "main", "inputs": inputs, "return_run_details": true});
    let (status, answer) = github(town, "POST", path, Some(body)).await;
    assert_eq!(status, 200, "{answer}");
    answer["workflow_run_id"].as_u64().unwrap()
}

fn git(dir: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "-c",
            "credential.helper=",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text)
}

#[tokio::test]
async fn issues_page_and_filter_as_the_vendor_does() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    for number in 1..=5 {
        let ticket = town
            .linear()
            .file("ENG", &format!("Ticket {number}"))
            .add_label("Agent-Implement");
        if number == 2 {
            ticket.complete();
        }
    }
    town.linear()
        .issue("OPS-1")
        .title("Elsewhere")
        .add_label("Agent-Implement");
    town.linear().issue("ENG-5").blocked_by("ENG-1");
    let query = "query Flagged($after: String, $keys: [String!]!) {
        issues(first: 2, after: $after, filter: {
            team: { key: { in: $keys } }, labels: { some: { name: { eqIgnoreCase: \"agent-implement\" } } },
            state: { type: { nin: [\"completed\", \"canceled\"] } }
        }) { nodes { ...Brief } pageInfo { hasNextPage endCursor } } }
        fragment Brief on Issue { key: identifier state { type } labels(first: 5) { nodes { name } }
            inverseRelations(first: 5) { nodes { type issue { identifier state { type } } } } }";
    let mut seen = Vec::new();
    let mut after = Value::Null;
    for _ in 0..2 {
        let (status, answer) = linear(&town, query, json!({"after": after, "keys": ["ENG"]})).await;
        assert_eq!(status, 200, "{answer}");
        let issues = &answer["data"]["issues"];
        seen.extend(issues["nodes"].as_array().unwrap().iter().cloned());
        after = issues["pageInfo"]["endCursor"].clone();
        assert_eq!(issues["pageInfo"]["hasNextPage"], seen.len() < 4);
    }
    let keys: Vec<&str> = seen
        .iter()
        .map(|issue| issue["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["ENG-5", "ENG-4", "ENG-3", "ENG-1"]);
    assert_eq!(
        seen[0]["inverseRelations"]["nodes"][0]["issue"]["identifier"],
        "ENG-1"
    );
}

#[tokio::test]
async fn bad_queries_and_bad_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let (status, answer) = linear(&town, "{ viewer { shoeSize } }", json!({})).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer["errors"][0]["message"],
        "Cannot query field \"shoeSize\" on type \"User\"."
    );
    let greedy = "{ issues(first: 250) { nodes { comments(first: 250) { nodes { id body } } } } }";
    assert_eq!(linear(&town, greedy, json!({})).await.0, 400);
    let (status, answer) = linear(&town, "{ issue(id: \"ENG-9\") { id } }", json!({})).await;
    assert_eq!((status, &answer["data"]), (200, &Value::Null));
    town.linear().set_key("another");
    let answer = client()
        .post(format!("{}/graphql", town.linear_url()))
        .header("authorization", "lin_api_sandbox");
    let answer = answer
        .json(&json!({"query": "{ viewer { id } }"}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
}

#[tokio::test]
async fn a_comment_id_is_taken_once_even_when_the_answer_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    town.linear().issue("ENG-1").title("One");
    let query = "mutation($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }";
    let input = json!({"input": {"id": "11111111-2222-4333-8444-555555555555", "issueId": "ENG-1", "body": "hello"}});
    town.faults(Vendor::Linear)
        .next_on("commentCreate", Fault::DropAfter);
    let lost = client()
        .post(format!("{}/graphql", town.linear_url()))
        .header("authorization", town.linear().key());
    assert!(
        lost.json(&json!({"query": query, "variables": input}))
            .send()
            .await
            .is_err()
    );
    let (status, answer) = linear(&town, query, input).await;
    assert_eq!(status, 200);
    assert_eq!(answer["errors"][0]["extensions"]["userError"], true);
    assert_eq!(town.linear().issue("ENG-1").comments(), ["hello"]);
    assert_eq!(town.requests().of(Vendor::Linear)[0].status, None);
}

#[tokio::test]
async fn labels_are_made_put_on_and_taken_off() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    town.linear().issue("ENG-1").title("One");
    let make = "mutation($n: String!, $t: String!) { issueLabelCreate(input: {name: $n, teamId: $t}) { issueLabel { id } } }";
    let (_, team) = linear(
        &town,
        "{ team(id: \"ENG\") { id states(first: 20) { nodes { id type } } } }",
        json!({}),
    )
    .await;
    let names = json!({"n": "Working", "t": team["data"]["team"]["id"]});
    let (_, made) = linear(&town, make, names.clone()).await;
    let label = made["data"]["issueLabelCreate"]["issueLabel"]["id"].clone();
    assert!(linear(&town, make, names).await.1["errors"].is_array());
    let add = "mutation($l: String!) { issueAddLabel(id: \"ENG-1\", labelId: $l) { success } }";
    for _ in 0..2 {
        assert_eq!(
            linear(&town, add, json!({"l": label})).await.1["data"]["issueAddLabel"]["success"],
            true
        );
    }
    let change = "mutation($i: IssueUpdateInput!) { issueUpdate(id: \"ENG-1\", input: $i) { issue { state { type } } } }";
    let started = team["data"]["team"]["states"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["type"] == "started");
    let input = json!({"i": {"stateId": started.unwrap()["id"], "removedLabelIds": [label]}});
    let (_, answer) = linear(&town, change, input).await;
    assert_eq!(
        answer["data"]["issueUpdate"]["issue"]["state"]["type"],
        "started"
    );
    let history = town.linear().issue("ENG-1").snapshot().unwrap().history;
    let history: Vec<(&str, bool)> = history
        .iter()
        .map(|change| (change.label.as_str(), change.added))
        .collect();
    assert_eq!(history, [("Working", true), ("Working", false)]);
}

#[tokio::test]
async fn a_dispatched_workflow_really_runs() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let repo = seed(&town);
    let run = dispatch(&town, json!({"issue": "ENG-1", "note": "hush-hush"})).await;
    let done = until(|| {
        repo.runs()
            .into_iter()
            .find(|run| run.status == "completed")
    })
    .await;
    assert_eq!(
        (done.id, done.conclusion.as_deref()),
        (run, Some("success")),
        "{}",
        repo.run_log(run)
    );
    assert_eq!(done.title, "implement ENG-1 (none)");
    let log = repo.run_log(run);
    assert!(log.contains("hello LOUD kept ***"), "{log}");
    assert!(
        !log.contains("hush-hush") && !log.contains("sk-very-secret") && !log.contains("mended")
    );
    let temp = repo.run_dir(run).unwrap().join("temp");
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(temp.join("config.json")).unwrap()).unwrap();
    assert_eq!(
        config,
        json!({"issue": "ENG-1", "dispatch_id": "none", "note": "hush-hush"})
    );
    let env = std::fs::read_to_string(temp.join("env")).unwrap();
    assert!(
        env.contains("GITHUB_REPOSITORY=acme/shop") && !env.contains("CARGO"),
        "{env}"
    );
    let (_, jobs) = github(
        &town,
        "GET",
        &format!("/repos/acme/shop/actions/runs/{run}/jobs"),
        None,
    )
    .await;
    let steps = jobs["jobs"][0]["steps"].as_array().unwrap();
    let conclusions: Vec<&str> = steps
        .iter()
        .map(|step| step["conclusion"].as_str().unwrap())
        .collect();
    assert_eq!(conclusions, ["skipped", "success", "success", "skipped"]);
    let logs = format!(
        "{}/repos/acme/shop/actions/jobs/{}/logs",
        town.github_api_url(),
        jobs["jobs"][0]["id"]
    );
    let text = client()
        .get(logs)
        .bearer_auth(town.github().token())
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert_eq!(text, log);
}

#[tokio::test]
async fn failing_and_cancelled_runs_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let repo = seed(&town);
    let failing = dispatch(&town, json!({"issue": "FAIL"})).await;
    let sleeping = dispatch(&town, json!({"issue": "SLEEP"})).await;
    let by_id = |id| repo.runs().into_iter().find(|run| run.id == id).unwrap();
    until(|| (by_id(failing).conclusion.as_deref() == Some("failure")).then_some(())).await;
    assert!(repo.run_log(failing).contains("mended"));
    until(|| repo.run_log(sleeping).contains("hello LOUD").then_some(())).await;
    let cancel = format!("/repos/acme/shop/actions/runs/{sleeping}/cancel");
    assert_eq!(github(&town, "POST", &cancel, None).await.0, 202);
    until(|| (by_id(sleeping).conclusion.as_deref() == Some("cancelled")).then_some(())).await;
    assert_eq!(github(&town, "POST", &cancel, None).await.0, 409);
}

#[tokio::test]
async fn dispatches_are_checked_as_the_host_checks_them() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    seed(&town);
    let workflows = "/repos/acme/shop/actions/workflows";
    let send = async |file: &str, body: Value| {
        let (status, answer) = github(
            &town,
            "POST",
            &format!("{workflows}/{file}/dispatches"),
            Some(body),
        )
        .await;
        (
            status,
            answer["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let inputs = |inputs: Value| json!({"ref": "main", "inputs": inputs});
    let (status, why) = send(
        "implement.yml",
        inputs(json!({"issue": "x", "colour": "red"})),
    )
    .await;
    assert_eq!(
        (status, why.as_str()),
        (422, "Unexpected inputs provided: [\"colour\"]")
    );
    let (status, why) = send("implement.yml", inputs(json!({}))).await;
    assert_eq!(
        (status, why.as_str()),
        (422, "Required input 'issue' not provided")
    );
    let (status, why) = send(
        "implement.yml",
        inputs(json!({"issue": "x".repeat(70_000)})),
    )
    .await;
    assert_eq!((status, why.as_str()), (422, "inputs are too large."));
    assert_eq!(send("missing.yml", inputs(json!({}))).await.0, 404);
    assert_eq!(
        send("implement.yml", json!({"ref": "nowhere"})).await.0,
        422
    );
    assert_eq!(
        send("implement.yml", inputs(json!({"issue": "x"}))).await.0,
        204
    );
    let (_, runs) = github(
        &town,
        "GET",
        "/repos/acme/shop/actions/runs?event=workflow_dispatch&per_page=1",
        None,
    )
    .await;
    assert_eq!(runs["total_count"], 1);
}

#[tokio::test]
async fn runs_outlive_the_town_and_start_again_when_they_died_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = town(dir.path()).await;
    let port = first.port();
    let repo = seed(&first);
    let run = dispatch(&first, json!({"issue": "SLEEP"})).await;
    until(|| repo.run_log(run).contains("hello LOUD").then_some(())).await;
    first.stop().await;
    let second = town(dir.path()).await;
    assert_eq!(second.port(), port);
    let repo = second.github().repo("acme", "shop");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        (repo.runs()[0].status.as_str(), repo.runs()[0].attempt),
        ("in_progress", 1)
    );
    second.stop_and_kill_runs().await;
    let third = town(dir.path()).await;
    let repo = third.github().repo("acme", "shop");
    until(|| (repo.runs()[0].attempt == 2).then_some(())).await;
    assert_eq!((repo.runs().len(), repo.runs()[0].id), (1, run));
    third.stop_and_kill_runs().await;
}

#[tokio::test]
async fn git_clones_and_pushes_and_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(&dir.path().join("town")).await;
    let repo = seed(&town);
    let write = town
        .github()
        .mint_token("acme", &["shop"], &[("contents", "write")]);
    let read = town
        .github()
        .mint_token("acme", &["shop"], &[("contents", "read")]);
    let other = town
        .github()
        .mint_token("acme", &["else"], &[("contents", "write")]);
    let url = move |token: &str| {
        repo.clone_url()
            .replace("http://", &format!("http://x-access-token:{token}@"))
    };
    let base = dir.path().to_owned();
    let work = base.join("work");
    tokio::task::spawn_blocking(move || {
        assert!(!git(&base, &["clone", "-q", &url(&other), "other"]).0);
        assert!(!git(&base, &["clone", "-q", &url("wrong"), "wrong"]).0);
        let (ok, said) = git(&base, &["clone", "-q", "--depth=1", &url(&write), "work"]);
        assert!(ok, "{said}");
        // Large enough that git compresses what it sends.
        let noise: String = (0..40_000).map(|n| format!("{}\n", n * 7919)).collect();
        std::fs::write(work.join("noise.txt"), noise).unwrap();
        git(&work, &["checkout", "-q", "-b", "agent-implement/eng-1"]);
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", "Add noise"]);
        let (ok, said) = git(&work, &["push", "-q", &url(&read), "HEAD"]);
        assert!(!ok && said.contains("403"), "{said}");
        let (ok, said) = git(&work, &["push", "-q", "origin", "HEAD"]);
        assert!(ok, "{said}");
        std::fs::write(work.join(".github/workflows/evil.yml"), "on: push\n").unwrap();
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", "Change the workflow"]);
        let (ok, said) = git(&work, &["push", "-q", "origin", "HEAD"]);
        assert!(
            !ok && said.contains("without `workflows` permission"),
            "{said}"
        );
    })
    .await
    .unwrap();
    let repo = town.github().repo("acme", "shop");
    assert_eq!(
        repo.commits("agent-implement/eng-1")[0].message,
        "Add noise"
    );
    let pulls = "/repos/acme/shop/pulls";
    let body = json!({"title": "ENG-1: Noise", "head": "agent-implement/eng-1", "base": "main", "draft": true});
    let (status, pull) = github(&town, "POST", pulls, Some(body.clone())).await;
    assert_eq!(
        (status, &pull["draft"], &pull["number"]),
        (201, &json!(true), &json!(1))
    );
    assert_eq!(github(&town, "POST", pulls, Some(body)).await.0, 422);
    let ready = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }";
    let (_, answer) = github(
        &town,
        "POST",
        "/graphql",
        Some(json!({"query": ready, "variables": {"id": pull["node_id"]}})),
    )
    .await;
    assert_eq!(
        answer["data"]["markPullRequestReadyForReview"]["pullRequest"]["isDraft"], false,
        "{answer}"
    );
    repo.merge(1).unwrap();
    assert!(repo.file_at("main", "noise.txt").is_some() && repo.pulls()[0].merged);
}

#[tokio::test]
async fn lists_have_links_and_etags_and_tokens_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let repo = seed(&town);
    repo.commit("topic", &[("a", "1\n")], "Topic").unwrap();
    let body = json!({"title": "T", "head": "topic", "base": "main"});
    github(&town, "POST", "/repos/acme/shop/pulls", Some(body)).await;
    for number in 0..3 {
        repo.comment(1, "robin", &format!("comment {number}"));
    }
    let url = format!(
        "{}/repos/acme/shop/issues/1/comments?per_page=2",
        town.github_api_url()
    );
    let get = || client().get(&url).bearer_auth(town.github().token());
    let first = get().send().await.unwrap();
    let link = first.headers()["link"].to_str().unwrap().to_owned();
    assert!(link.contains("page=2>; rel=\"next\""), "{link}");
    let etag = first.headers()["etag"].clone();
    assert_eq!(
        get()
            .header("if-none-match", etag)
            .send()
            .await
            .unwrap()
            .status(),
        304
    );
    let narrow = town.github().mint_token(
        "acme",
        &["shop"],
        &[("contents", "read"), ("metadata", "read")],
    );
    assert_eq!(
        github_as(&town, &narrow, "GET", "/repos/acme/shop", None)
            .await
            .0,
        200
    );
    let (status, answer) = github_as(&town, &narrow, "GET", "/repos/acme/shop/pulls", None).await;
    assert_eq!(
        (status, &answer["message"]),
        (403, &json!("Resource not accessible by integration"))
    );
    let foreign = town
        .github()
        .mint_token("acme", &["else"], &[("contents", "read")]);
    assert_eq!(
        github_as(&town, &foreign, "GET", "/repos/acme/shop", None)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn faults_strike_before_or_after_the_effect() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let post = || client().post(town.chat_url()).json(&json!({"text": "hi"}));
    let faults = town.faults(Vendor::Chat);
    faults.next(Fault::DropBefore);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 0);
    faults.next(Fault::DropAfter);
    assert!(post().send().await.is_err());
    assert_eq!(town.chat().messages().len(), 1);
    faults.outage(true);
    assert_eq!(post().send().await.unwrap().status(), 503);
    faults.clear();
    assert_eq!(post().send().await.unwrap().text().await.unwrap(), "ok");
    town.faults(Vendor::Linear)
        .next(Fault::RateLimited(Duration::from_secs(30)));
    let (status, answer) = linear(&town, "{ viewer { id } }", json!({})).await;
    assert_eq!(
        (status, &answer["errors"][0]["extensions"]["code"]),
        (400, &json!("RATELIMITED"))
    );
    town.stop().await;
    let again = self::town(dir.path()).await;
    assert_eq!(again.chat().messages().len(), 2);
}

#[tokio::test]
async fn the_demo_is_seeded_once() {
    let dir = tempfile::tempdir().unwrap();
    let town = town(dir.path()).await;
    let workflows = [(".github/workflows/agent-implement.yml", WORKFLOW)];
    let demo = super::stories::demo(&town, &workflows).unwrap();
    let head = demo.repo.branch_head("main");
    super::stories::demo(&town, &workflows).unwrap();
    assert_eq!(demo.repo.branch_head("main"), head);
    assert_eq!(town.linear().issues().len(), 2);
    assert_eq!(town.linear().issue("DEMO-1").labels(), ["Agent-Implement"]);
}
