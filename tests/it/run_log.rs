//! Logs of runs: sent by whole runs and by hand with a run token, and read by the admin API.

mod hostile;

use std::time::Duration;

use domain::crypto::run_token::RunTokenIssuer;
use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use domain::secret::Secret;
use serde_json::{Value, json};
use store::{Store, jobs, run_logs, steps};

use crate::api_server::{
    ALL_FEATURES, ApiResponse, ApiServer, TOKEN_SECRET, dispatched_job, send_checked,
};
use crate::process::{ServiceProcess, client_builder};
use crate::test_env::{TestEnv, open_store};

/// Log of one job.
struct LogOfJob {
    server: ApiServer,
    run_token: String,
    admin_token: String,
}

/// Text of a log with its offsets.
#[derive(Debug)]
struct LogPage {
    text: String,
    start: usize,
    size: usize,
}

impl LogOfJob {
    async fn start() -> Self {
        Self::start_with(ApiServer::start().await).await
    }

    async fn start_with(server: ApiServer) -> Self {
        let job = dispatched_job("01JOB", JobKind::Implementation);
        server.put_job(&job).await;
        Self {
            run_token: server.run_token(&job, TokenAudience::Progress),
            admin_token: server.sign_in().await,
            server,
        }
    }

    async fn send(&self, offset: usize, text: &str) -> ApiResponse {
        let body = json!({"offset": offset, "text": text}).to_string();
        let sent = self
            .server
            .send("POST", "/runner/log", &self.run_token, body);
        sent.await
    }

    /// Sends a part and returns the offset to continue at.
    async fn send_part(&self, offset: usize, text: &str) -> usize {
        let response = self.send(offset, text).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.body["offset"].as_u64().unwrap() as usize
    }

    async fn get(&self, path: &str) -> ApiResponse {
        self.server.send("GET", path, &self.admin_token, None).await
    }

    async fn read(&self, query: &str) -> LogPage {
        let path = format!("/api/jobs/01JOB/log{query}");
        let request = self.server.request("GET", &path);
        let response = request.bearer_auth(&self.admin_token).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(
            response.headers()["content-type"],
            "text/plain; charset=utf-8"
        );
        let offset = |name: &str| response.headers()[name].to_str().unwrap().parse().unwrap();
        LogPage {
            start: offset("x-log-start"),
            size: offset("x-log-size"),
            text: response.text().await.unwrap(),
        }
    }
}

fn line(text: &str) -> String {
    format!("2027-01-15T08:00:00.000Z {text}\n")
}

#[tokio::test]
async fn a_log_is_read_as_it_was_sent() {
    let log = LogOfJob::start().await;
    let missing = log.get("/api/jobs/01JOB/log").await;
    assert_eq!(missing.error(), (404, "no log"));
    let unknown = log.get("/api/jobs/01NONE/log").await;
    assert_eq!(unknown.error(), (404, "job not found"));

    let (first, second) = (
        line("##[step] clone") + &line("Cloning"),
        line("\u{1b}[32mdone\u{1b}[0m"),
    );
    let end = log.send_part(0, &first).await;
    assert_eq!(end, first.len());
    let page = log.read("").await;
    assert_eq!(
        (page.text.as_str(), page.start, page.size),
        (first.as_str(), 0, first.len())
    );
    // The answer was lost: the part is sent again, together with the next.
    let both = first.clone() + &second;
    assert_eq!(log.send_part(0, &both).await, both.len());
    assert_eq!(log.send_part(0, &first).await, both.len());
    assert_eq!(log.read("").await.text, both);
    let rest = log.read(&format!("?offset={}", page.size)).await;
    assert_eq!((rest.text, rest.size), (second, both.len()));
    assert_eq!(log.read("?offset=18446744073709551615").await.text, "");
    let wrong = log.get("/api/jobs/01JOB/log?offset=-1").await;
    assert_eq!(wrong.error(), (400, "offset must be a whole number"));
    let without_token = log
        .server
        .send("GET", "/api/jobs/01JOB/log", "", None)
        .await;
    assert_eq!(without_token.error(), (401, "Unauthorized"));

    let path = "/api/jobs/01JOB/log?download=1";
    let file = log
        .server
        .request("GET", path)
        .bearer_auth(&log.admin_token);
    let file = send_checked(file).await;
    let expected = "attachment; filename=\"ENG-1-implementation-1.log\"";
    assert_eq!(file.header("content-disposition"), expected);
}

