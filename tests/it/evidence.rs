//! Evidence: files that the `verify` script of a repository leaves, from real runs and from hostile ones.

use std::time::Duration;

use data_encoding::BASE64;
use domain::crypto::run_token::TokenAudience;
use domain::evidence::{MAX_BYTES, VARIABLE};
use domain::job::{JobKind, JobState};
use engine::maintenance;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::{Value, json};
use store::{Store, evidence, jobs};

use crate::api_server::{ApiResponse, ApiServer, dispatched_job};
use crate::test_env::{TestEnv, TestEnvOptions};

/// Begin of a PNG image, for a shell.
const PNG: &str = r"\211PNG\r\n\032\n\000\000\000\015IHDR image";

/// Installs a workflow whose `verify` script is this one.
fn set_verify(env: &TestEnv, script: &str) {
    let lines: String = script.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("---\nverify: |\n{lines}---\n");
    let repo = env.repo();
    repo.commit("main", &[("WORKFLOW.md", &text)], "Verify")
        .unwrap();
}

fn write_feature() -> Script {
    Script::new().pass([
        ScriptStep::write("feature.txt", "done\n"),
        ScriptStep::message("I wrote the feature."),
    ])
}

fn log_of_first_run(env: &TestEnv) -> String {
    let run = env.repo().runs().remove(0);
    env.repo().run_log(run.id)
}

