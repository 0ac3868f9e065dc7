//! `GET /metrics`: content, format, and access.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use domain::crypto::run_token::TokenAudience;
use domain::job::JobKind;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use store::Store;

use crate::api_server::{ALL_FEATURES, ApiServer, dispatched_job, send_checked, send_raw};
use crate::test_env::TestEnv;

/// Page in the Prometheus text format, parsed strictly.
struct Page {
    /// Metric types by family.
    kinds: BTreeMap<String, String>,
    /// Values by series: name and labels as written.
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn parse(text: &str) -> Self {
        assert!(
            text.ends_with('\n'),
            "the last line must end with a newline"
        );
        let mut page = Self {
            kinds: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        let (mut help_name, mut family) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(is_name(name) && help.ends_with('.'), "{line}");
                help_name = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, help_name, "{line}");
                assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let before = page.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "duplicate family: {line}");
                family = name.to_owned();
            } else {
                page.add_sample(line, &family);
            }
        }
        page.check_histograms();
        page
    }

    fn add_sample(&mut self, line: &str, family: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let (name, labels) = match series.split_once('{') {
            None => (series, ""),
            Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
        };
        let parts = match self.kinds[family].as_str() {
            "histogram" => vec!["_bucket", "_sum", "_count"],
            _ => vec![""],
        };
        let of_family = parts.iter().any(|part| name == format!("{family}{part}"));
        assert!(of_family, "{line} does not belong to {family}");
        let mut names = BTreeSet::new();
        for (label, _) in labels_of(labels) {
            assert!(is_name(&label) && !label.contains(':'), "{line}");
            assert!(names.insert(label), "{line}");
        }
        let before = self.samples.insert(series.to_owned(), value);
        assert_eq!(before, None, "duplicate series: {line}");
    }

    /// Checks that buckets are cumulative and that the last one equals the count.
    fn check_histograms(&self) {
        for (name, _) in self.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            let counts = format!("{name}_count");
            for (series, count) in self
                .samples
                .iter()
                .filter(|(series, _)| series.starts_with(&counts))
            {
                let labels = series[counts.len()..].trim_matches(['{', '}']);
                let mut buckets: Vec<(f64, f64)> = self
                    .samples
                    .iter()
                    .filter_map(|(series, value)| {
                        let inner = series.strip_prefix(&format!("{name}_bucket{{"))?;
                        let (others, bound) = inner.strip_suffix("\"}")?.rsplit_once("le=\"")?;
                        let bound = bound.replace("+Inf", "inf").parse().unwrap();
                        (others.trim_end_matches(',') == labels).then_some((bound, *value))
                    })
                    .collect();
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{series}");
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
            }
        }
    }

    fn value(&self, series: &str) -> f64 {
        *self
            .samples
            .get(series)
            .unwrap_or_else(|| panic!("no {series} in {:#?}", self.samples))
    }
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn labels_of(mut text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap();
        let (mut value, mut end, mut escaped) = (String::new(), None, false);
        for (at, c) in rest.char_indices() {
            match (escaped, c) {
                (false, '"') => {
                    end = Some(at);
                    break;
                }
                (false, '\\') => escaped = true,
                (false, c) => value.push(c),
                (true, c) => {
                    assert!(['\\', '"', 'n'].contains(&c), "{text}");
                    value.push(c);
                    escaped = false;
                }
            }
        }
        labels.push((name.to_owned(), value));
        let rest = &rest[end.unwrap() + 1..];
        text = match rest.strip_prefix(',') {
            Some(more) => more,
            None => {
                assert!(rest.is_empty(), "{rest}");
                rest
            }
        };
    }
    labels
}