#[tokio::test]
async fn lost_output_is_marked_where_it_is_missing() {
    let log = LogOfJob::start().await;
    log.send_part(0, &line("first")).await;
    let part = line("last");
    assert_eq!(log.send_part(1_000, &part).await, 1_000 + part.len());
    let missing = 1_000 - line("first").len();
    let expected = line("first") + &line(&format!("##[cut] {missing} bytes")) + &part;
    assert_eq!(log.read("").await.text, expected);
}

#[tokio::test]
async fn the_oldest_lines_are_cut_and_offsets_stay() {
    let log = LogOfJob::start().await;
    let (mut sent, mut whole) = (0, String::new());
    for block in 0..30 {
        let lines: String = (0..900)
            .map(|n| line(&format!("{block}.{n} {}", "x".repeat(20))))
            .collect();
        sent = log.send_part(sent, &lines).await;
        whole.push_str(&lines);
        log.server.clock.advance(Duration::from_secs(2));
    }
    let page = log.read("").await;
    assert!(
        page.size == whole.len() && page.start > 0,
        "{} {}",
        page.start,
        page.size
    );
    let (mark, text) = page.text.split_once('\n').unwrap();
    assert_eq!(
        mark,
        line(&format!("##[cut] {} bytes", page.start)).trim_end()
    );
    assert!(text.len() <= 1 << 20 && whole.ends_with(text));
    // A reader that was behind the cut reads what is kept, and one that was ahead reads nothing twice.
    let behind = log.read(&format!("?offset={}", page.start - 1)).await;
    assert_eq!(behind.text, page.text);
    let ahead = log.read(&format!("?offset={}", page.size - 100)).await;
    assert_eq!(ahead.text, whole[whole.len() - 100..]);
}

#[tokio::test]
async fn rejects_invalid_parts() {
    let log = LogOfJob::start().await;
    for (body, slug) in [
        (json!([]), "invalid_body"),
        (json!({"text": "x"}), "invalid_offset"),
        (json!({"offset": -1, "text": "x"}), "invalid_offset"),
        (json!({"offset": 1.5, "text": "x"}), "invalid_offset"),
        (json!({"offset": u64::MAX, "text": "x"}), "invalid_offset"),
        (json!({"offset": 0}), "invalid_text"),
        (json!({"offset": 0, "text": ["x"]}), "invalid_text"),
        (
            json!({"offset": 0, "text": format!("{}\n", "x".repeat(48 << 10))}),
            "invalid_text",
        ),
        (
            json!({"offset": 0, "text": "no line break"}),
            "invalid_text",
        ),
        (
            json!({"offset": 0, "text": "a line\nand a half"}),
            "invalid_text",
        ),
    ] {
        let sent = log
            .server
            .send("POST", "/runner/log", &log.run_token, body.to_string());
        assert_eq!(sent.await.error(), (400, slug), "{body}");
    }
    let job = dispatched_job("01JOB", JobKind::Implementation);
    let result_token = log.server.run_token(&job, TokenAudience::Result);
    let body = json!({"offset": 0, "text": "x\n"}).to_string();
    let sent = log
        .server
        .send("POST", "/runner/log", &result_token, body.clone());
    assert_eq!(sent.await.error(), (401, "wrong_audience"));
    let unknown = dispatched_job("01NONE", JobKind::Implementation);
    let token = log.server.run_token(&unknown, TokenAudience::Progress);
    let sent = log.server.send("POST", "/runner/log", &token, body);
    assert_eq!(sent.await.error(), (404, "job_not_found"));
    assert_eq!(log.get("/api/jobs/01JOB/log").await.status, 404);
}