/// Names, kinds and sizes in a list.
fn entries(list: &Value) -> Vec<(&str, &str, u64)> {
    let files = list.as_array().unwrap().iter();
    let entry = files.map(|file| {
        let (name, kind) = (file["name"].as_str(), file["kind"].as_str());
        (
            name.unwrap(),
            kind.unwrap(),
            file["bytes"].as_u64().unwrap(),
        )
    });
    entry.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_verify_script_are_shown_and_named() {
    let env = TestEnv::start().await;
    let token = ["gh", "p_", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW"].concat();
    let script = format!(
        "cd \"${VARIABLE}\"\n\
         printf '{PNG}' > shot.png\n\
         echo '2 tests passed with {token}' > report.txt\n\
         echo '<script>alert(1)</script>' > page.html\n\
         printf 'caf\\351' > latin1.txt\n\
         ln -s /etc/passwd passwd.txt\n\
         mkfifo fifo.txt\n\
         mkdir folder\n\
         (sleep 600; echo late > late.txt) &"
    );
    set_verify(&env, &script);
    env.set_agent_script("ENG-1", write_feature());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = log_of_first_run(&env);
    assert_eq!(job.state, JobState::Completed, "{log}");

    let path = format!("/api/jobs/{}/evidence", job.id);
    let listed = env.admin_get(&path).await;
    let (shot, page, report) = (22, 26, 31);
    let expected = [
        ("page.html.txt", "text", page),
        ("report.txt", "text", report),
        ("shot.png", "png", shot),
    ];
    assert_eq!(entries(&listed["files"]), expected, "{log}");
    let details = env
        .admin_get(&format!("/api/jobs/{}/details", job.id))
        .await;
    assert_eq!(details["evidence"], listed["files"]);
    assert_eq!(details["summary"], "I wrote the feature.");
    for refused in [
        "Left out evidence \"latin1.txt\": it is neither a PNG image nor UTF-8 text",
        "Left out evidence \"passwd.txt\": it is a link",
        "Left out evidence \"fifo.txt\": it is not a regular file",
        "Left out evidence \"folder\": it is a folder",
    ] {
        assert!(log.contains(refused), "{refused}\n{log}");
    }

    let pull = env.repo().pulls().remove(0);
    let section = "## Evidence\n\nThe verify script left these files. The page of the run shows them:\n\n\
        - `page.html.txt`\n- `report.txt`\n- `shot.png`\n";
    assert!(pull.body.contains(section), "{}", pull.body);
    assert!(pull.body.contains("agent-implement-meta"), "{}", pull.body);
    let token_of_operator = env.sign_in().await;
    let read = async |name: &str| {
        let url = format!("{}{path}/{name}", env.address);
        let request = reqwest::Client::new().get(url);
        request
            .bearer_auth(&token_of_operator)
            .send()
            .await
            .unwrap()
    };
    for (name, kind) in [
        ("page.html.txt", "text/plain; charset=utf-8"),
        ("report.txt", "text/plain; charset=utf-8"),
        ("shot.png", "image/png"),
    ] {
        let response = read(name).await;
        let header = |header: &str| response.headers()[header].to_str().unwrap().to_owned();
        assert_eq!(response.status(), 200);
        assert_eq!(header("content-type"), kind);
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; sandbox"
        );
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        let disposition = format!("inline; filename=\"{name}\"");
        assert_eq!(header("content-disposition"), disposition);
    }
    let report = read("report.txt").await.text().await.unwrap();
    assert_eq!(report, "2 tests passed with [redacted]\n");
    let download = read("report.txt?download=1").await;
    let disposition = &download.headers()["content-disposition"];
    assert_eq!(disposition, "attachment; filename=\"report.txt\"");
    for (name, status) in [("none.txt", 404), ("..%2Freport.txt", 404)] {
        assert_eq!(read(name).await.status(), status, "{name}");
    }
    let anonymous = reqwest::get(format!("{}{path}/report.txt", env.address)).await;
    assert_eq!(anonymous.unwrap().status(), 401);
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_script_leaves_evidence_too() {
    let env = TestEnv::start().await;
    set_verify(&env, &format!("echo why > \"${VARIABLE}/why.txt\"\nexit 1"));
    env.set_agent_script("ENG-1", write_feature());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert!(matches!(job.state, JobState::Failed { .. }), "{job:?}");
    let listed = env
        .admin_get(&format!("/api/jobs/{}/evidence", job.id))
        .await;
    assert_eq!(entries(&listed["files"]), [("why.txt", "text", 4)]);
    let pull = env.repo().pulls().remove(0);
    assert!(
        pull.draft && pull.body.contains("- `why.txt`"),
        "{}",
        pull.body
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_without_evidence_changes_nothing() {
    let env = TestEnv::start().await;
    set_verify(&env, &format!("test -d \"${VARIABLE}\""));
    env.set_agent_script("ENG-1", write_feature());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    assert_eq!(job.state, JobState::Completed, "{}", log_of_first_run(&env));
    let listed = env
        .admin_get(&format!("/api/jobs/{}/evidence", job.id))
        .await;
    assert_eq!(listed, json!({"files": []}));
    assert!(!env.repo().pulls()[0].body.contains("Evidence"));
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_of_a_run_without_an_address_travels_with_its_report() {
    let env = TestEnv::with_options(TestEnvOptions {
        behind_nat: true,
        ..TestEnvOptions::default()
    })
    .await;
    env.repo().allow_actions_to_open_pulls();
    // Nearly the limit: it fits into the artifact in base64, too.
    let script = format!(
        "cd \"${VARIABLE}\"\nprintf '{PNG}' > shot.png\nhead -c 5000000 /dev/zero | tr '\\0' 'x' > big.txt"
    );
    set_verify(&env, &script);
    env.set_agent_script("ENG-1", write_feature());
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let log = log_of_first_run(&env);
    assert_eq!(job.state, JobState::Completed, "{log}");
    let set = env.store.read(|tx| evidence::get(tx, &job.id)).unwrap();
    let names = set.expect("evidence is stored").files;
    let names: Vec<&str> = names.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["big.txt", "shot.png"], "{log}");
    assert!(env.repo().pulls()[0].body.contains("- `shot.png`"));
    env.finish().await;
}

/// Job whose token is in the hands of code of the repository.
struct HostileRun {
    server: ApiServer,
    token: String,
    admin: String,
}

impl HostileRun {
    async fn start() -> Self {
        let server = ApiServer::start().await;
        let job = dispatched_job("01JOB", JobKind::Implementation);
        server.put_job(&job).await;
        Self {
            token: server.run_token(&job, TokenAudience::Progress),
            admin: server.sign_in().await,
            server,
        }
    }

    async fn report(&self, files: &[(&str, &[u8])]) -> ApiResponse {
        let files = files.iter();
        let files =
            files.map(|(name, content)| json!({"name": name, "content": BASE64.encode(content)}));
        let body = json!({"files": files.collect::<Vec<_>>()}).to_string();
        self.send(&self.token, body).await
    }

    async fn send(&self, token: &str, body: String) -> ApiResponse {
        self.server
            .send("POST", "/runner/evidence", token, body)
            .await
    }

    async fn get(&self, path: &str) -> ApiResponse {
        let path = format!("/api/jobs/01JOB/evidence{path}");
        self.server.send("GET", &path, &self.admin, None).await
    }

    async fn names(&self) -> Vec<String> {
        let listed = self.get("").await.body;
        let names = entries(&listed["files"]).into_iter();
        names.map(|(name, ..)| name.to_owned()).collect()
    }
}

#[tokio::test]
async fn the_service_checks_every_file_again() {
    let run = HostileRun::start().await;
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR image".as_slice();
    let reported = run
        .report(&[
            ("../../admin/index.html", b"<script>alert(1)</script>"),
            ("shot.png", b"<svg onload='alert(1)'/>"),
            ("a\"; filename=\"b.svg", png),
            ("latin1.txt", b"caf\xe9"),
            ("gif.png", b"GIF89a\x01\0"),
            ("empty.txt", b""),
            ("tokens.txt", b"key sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \x1b]0;x\x07end"),
        ])
        .await;
    assert_eq!(reported.status, 200, "{reported:?}");
    let warnings = reported.body["warnings"].as_array().unwrap().clone();
    assert_eq!(
        warnings,
        [
            "latin1.txt is ignored: it is neither a PNG image nor UTF-8 text",
            "gif.png is ignored: it is neither a PNG image nor UTF-8 text",
            "empty.txt is ignored: it is empty",
        ]
    );
    assert_eq!(
        run.names().await,
        [
            "index.html.txt",
            "shot.png.txt",
            "a---filename--b.svg.png",
            "tokens.txt"
        ]
    );
    let url = run
        .server
        .request("GET", "/api/jobs/01JOB/evidence/tokens.txt");
    let text = url
        .bearer_auth(&run.admin)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        !text.contains("sk-ant") && !text.contains('\u{1b}') && text.ends_with("end"),
        "{text:?}"
    );

    // Eleven files, and six MiB: what is within the limits stays.
    let eleven: Vec<String> = (10..21).map(|number| format!("{number}.txt")).collect();
    let eleven: Vec<(&str, &[u8])> = eleven
        .iter()
        .map(|name| (name.as_str(), b"x".as_slice()))
        .collect();
    let reported = run.report(&eleven).await;
    assert_eq!(
        reported.body["warnings"],
        json!(["20.txt is ignored: a run may leave 10 files"])
    );
    assert_eq!(run.names().await.len(), 10, "an earlier report is replaced");
    let large = vec![b'x'; MAX_BYTES];
    let reported = run
        .report(&[("large.txt", &large), ("one-more.txt", b"x")])
        .await;
    let too_large = "one-more.txt is ignored: the files of a run may have 5 MiB together";
    assert_eq!(reported.body["warnings"], json!([too_large]));
    let six = vec![b'x'; 6 << 20];
    assert_eq!(run.report(&[("six.txt", &six)]).await.status, 413);
    assert_eq!(run.names().await, ["large.txt"]);

    for body in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"files":[1]}"#,
        r#"{"files":[{"name":"a","content":"%"}]}"#,
    ] {
        let refused = run.send(&run.token, body.to_owned()).await;
        assert_eq!(refused.error(), (400, "invalid_evidence"), "{body}");
    }
    let job = run.server.job("01JOB");
    let other = run.server.run_token(&job, TokenAudience::Result);
    let refused = run.send(&other, "{}".to_owned()).await;
    assert_eq!(refused.error(), (401, "wrong_audience"));
    let unknown = run.server.run_token(
        &dispatched_job("01NONE", JobKind::Planning),
        TokenAudience::Progress,
    );
    assert_eq!(
        run.send(&unknown, r#"{"files":[]}"#.to_owned())
            .await
            .error(),
        (404, "job_not_found")
    );
    assert_eq!(run.get("/none.txt").await.error(), (404, "no such file"));
    let missing = run
        .server
        .send("GET", "/api/jobs/01NONE/evidence", &run.admin, None)
        .await;
    assert_eq!(missing.error(), (404, "job not found"));
}

#[tokio::test]
async fn reports_are_limited_and_end_with_the_run() {
    let run = HostileRun::start().await;
    let mut sent = 0;
    loop {
        let reported = run.report(&[("a.txt", b"a")]).await;
        if reported.status != 200 {
            assert_eq!(reported.error(), (409, "too_many_reports"));
            break;
        }
        sent += 1;
        assert!(sent <= 40);
    }
    assert_eq!((sent, run.names().await.len()), (40, 1));
    let mut ended = run.server.job("01JOB");
    ended.state = JobState::Completed;
    run.server.put_job(&ended).await;
    assert_eq!(run.report(&[]).await.error(), (409, "run_ended"));
    assert_eq!(
        run.names().await,
        ["a.txt"],
        "the files of an ended run stay"
    );
}

#[tokio::test]
async fn a_service_that_keeps_no_logs_keeps_no_evidence() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let server = ApiServer::start_with(
        &[
            "--log-keep-days",
            "0",
            "--runner-token-secret",
            crate::api_server::TOKEN_SECRET,
        ],
        store,
    )
    .await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&job).await;
    let token = server.run_token(&job, TokenAudience::Progress);
    let refused = server
        .send(
            "POST",
            "/runner/evidence",
            &token,
            r#"{"files":[]}"#.to_owned(),
        )
        .await;
    assert_eq!(refused.error(), (409, "not_kept"));
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_is_removed_with_the_log() {
    let env = TestEnv::with_manual_engine([crate::test_env::mapping()]).await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    let (id, files) = (job.id.clone(), domain_files());
    let now = env.app.core.now();
    let put = env.store.write(move |tx| {
        let ended = domain::job::Job {
            state: JobState::Completed,
            ..job.clone()
        };
        jobs::put(tx, &ended)?;
        evidence::replace(tx, &job.id, &files, 1, now)
    });
    assert!(put.await.unwrap());
    let stored = || env.store.read(|tx| evidence::get(tx, &id)).unwrap();
    maintenance::run_once(&env.app).await.unwrap();
    assert_eq!(stored().map(|set| set.files.len()), Some(1));
    let kept = Duration::from_secs(24 * 60 * 60) * env.app.core.config.log_keep_days;
    env.advance_clock(kept + Duration::from_secs(60));
    maintenance::run_once(&env.app).await.unwrap();
    assert_eq!(stored(), None);
    let file = env
        .store
        .read(|tx| evidence::file(tx, &id, "a.txt"))
        .unwrap();
    assert!(file.is_none());
    env.finish().await;
}

fn domain_files() -> Vec<domain::evidence::EvidenceFile> {
    vec![domain::evidence::EvidenceFile {
        name: "a.txt".into(),
        kind: domain::evidence::EvidenceKind::Text,
        content: b"a".to_vec(),
    }]
}