async fn metrics(server: &ApiServer) -> Page {
    let response = server.request("GET", "/metrics").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()[CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    Page::parse(&response.text().await.unwrap())
}

#[tokio::test]
async fn page_is_valid_and_counts_requests_jobs_and_commits() {
    let dir = tempfile::tempdir().unwrap();
    let mut flags = ALL_FEATURES.to_vec();
    let data_dir = dir.path().to_str().unwrap();
    flags.extend(["--data-dir", data_dir]);
    let server = ApiServer::start_with(&flags, Store::open(dir.path()).unwrap()).await;
    let run = dispatched_job("01JOB", JobKind::Implementation);
    server.put_job(&run).await;
    let token = server.run_token(&run, TokenAudience::Progress);
    let step =
        json!({"step": {"id": "clone", "type": "clone", "status": "running", "started_at": "t"}});
    for _ in 0..3 {
        let response = server
            .send("POST", "/runner/progress", &token, step.to_string())
            .await;
        assert_eq!(response.status, 200);
    }
    server
        .send("POST", "/runner/progress", "", step.to_string())
        .await;
    for path in [
        "/api/mappings/A1",
        "/api/mappings/B2",
        "/.env",
        "/wp-login.php",
    ] {
        server.send("GET", path, "", None).await;
    }
    let page = metrics(&server).await;
    for (series, value) in [
        (r#"agent_implement_build_info{version="0.1.0"}"#, 1.0),
        (
            r#"agent_implement_jobs{status="running",kind="implementation"}"#,
            1.0,
        ),
        (
            r#"agent_implement_jobs{status="dispatched",kind="planning"}"#,
            0.0,
        ),
        (
            r#"agent_implement_http_requests_total{route="/runner/progress",status="200"}"#,
            3.0,
        ),
        (
            r#"agent_implement_http_requests_total{route="/runner/progress",status="401"}"#,
            1.0,
        ),
        (
            r#"agent_implement_http_requests_total{route="/api/mappings/:teamKey",status="401"}"#,
            2.0,
        ),
        (
            r#"agent_implement_http_requests_total{route="other",status="404"}"#,
            2.0,
        ),
        (
            r#"agent_implement_http_request_seconds_count{route="/runner/progress"}"#,
            4.0,
        ),
        ("agent_implement_outbox_dead", 0.0),
        ("agent_implement_store_healthy", 1.0),
        ("agent_implement_event_listeners", 0.0),
        (
            r#"agent_implement_decisions{outcome="waiting",reason="concurrency"}"#,
            0.0,
        ),
    ] {
        assert_eq!(page.value(series), value, "{series}");
    }
    let (commits, memory, bytes) = (
        page.value("agent_implement_store_commit_seconds_count"),
        page.value("process_resident_memory_bytes"),
        page.value("agent_implement_store_bytes"),
    );
    assert!(
        commits >= 3.0 && memory > 1e6 && bytes > 1e3,
        "{commits} {memory} {bytes}"
    );
    for file in ["dashboard.json", "alerts.yml"] {
        let used = series_in(&format!("packaging/prometheus/{file}"));
        assert!(used.len() > 5, "{file}");
        for name in used {
            assert!(page.kinds.contains_key(&name), "{file} uses {name}");
        }
    }
    assert!(
        page.samples
            .keys()
            .all(|series| !series.contains("wp-login") && !series.contains("A1"))
    );
}

/// Returns the metric families that a dashboard or alert file uses.
fn series_in(file: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let identifiers = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let exported = identifiers
        .filter(|word| word.starts_with("agent_implement_") || word.starts_with("process_"));
    let family = |word: &str| {
        let parts = ["_bucket", "_count", "_sum"];
        let part = parts.iter().find_map(|part| word.strip_suffix(part));
        part.unwrap_or(word).to_owned()
    };
    exported.map(family).collect()
}

#[tokio::test]
async fn metrics_require_loopback_or_the_token() {
    let server = ApiServer::start().await;
    assert_eq!(server.send("GET", "/metrics", "", None).await.status, 200);
    assert_eq!(server.send("POST", "/metrics", "", None).await.status, 405);
    let forwarded = [
        "X-Forwarded-For",
        "Forwarded",
        "X-Real-IP",
        "Via",
        "x-forwarded-for",
    ];
    let status = async |server: &ApiServer, header: &str, token: &str| {
        let request = server.request("GET", "/metrics").header(header, "");
        let request = match token {
            "" => request,
            token => request.bearer_auth(token),
        };
        send_checked(request).await.status
    };
    for header in forwarded {
        assert_eq!(status(&server, header, "").await, 401, "{header}");
        assert_eq!(status(&server, header, "anything").await, 401, "{header}");
    }
    let mut flags = ALL_FEATURES.to_vec();
    flags.extend(["--metrics-token", "count-me-in"]);
    let server = ApiServer::start_with(&flags, Store::in_memory().unwrap()).await;
    for header in forwarded {
        assert_eq!(status(&server, header, "").await, 401, "{header}");
        assert_eq!(
            status(&server, header, "count-me-out").await,
            401,
            "{header}"
        );
        assert_eq!(
            status(&server, header, "count-me-in").await,
            200,
            "{header}"
        );
    }
    // The metrics token must not grant access to the admin API.
    assert_eq!(
        server
            .send("GET", "/api/mappings", "count-me-in", None)
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn metrics_can_be_disabled() {
    let server = ApiServer::start_with(&["--metrics", "false"], Store::in_memory().unwrap()).await;
    let response = server.send("GET", "/metrics", "", None).await;
    assert_eq!(response.error(), (404, "Not found"));
}

/// A malformed path must not stop the counting.
#[tokio::test]
async fn malformed_paths_are_counted_as_other() {
    let server = ApiServer::start().await;
    for path in ["/%ff", "/api/why/%00", "//", "/api//", "/metrics/x"] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(
            send_raw(server.address, head.as_bytes())
                .await
                .starts_with("HTTP/1.1 404"),
            "{path}"
        );
    }
    let page = metrics(&server).await;
    let count = |route: &str| {
        let series =
            format!(r#"agent_implement_http_requests_total{{route="{route}",status="404"}}"#);
        page.samples.get(&series).copied().unwrap_or_default()
    };
    assert_eq!(count("other") + count("/api/why/:issue") + count("/"), 5.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_cover_a_ticket_from_its_trigger_to_its_end() {
    let env = TestEnv::start().await;
    env.create_labelled_issue("ENG-1", "Add a greeting");
    env.wait_for_job_end("ENG-1").await;
    env.wait_for_polls().await;
    let response = reqwest::get(format!("{}/metrics", env.address))
        .await
        .unwrap();
    let page = Page::parse(&response.text().await.unwrap());
    for (series, value) in [
        (
            r#"agent_implement_jobs_ended_total{status="completed",kind="implementation"}"#,
            1.0,
        ),
        ("agent_implement_trigger_to_dispatch_seconds_count", 1.0),
        (
            r#"agent_implement_decisions{outcome="done",reason=""}"#,
            1.0,
        ),
        ("agent_implement_outbox_pending", 0.0),
        ("agent_implement_outbox_oldest_age_seconds", 0.0),
    ] {
        assert_eq!(page.value(series), value, "{series}");
    }
    assert!(page.value("agent_implement_poll_duration_seconds_count") >= 2.0);
    let age = page.value(r#"agent_implement_poll_last_success_age_seconds{system="linear"}"#);
    assert!(age < 60.0, "{age}");
    assert!(page.value("agent_implement_audit_entries_total") >= 2.0);
    env.finish().await;
}