#[tokio::test]
async fn a_hostile_run_changes_only_its_own_log_within_limits() {
    let log = LogOfJob::start().await;
    let victim = dispatched_job("01VICTIM", JobKind::Implementation);
    log.server.put_job(&victim).await;
    // Fields that name another job are ignored: the token decides.
    let body = json!({"offset": 0, "text": line("forged"), "jobId": "01VICTIM", "job": "01VICTIM"});
    let sent = log
        .server
        .send("POST", "/runner/log", &log.run_token, body.to_string());
    assert_eq!(sent.await.status, 200);
    let victims = log.get("/api/jobs/01VICTIM/log").await;
    assert_eq!(victims.error(), (404, "no log"));

    let hostile = format!(
        "\u{0}\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m##[cut] 9 bytes\r\n{}\n\u{202e}ghp_0123456789abcdefghij0123456789abcdef\n",
        "A".repeat(40_000)
    );
    log.send_part(line("forged").len(), &hostile).await;
    let text = log.read("").await.text;
    assert!(text.len() < 6_000, "{}", text.len());
    assert!(
        text.contains("## [cut] 9 bytes") && !text.contains("##[cut]"),
        "{text}"
    );
    assert!(
        text.contains("[redacted]") && !text.contains("ghp_"),
        "{text}"
    );
    let is_bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(is_bad), "{text:?}");

    // A flood: what is above the rate is not stored, and the answer says when to continue.
    let flood = line(&"x".repeat(1_000)).repeat(45);
    let (mut offset, mut refused) = (1_000_000, 0);
    for _ in 0..80 {
        let response = log.send(offset, &flood).await;
        let continue_at = response.body["offset"].as_u64().unwrap() as usize;
        if response.body["retryAfterMs"].as_u64().unwrap() > 0 {
            refused += 1;
            assert!(continue_at <= offset);
        } else {
            offset = continue_at;
        }
    }
    assert!(refused >= 15, "{refused}");
    let kept = log.read("").await;
    assert!(kept.text.len() <= (1 << 20) + 100);
    // Other runs are not affected.
    let token = log.server.run_token(&victim, TokenAudience::Progress);
    let body = json!({"offset": 0, "text": line("mine")}).to_string();
    let sent = log.server.send("POST", "/runner/log", &token, body).await;
    assert_eq!(sent.body["retryAfterMs"], 0);
}

#[tokio::test]
async fn a_run_pays_for_what_its_output_becomes() {
    let log = LogOfJob::start().await;
    // Each line gets a time: 48 KiB of line breaks become 1.3 MB.
    let (breaks, mut accepted) = ("\n".repeat(48 << 10), 0);
    for _ in 0..10 {
        let response = log.send(accepted * breaks.len(), &breaks).await;
        accepted += usize::from(response.body["retryAfterMs"] == 0);
    }
    assert_eq!(accepted, 1);
    let page = log.read("").await;
    assert!(page.text.len() <= (1 << 20) + 100, "{}", page.text.len());
}

#[tokio::test]
async fn forged_marks_of_steps_are_few() {
    let log = LogOfJob::start().await;
    let marks = "##[step] x\n".repeat(4_000);
    let end = log.send_part(0, &marks).await;
    log.send_part(end, &line("##[step] y")).await;
    let text = log.read("").await.text;
    assert_eq!(text.matches("##[step]").count(), 1_000);
    assert!(text.ends_with(&line("## [step] y")), "{text}");
}

#[tokio::test]
async fn an_offset_far_ahead_silences_nothing() {
    let log = LogOfJob::start().await;
    let forged = (1 << 53) - 1;
    assert_eq!(
        log.send_part(forged, &line("forged")).await,
        forged + line("forged").len()
    );
    // The run learns how far ahead the offsets are, and continues from there.
    let ahead = log.send_part(0, &line("lost")).await;
    assert!(ahead > 1 << 32 && ahead < 1 << 33, "{ahead}");
    log.send_part(ahead, &line("genuine")).await;
    assert!(log.read("").await.text.ends_with(&line("genuine")));
}

