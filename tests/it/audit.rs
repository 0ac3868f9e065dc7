//! Audit: each change writes one entry, and verification detects changed entries.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use domain::effect::{ChatMessage, Effect};
use domain::issue::Phase;
use domain::job::JobKind;
use redb::{Database, ReadableTable, TableDefinition};
use reqwest::Method;
use serde_json::{Value, json};
use store::{STORE_FILE, Store, audit, dedup, dispatch_breaker, outbox, patches};

use crate::api_server::{
    ALL_FEATURES, ApiResponse, ApiServer, CLOCK_START, dispatched_job, send_checked,
};
use crate::process::{ServiceProcess, control_request, run};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("audit-1");

/// Fills the store with one object of each kind that an operator can change.
async fn seed_store(server: &ApiServer) {
    let run = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&run).await;
    let (entry, id) = (
        dedup::DedupEntry {
            issue: run.issue.clone(),
            dispatched_at: CLOCK_START,
        },
        run.id.clone(),
    );
    let parked = dispatch_breaker::ParkedIssue {
        issue: run.issue.clone(),
        repo: run.repo.clone(),
        phase: Phase::Implementation,
        failures: 3,
        last_conclusion: "failure".to_owned(),
        parked_at: CLOCK_START,
    };
    let written = server.store.write(move |tx| {
        dedup::put(tx, &entry)?;
        dispatch_breaker::park(tx, &parked)?;
        patches::put(tx, &id, "diff --git a/x b/x\n")?;
        for _ in 0..2 {
            let message = ChatMessage::default();
            outbox::push(tx, &Effect::Chat { message }, CLOCK_START)?;
        }
        Ok(())
    });
    written.await.unwrap();
}

async fn entries(server: &ApiServer, token: &str) -> Vec<Value> {
    let response = server
        .send("GET", "/api/audit?limit=500", token, None)
        .await;
    assert_eq!(response.status, 200, "{response:?}");
    response.body.as_array().unwrap().clone()
}

#[tokio::test]
async fn each_change_by_an_operator_writes_exactly_one_entry() {
    let mut flags = ALL_FEATURES.to_vec();
    flags.extend([
        "--trusted-proxies",
        "127.0.0.1",
        "--docker-host",
        "tcp://127.0.0.1:1",
    ]);
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    seed_store(&server).await;
    let token = server.sign_in().await;
    let mapping =
        json!({"teamKey": "ENG", "owner": "acme", "repo": "shop", "defaultBranch": "main"});
    let secret = json!({"name": "npm_token", "value": "hush-hush-secret"});
    let none = Value::Null;
    // Method, path, body; status; action, target, detail.
    let rows = [
        (
            "POST",
            "/api/mappings",
            mapping.clone(),
            200,
            "mapping-created",
            "ENG",
            "acme/shop",
        ),
        (
            "POST",
            "/api/mappings",
            mapping,
            200,
            "mapping-updated",
            "ENG",
            "acme/shop",
        ),
        (
            "PATCH",
            "/api/mappings/ENG",
            json!({"paused": true}),
            200,
            "mapping-paused",
            "ENG",
            "",
        ),
        (
            "PATCH",
            "/api/mappings/ENG",
            json!({"paused": false}),
            200,
            "mapping-resumed",
            "ENG",
            "",
        ),
        (
            "PATCH",
            "/api/mappings/ENG",
            json!({"maxInProgressAiIssues": 7}),
            200,
            "mapping-capped",
            "ENG",
            "maxInProgressAiIssues 7",
        ),
        (
            "POST",
            "/api/runner-mode",
            json!({"mode": "local"}),
            200,
            "runner-mode-set",
            "local",
            "",
        ),
        (
            "POST",
            "/api/settings",
            json!({"vmSessionsRegion": "fra"}),
            200,
            "settings-changed",
            "",
            "vmSessionsRegion=fra",
        ),
        (
            "POST",
            "/api/mappings/ENG/secrets",
            secret.clone(),
            200,
            "secret-set",
            "NPM_TOKEN",
            "of team ENG",
        ),
        (
            "DELETE",
            "/api/mappings/ENG/secrets/NPM_TOKEN",
            none.clone(),
            200,
            "secret-deleted",
            "NPM_TOKEN",
            "of team ENG",
        ),
        (
            "POST",
            "/api/global-secrets",
            secret,
            200,
            "secret-set",
            "NPM_TOKEN",
            "of every team",
        ),
        (
            "DELETE",
            "/api/global-secrets/NPM_TOKEN",
            none.clone(),
            200,
            "secret-deleted",
            "NPM_TOKEN",
            "of every team",
        ),
        (
            "DELETE",
            "/api/dedup/ENG-1",
            none.clone(),
            200,
            "dedup-deleted",
            "ENG-1",
            "",
        ),
        (
            "POST",
            "/api/parked/unpark",
            json!({"issueId": "ENG-1"}),
            200,
            "unparked",
            "ENG-1",
            "",
        ),
        (
            "POST",
            "/api/outbox/1/retry",
            none.clone(),
            200,
            "outbox-retried",
            "1",
            "chat message in chat",
        ),
        (
            "DELETE",
            "/api/outbox/2",
            none.clone(),
            200,
            "outbox-dropped",
            "2",
            "chat message in chat",
        ),
        ("POST", "/api/poll", none.clone(), 202, "poll-asked", "", ""),
        (
            "GET",
            "/api/jobs/01JOB/patch",
            none.clone(),
            200,
            "patch-read",
            "01JOB",
            "ENG-1",
        ),
        (
            "DELETE",
            "/api/mappings/ENG",
            none.clone(),
            200,
            "mapping-deleted",
            "ENG",
            "",
        ),
        ("POST", "/api/auth/logout", none, 200, "sign-out", "", ""),
    ];
    let mut count = entries(&server, &token).await.len();
    assert_eq!(count, 1, "only the sign-in");
    for (method, path, body, status, action, target, detail) in rows {
        let request = server
            .request(method, path)
            .bearer_auth(&token)
            .header("x-forwarded-for", "203.0.113.9");
        let request = match body {
            Value::Null => request,
            body => request.body(body.to_string()),
        };
        let response = send_checked(request).await;
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        let latest = server
            .store
            .read(|tx| audit::latest(tx, None, 500))
            .unwrap();
        count += 1;
        assert_eq!(latest.len(), count, "{method} {path}: {latest:#?}");
        let last = &latest[0];
        assert_eq!(
            [&last.actor, &last.action, &last.target, &last.detail],
            ["admin@203.0.113.9", action, target, detail],
            "{method} {path}"
        );
    }
    let all = server
        .store
        .read(|tx| audit::latest(tx, None, 500))
        .unwrap();
    assert!(
        !format!("{all:?}").contains("hush"),
        "a secret's value is in the audit"
    );
}