#[tokio::test]
async fn an_ended_run_cannot_overwrite_its_log() {
    let log = LogOfJob::start().await;
    let first = line("evidence");
    log.send_part(0, &first).await;
    let job = dispatched_job("01JOB", JobKind::Implementation);
    let ended = domain::job::Job {
        state: domain::job::JobState::Completed,
        finished_at: Some(log.server.clock.now()),
        ..job
    };
    log.server.put_job(&ended).await;
    // The end of the output comes after the result.
    log.server.clock.advance(Duration::from_secs(60));
    let (second, third) = (line("the end"), line("overwritten"));
    let end = log.send_part(first.len(), &second).await;
    log.server.clock.advance(Duration::from_secs(5 * 60));
    let response = log.send(end, &third).await;
    assert_eq!(
        response.body,
        json!({"acknowledged": true, "offset": end + third.len(), "stored": false, "retryAfterMs": 0})
    );
    assert_eq!(log.read("").await.text, first + &second);
}

#[tokio::test]
async fn steps_are_valid_json_after_a_long_output() {
    let log = LogOfJob::start().await;
    let (lines, mut sent) = (line(&"x".repeat(900)).repeat(48), 0);
    for _ in 0..4 {
        sent = log.send_part(sent, &lines).await;
    }
    for id in ["clone", "install"] {
        let step = json!({"step": {
            "id": id, "type": "shell", "status": "running", "started_at": "2027-01-15T08:00:00Z",
        }});
        let reported =
            log.server
                .send("POST", "/runner/progress", &log.run_token, step.to_string());
        assert_eq!(reported.await.status, 200);
    }
    let steps = log.get("/api/jobs/01JOB/steps").await;
    assert_eq!(
        steps.body["steps"].as_array().unwrap().len(),
        2,
        "{steps:?}"
    );
}

#[tokio::test]
async fn logs_are_removed_after_their_days() {
    let mut log = LogOfJob::start().await;
    log.send_part(0, &line("old")).await;
    let day = Duration::from_secs(24 * 60 * 60);
    log.server.clock.advance(day * 14);
    engine::maintenance::run_once(&log.server.app)
        .await
        .unwrap();
    // Admin tokens expire earlier than logs.
    log.admin_token = log.server.sign_in().await;
    assert_eq!(log.read("").await.text, line("old"));
    let details = log.get("/api/jobs/01JOB/details").await;
    assert_eq!(details.body["logBytes"], line("old").len());
    log.server.clock.advance(day);
    engine::maintenance::run_once(&log.server.app)
        .await
        .unwrap();
    let token = log.server.sign_in().await;
    let gone = log.server.send("GET", "/api/jobs/01JOB/log", &token, None);
    assert_eq!(gone.await.error(), (404, "no log"));
    let details = log
        .server
        .send("GET", "/api/jobs/01JOB/details", &token, None);
    assert_eq!(details.await.body["logBytes"], Value::Null);
}