/// Covers requests with and without a valid token.
#[tokio::test]
async fn rejected_requests_and_no_op_changes_write_no_entry() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let rows = [
        ("POST", "/api/mappings", "{}", 400),
        ("PATCH", "/api/mappings/NONE", r#"{"paused":true}"#, 404),
        ("DELETE", "/api/mappings/NONE", "", 404),
        ("POST", "/api/mappings/NONE/sync-workflows", "", 404),
        ("DELETE", "/api/dedup/NONE-1", "", 404),
        ("POST", "/api/parked/unpark", r#"{"issueId":"NONE-1"}"#, 200),
        ("POST", "/api/outbox/9/retry", "", 404),
        ("DELETE", "/api/outbox/9", "", 404),
        ("POST", "/api/settings", "{}", 200),
        ("POST", "/api/runner-mode", r#"{"mode":"x"}"#, 400),
        ("GET", "/api/jobs/NONE/patch", "", 404),
        ("GET", "/api/mappings", "", 200),
    ];
    for (method, path, body, status) in rows {
        let response = server.send(method, path, &token, body.to_owned()).await;
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        let response = server.send(method, path, "nonsense", body.to_owned()).await;
        assert_eq!(response.status, 401, "{method} {path}: {response:?}");
    }
    assert_eq!(entries(&server, &token).await.len(), 1, "only the sign-in");
}

#[tokio::test]
async fn failed_sign_ins_write_a_bounded_number_of_entries() {
    let mut flags = ALL_FEATURES.to_vec();
    flags.extend(["--trusted-proxies", "127.0.0.1"]);
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for host in 0..40 {
        for _ in 0..7 {
            let guess = server
                .request("POST", "/api/auth")
                .header("x-forwarded-for", format!("198.51.100.{host}"))
                .body(r#"{"code":"wrong"}"#);
            assert!([403, 429].contains(&send_checked(guess).await.status));
        }
    }
    let entries = server
        .store
        .read(|tx| audit::latest(tx, None, 500))
        .unwrap();
    let count = |action: &str| {
        entries
            .iter()
            .filter(|entry| entry.action == action)
            .count()
    };
    assert_eq!(
        (
            count("sign-in-refused"),
            count("sign-in-throttled"),
            entries.len()
        ),
        (10, 10, 20)
    );
    assert_eq!(entries[19].actor, "admin@198.51.100.0");

    server.clock.advance(Duration::from_secs(3600));
    engine::maintenance::run_once(&server.app).await.unwrap();
    let entries = server.store.read(|tx| audit::latest(tx, None, 2)).unwrap();
    let summaries: Vec<_> = entries
        .iter()
        .map(|entry| (entry.actor.as_str(), entry.detail.as_str()))
        .collect();
    assert_eq!(
        summaries,
        [
            ("service", "70 more within an hour"),
            ("service", "190 more within an hour")
        ]
    );
}

#[tokio::test]
async fn audit_is_listed_in_pages_and_verified() {
    let server = ApiServer::start().await;
    let token = server.sign_in().await;
    let get = async |path: &str| -> ApiResponse { server.send("GET", path, &token, None).await };
    for _ in 0..4 {
        server.send("POST", "/api/poll", &token, None).await;
    }
    let seqs = |response: &ApiResponse| -> Vec<u64> {
        let entries = response.body.as_array().unwrap();
        entries
            .iter()
            .map(|entry| entry["seq"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(seqs(&get("/api/audit?limit=2").await), [5, 4]);
    assert_eq!(seqs(&get("/api/audit?limit=2&before=4").await), [3, 2]);
    assert_eq!(seqs(&get("/api/audit").await), [5, 4, 3, 2, 1]);
    for (bad, rule) in [
        ("limit=0", "limit must be a whole number from 1 to 500"),
        ("limit=501", "limit must be a whole number from 1 to 500"),
        ("before=yesterday", "before must be the seq of an entry"),
    ] {
        let response = get(&format!("/api/audit?{bad}")).await;
        assert_eq!(response.error(), (400, rule));
    }
    let newest = &get("/api/audit?limit=1").await.body[0];
    let keys: Vec<&String> = newest.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["seq", "at", "actor", "action", "target", "detail", "hash"]
    );
    let whole = json!({"ok": true, "entries": 5, "head": newest["hash"], "brokenAt": null});
    assert_eq!(get("/api/audit/verify").await.body, whole);
    let anchored = format!(
        "/api/audit/verify?head={}",
        newest["hash"].as_str().unwrap()
    );
    assert_eq!(get(&anchored).await.body, whole);
    let rewritten = get("/api/audit/verify?head=00").await.body;
    assert_eq!(
        (&rewritten["ok"], &rewritten["brokenAt"]),
        (&json!(false), &Value::Null)
    );
    for path in ["/api/audit", "/api/audit/verify"] {
        assert_eq!(
            server.send("GET", path, "", None).await.error(),
            (401, "Unauthorized")
        );
        assert_eq!(server.send("POST", path, &token, None).await.status, 405);
    }
}

/// Runs `agent-implement audit verify` on a data directory.
fn verify(dir: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-implement"));
    command.args(["audit", "verify", "--data-dir"]).arg(dir);
    command.args(flags).output().unwrap()
}

/// Returns exit code and standard output.
fn exit_and_stdout(output: &Output) -> (Option<i32>, String) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    (output.status.code(), stdout.trim().to_owned())
}

/// Changes the audit table in the store's file directly.
fn tamper(dir: &Path, change: impl FnOnce(&mut redb::Table<'_, u64, &'static [u8]>)) {
    let db = Database::create(dir.join(STORE_FILE)).unwrap();
    let tx = db.begin_write().unwrap();
    change(&mut tx.open_table(TABLE).unwrap());
    tx.commit().unwrap();
}

#[tokio::test]
async fn command_line_detects_tampering_with_a_stopped_store() {
    let dir = tempfile::tempdir().unwrap();
    let server = ApiServer::start_with(ALL_FEATURES, Store::open(dir.path()).unwrap()).await;
    let token = server.sign_in().await;
    for _ in 0..4 {
        server.send("POST", "/api/poll", &token, None).await;
    }
    let head = server.store.read(audit::head).unwrap().hash;
    let busy = verify(dir.path(), &[]);
    assert_eq!(busy.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&busy.stderr).into_owned();
    assert!(
        stderr.contains("does not respond at its control socket"),
        "{stderr}"
    );
    server.stop().await.unwrap();

    let whole = format!("ok: 5 entries, head {head}");
    // The last connections close the store a moment after the stop.
    let began = Instant::now();
    let mut verified = verify(dir.path(), &[]);
    while verified.status.code() != Some(0) && began.elapsed() < Duration::from_secs(30) {
        verified = verify(dir.path(), &[]);
    }
    assert_eq!(exit_and_stdout(&verified), (Some(0), whole.clone()));
    assert_eq!(
        exit_and_stdout(&verify(dir.path(), &["--head", &head])),
        (Some(0), whole)
    );
    let (code, stdout) = exit_and_stdout(&verify(dir.path(), &["--head", &"beef".repeat(16)]));
    assert!(
        code == Some(1) && stdout.contains("was rewritten"),
        "{stdout}"
    );

    tamper(dir.path(), |table| {
        let row = table.get(3).unwrap().unwrap().value().to_owned();
        let changed = String::from_utf8(row)
            .unwrap()
            .replace("poll-asked", "poll-Asked");
        table.insert(3, changed.as_bytes()).unwrap();
    });
    let broken = "broken at entry 3; the 2 entries before it are intact".to_owned();
    assert_eq!(exit_and_stdout(&verify(dir.path(), &[])), (Some(1), broken));

    let nowhere = dir.path().join("nowhere");
    assert_eq!(verify(&nowhere, &[]).status.code(), Some(1));
    assert!(!nowhere.exists(), "verify must not create a store");
}

/// The command sends its request to the running service. Entries name the owner, and a backup contains the
/// entry about itself.
#[tokio::test]
async fn command_line_verifies_through_the_running_service() {
    let dir = tempfile::tempdir().unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("copy"));
    let service = ServiceProcess::start(&data, &[]);
    let (polled, _) = control_request(&data, Method::POST, "/api/poll", None).await;
    assert_eq!(polled, 202);
    let copy = file.to_str().unwrap();
    let backup = run(&["backup", copy, "--data-dir", data.to_str().unwrap()]);
    assert_eq!(backup.status.code(), Some(0), "{backup:?}");

    let (_, entries) = control_request(&data, Method::GET, "/api/audit", None).await;
    let shown = |at: usize| (entries[at]["actor"].clone(), entries[at]["action"].clone());
    assert_eq!(shown(0), (json!("owner"), json!("backup-taken")));
    assert_eq!(shown(1), (json!("owner"), json!("poll-asked")));
    let head = entries[0]["hash"].as_str().unwrap();
    let whole = format!("ok: 2 entries, head {head}");
    assert_eq!(
        exit_and_stdout(&verify(&data, &[])),
        (Some(0), whole.clone())
    );
    let older = entries[1]["hash"].as_str().unwrap();
    assert_eq!(
        exit_and_stdout(&verify(&data, &["--head", older])).0,
        Some(0)
    );
    let (code, stdout) = exit_and_stdout(&verify(&data, &["--head", &"beef".repeat(16)]));
    assert!(
        code == Some(1) && stdout.contains("was rewritten"),
        "{stdout}"
    );
    for head in ["no hash", "abc", ""] {
        let refused = verify(&data, &["--head", head]);
        let (code, stderr) = (
            refused.status.code(),
            String::from_utf8_lossy(&refused.stderr),
        );
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains("64 hexadecimal digits"), "{stderr}");
    }
    service.kill();

    let restored = dir.path().join("restored");
    let target = restored.to_str().unwrap();
    let output = run(&["restore", copy, "--data-dir", target]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(exit_and_stdout(&verify(&restored, &[])), (Some(0), whole));
}

/// Covers entries of the service itself and of an operator.
#[tokio::test(flavor = "multi_thread")]
async fn audit_covers_a_run_from_dispatch_to_machine_destruction() {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", "vm".to_owned())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.create_labelled_issue("ENG-1", "Add a greeting");
    env.tick().await;
    let machine = env.vendors.fly().host().snapshots().remove(0);
    let run = env.jobs("ENG-1").remove(0);
    let path = format!("/api/sessions/{}", machine.id);
    let destroying = env.admin_request(reqwest::Method::DELETE, &path, None);
    let draining = async {
        // No poll: the ticket still has its label and would get another run.
        while env.jobs("ENG-1")[0].is_active() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        engine::outbox_worker::drain(&env.app).await.unwrap();
    };
    let ((status, body), ()) = tokio::join!(destroying, draining);
    assert_eq!(status, 200, "{body}");
    let entries = env.store.read(|tx| audit::latest(tx, None, 500)).unwrap();
    let of_run = entries
        .iter()
        .rev()
        .filter(|entry| entry.action != "sign-in");
    let shown: Vec<_> = of_run
        .map(|entry| {
            [
                entry.actor.as_str(),
                &entry.action,
                &entry.target,
                &entry.detail,
            ]
        })
        .take(3)
        .collect();
    let dispatched = format!("implementation run {} on vm in acme/shop", run.id);
    let destroyed = format!("requested, run {} of ENG-1", run.id);
    assert_eq!(
        shown,
        [
            ["service", "run-dispatched", "ENG-1", &dispatched],
            ["service", "run-started", "ENG-1", &dispatched],
            [
                "admin@127.0.0.1",
                "session-destroyed",
                &machine.id,
                &destroyed
            ],
        ]
    );
    let verification = env.store.read(|tx| audit::verify(tx, None)).unwrap();
    assert!(verification.ok, "{verification:?}");
    env.finish().await;
}