#[tokio::test]
async fn without_days_to_keep_runs_continue_and_nothing_is_stored() {
    let flags = [ALL_FEATURES, &["--log-keep-days", "0"]].concat();
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    let log = LogOfJob::start_with(server).await;
    let response = log.send(0, &line("not kept")).await;
    assert_eq!(
        response.body,
        json!({"acknowledged": true, "offset": line("not kept").len(), "stored": false, "retryAfterMs": 0})
    );
    assert_eq!(log.get("/api/jobs/01JOB/log").await.status, 404);
    // The end of the output is still shown while the service runs.
    let steps = log.get("/api/jobs/01JOB/steps").await;
    assert_eq!(steps.body["log"], "not kept\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_part_survives_a_restart_and_is_not_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let log = LogOfJob::start_with(ApiServer::start_with(ALL_FEATURES, store).await).await;
    let begin = line("-----BEGIN RSA PRIVATE KEY-----");
    let end = log.send_part(0, &begin).await;
    let LogOfJob { server, .. } = log;
    server.stop().await.unwrap();

    let server = ApiServer::start_with(ALL_FEATURES, open_store(dir.path()).await).await;
    let log = LogOfJob::start_with(server).await;
    let key = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgHcTz6sE2I2yPB";
    let both = begin.clone() + &line(key);
    assert_eq!(log.send_part(0, &both).await, end + line(key).len());
    assert_eq!(log.read("").await.text, begin + &line("[redacted]"));
}

#[tokio::test]
async fn details_come_from_the_outputs_of_steps() {
    let log = LogOfJob::start().await;
    let details = log.get("/api/jobs/01JOB/details").await;
    assert_eq!(
        details.body,
        json!({
            "plan": null, "summary": null, "prompts": [], "passes": [], "reviewFindings": [], "guardFindings": [],
            "trigger": {"by": null, "source": "ticket", "at": "2027-01-15T08:00:00.000Z"},
            "logBytes": null, "evidence": [], "refusedHosts": [],
        })
    );
    let report = |id: &str, outputs: Value| {
        json!({"step": {
            "id": id, "type": "review", "status": "passed", "started_at": "2027-01-15T08:00:00Z", "outputs": outputs,
        }})
    };
    let guard = json!({"path": ".env", "line": null, "rule": "file name", "text": "ghp_0123456789abcdefghij0123456789abcdef", "blocking": true});
    for body in [
        report(
            "implement.1",
            json!({"pass": 1, "turns": 12, "costUsd": 0.5, "durationMs": 900, "promptBytes": 4_096}),
        ),
        report("push", json!({"guard": [guard]})),
    ] {
        let sent = log
            .server
            .send("POST", "/runner/progress", &log.run_token, body.to_string());
        assert_eq!(sent.await.status, 200);
    }
    let stored = log
        .server
        .store
        .read(|tx| steps::of_job(tx, &"01JOB".into()));
    assert_eq!(stored.unwrap().len(), 2);
    let details = log.get("/api/jobs/01JOB/details").await.body;
    assert_eq!(
        details["passes"],
        json!([{"step": "implement.1", "number": 1, "turns": 12, "costUsd": 0.5, "durationMs": 900}])
    );
    assert_eq!(
        details["prompts"],
        json!([{"step": "implement.1", "pass": 1, "bytes": 4_096}])
    );
    assert_eq!(details["guardFindings"][0]["text"], "[redacted]");
    let unknown = log.get("/api/jobs/01NONE/details").await;
    assert_eq!(unknown.error(), (404, "job not found"));
    assert!(
        log.server
            .store
            .read(|tx| run_logs::get(tx, &"01JOB".into()))
            .unwrap()
            .is_none()
    );
}

/// Texts of the lines of a job's log.
async fn lines_of(env: &TestEnv, id: &str) -> Vec<String> {
    let path = format!("/api/jobs/{id}/log");
    let url = format!("{}{path}", env.address);
    let request = client_builder().build().unwrap().get(url);
    let response = request
        .bearer_auth(env.sign_in().await)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let lines = text.lines().map(|line| {
        let (at, text) = domain::run_log::parse_line(line);
        assert!(at.is_some(), "{line}");
        text.to_owned()
    });
    lines.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_run_is_whole_in_order_and_without_secrets() {
    let env = TestEnv::start().await;
    let setup = "---\nsetup: |\n  for n in $(seq 3000); do echo \"output $n\"; done\n  \
        printf '\\033[32mgreen\\033[0m\\n##[step] forged\\n'\n  echo ghp_0123456789abcdefghij0123456789abcdef\n---\n";
    let file = ("WORKFLOW.md", setup);
    env.repo().commit("main", &[file], "Add a setup").unwrap();
    env.create_labelled_issue("ENG-1", "Add the feature");
    let job = env.wait_for_job_end("ENG-1").await;
    let host_log = env.repo().run_log(env.repo().runs()[0].id);
    assert_eq!(job.state.status(), "completed", "{host_log}");

    let lines = lines_of(&env, job.id.as_str()).await;
    let output = lines
        .iter()
        .filter_map(|line| line.strip_prefix("  | output "));
    let expected: Vec<String> = (1..=3_000).map(|n| n.to_string()).collect();
    assert_eq!(output.collect::<Vec<_>>(), expected);
    let steps = lines
        .iter()
        .filter_map(|line| line.strip_prefix("##[step] "));
    let steps: Vec<&str> = steps.collect();
    let anchors = [
        "clone",
        "install",
        "setup",
        "feedback-loop",
        "implement.1",
        "review.1",
        "preflight",
        "push",
        "verify",
    ];
    assert_eq!(steps[..anchors.len()], anchors, "{steps:?}");
    let has = |text: &str| lines.iter().any(|line| line == text);
    assert!(has("  | \u{1b}[32mgreen\u{1b}[0m") && has("  | ## [step] forged"));
    assert!(has("  | [redacted]") && has("Run succeeded"));
    let whole = lines.join("\n");
    for secret in ["ghp_0123456789", "sk-ant-canary-of-the-model", TOKEN_SECRET] {
        assert!(!whole.contains(secret), "{secret}");
    }
    let details = env
        .admin_get(&format!("/api/jobs/{}/details", job.id))
        .await;
    let passes = details["passes"].as_array().unwrap();
    let summary: Vec<_> = passes
        .iter()
        .map(|pass| (&pass["step"], &pass["number"]))
        .collect();
    assert_eq!(
        json!(summary[..2]),
        json!([["implement.1", 1], ["review.1", 2]])
    );
    for pass in passes {
        assert!(
            pass["turns"].as_u64() > Some(0) && pass["durationMs"].is_u64(),
            "{pass}"
        );
    }
    assert!(
        details["prompts"][0]["bytes"].as_u64() > Some(100),
        "{details}"
    );
    env.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_continues_the_log_where_it_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let job = dispatched_job("01JOB", JobKind::Implementation);
    let store = Store::open(dir.path()).unwrap();
    let put = job.clone();
    store.write(move |tx| jobs::put(tx, &put)).await.unwrap();
    drop(store);
    let tokens = RunTokenIssuer::new(&Secret::new(TOKEN_SECRET));
    let now = engine::clock::Clock::System.now();
    let expiry = now + Duration::from_secs(3600);
    let phase = job.kind.run_phase();
    let token = tokens.issue(&job.id, TokenAudience::Progress, phase, now, expiry);
    let whole: String = (0..4_000).map(|n| line(&format!("line {n}"))).collect();

    let client = client_builder().build().unwrap();
    let mut acknowledged = 0;
    for life in 0..4 {
        let service =
            tokio::task::block_in_place(|| ServiceProcess::start(dir.path(), ALL_FEATURES));
        let url = format!("{}/runner/log", service.address);
        let killer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(150)).await;
            service
        });
        let mut killer = Some(killer);
        while acknowledged < whole.len() {
            let end = whole[acknowledged..]
                .match_indices('\n')
                .nth(20)
                .map_or(whole.len(), |(at, _)| acknowledged + at + 1);
            let body = json!({"offset": acknowledged, "text": whole[acknowledged..end]});
            let request = client.post(&url).bearer_auth(token.expose()).json(&body);
            if killer
                .as_ref()
                .is_some_and(tokio::task::JoinHandle::is_finished)
                && life < 3
            {
                // The service dies while the part is on its way; its answer may be lost.
                let sending = tokio::spawn(request.send());
                let service = killer.take().unwrap().await.unwrap();
                tokio::task::block_in_place(|| service.kill());
                let _ = sending.await;
                break;
            }
            let receipt: Value = request.send().await.unwrap().json().await.unwrap();
            assert_eq!(receipt["stored"], true, "{receipt}");
            acknowledged = receipt["offset"].as_u64().unwrap() as usize;
        }
        if let Some(killer) = killer {
            let service = killer.await.unwrap();
            tokio::task::block_in_place(|| service.kill());
        }
    }
    assert_eq!(acknowledged, whole.len());
    let store = open_store(dir.path()).await;
    let log = store.read(|tx| run_logs::read(tx, &job.id, 0)).unwrap();
    assert_eq!(log.unwrap().text, whole);
}
