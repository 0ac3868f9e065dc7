//! Environment of the load test: vendors, mappings, issues and the service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fake_vendors::{FakeRepo, FakeVendors, FakeVendorsOptions};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::fake_runs::AcknowledgedRun;
use crate::http_client::{HttpConnection, RawResponse, encode_request};
use crate::measurements::LoadRecorder;
use crate::process::{self, ServiceProcess};
use test_support::{allocator_settings, app_key};

use crate::{ACTIVE_RUNS, ISSUES_PER_MAPPING, JIRA_PROJECTS, LINEAR_TEAMS, LoadPlan, REPOSITORIES};

const ACCESS_CODE: &str = "open sesame, please";
pub const REPO_HOST_SECRET: &str = "the host's own secret";
pub const LINEAR_SECRET: &str = "linear's own secret";
const TRIGGER: &str = "Agent-Implement";
const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");

/// More requests than the test sends; vendor quotas are not measured here.
const UNLIMITED_QUOTA: u64 = 10_000_000;

/// Maximum duration of the setup.
const SETUP_TIMEOUT: Duration = Duration::from_secs(600);

/// State shared by all clients.
pub struct LoadEnv {
    pub plan: LoadPlan,
    pub vendors: FakeVendors,
    pub service: SocketAddr,
    /// Token of the admin API.
    pub token: String,
    pub recorder: LoadRecorder,
    pub dir: tempfile::TempDir,
    /// Number of runs that currently report.
    pub active_runs: AtomicUsize,
    stopped: AtomicBool,
    acknowledged: Mutex<Vec<AcknowledgedRun>>,
    pulls: Mutex<Vec<OpenedPull>>,
    jira_issues: AtomicUsize,
}

/// Pull request opened by a fake run.
#[derive(Clone)]
pub struct OpenedPull {
    pub repo: FakeRepo,
    pub number: u64,
    /// Body with the metadata block that marks it as ours.
    pub body: String,
}

/// Whether issues of a mapping are eligible to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MappingState {
    /// One issue runs at a time; the others wait for the slot.
    Active,
    Paused,
    /// Every issue is blocked by another issue.
    Blocked,
}

fn linear_team(number: usize) -> (String, MappingState) {
    let states = [
        MappingState::Active,
        MappingState::Active,
        MappingState::Paused,
        MappingState::Blocked,
    ];
    (format!("T{number}"), states[number % states.len()])
}

fn jira_project(number: usize) -> (String, MappingState) {
    let states = [MappingState::Active, MappingState::Paused];
    (format!("J{number}"), states[number % states.len()])
}

impl LoadEnv {
    /// Starts the vendors and the service, then creates 200 mappings and 5,000 issues.
    pub async fn start(plan: LoadPlan) -> (Arc<Self>, ServiceProcess) {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let vendors = start_vendors(dir.path()).await;
        let service = start_service(&vendors, dir.path(), &plan);
        let address = service.address.trim_start_matches("http://");
        let mut env = Self {
            vendors,
            service: address.parse().unwrap(),
            token: String::new(),
            recorder: LoadRecorder::new(plan.window),
            dir,
            active_runs: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            pulls: Mutex::default(),
            jira_issues: AtomicUsize::new(0),
            plan,
        };
        env.token = env.sign_in().await;
        env.create_mappings().await;
        let env = Arc::new(env);
        let creator = Arc::clone(&env);
        tokio::task::spawn_blocking(move || creator.create_issues())
            .await
            .unwrap();
        assert_eq!(
            env.admin_request("POST", "/api/poll", None).await.status,
            202
        );
        (env, service)
    }

    /// Sends an admin API request.
    pub async fn admin_request(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> RawResponse {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str())];
        let request = encode_request(method, path, &headers, body.as_bytes());
        HttpConnection::new(self.service)
            .send(&request)
            .await
            .unwrap()
    }

    async fn sign_in(&self) -> String {
        let code = json!({ "code": ACCESS_CODE });
        let signed_in = self.admin_request("POST", "/api/auth", Some(code)).await;
        let body: Value = serde_json::from_slice(&signed_in.body).unwrap();
        body["token"].as_str().unwrap().to_owned()
    }

    async fn create_mappings(&self) {
        let linear = (0..LINEAR_TEAMS).map(|number| {
            let (team, state) = linear_team(number);
            (number, team, state, json!({"kind": "A"}))
        });
        let jira = (0..JIRA_PROJECTS).map(|number| {
            let (team, state) = jira_project(number);
            let config =
                json!({"kind": "B", "jql": "project = OPS", "repoFieldValue": field(number)});
            (number, team, state, config)
        });
        for (number, team, state, config) in linear.chain(jira) {
            let mapping = json!({
                "teamKey": team, "owner": "acme", "repo": repository_name(number), "defaultBranch": "main",
                "ticketingProvider": config["kind"], "ticketingConfig": config,
                "maxInProgressAiIssues": 1, "paused": state == MappingState::Paused,
            });
            let response = self
                .admin_request("POST", "/api/mappings", Some(mapping))
                .await;
            assert_eq!(response.status, 200, "{}", response.text());
        }
    }

    fn create_issues(&self) {
        let mut rng = Rng::with_seed(self.plan.seed);
        let linear = self.vendors.linear();
        for number in 0..LINEAR_TEAMS {
            let (team, state) = linear_team(number);
            let first =
                (state == MappingState::Blocked).then(|| linear.create_ticket(&team, "Blocker"));
            for _ in 0..ISSUES_PER_MAPPING {
                let issue = linear.create_ticket(&team, &title(&mut rng));
                let issue = issue
                    .describe(&description(&mut rng))
                    .priority(rng.u8(0..5));
                let issue = match &first {
                    Some(first) => issue.blocked_by(first.identifier()),
                    None => issue,
                };
                issue.add_label(TRIGGER);
            }
        }
        for number in 0..JIRA_PROJECTS * ISSUES_PER_MAPPING {
            self.create_jira_issue(number % JIRA_PROJECTS, &mut rng);
        }
    }

    /// Issue numbers of a project are congruent modulo the number of projects, so that the key
    /// identifies the project.
    fn create_jira_issue(&self, project: usize, rng: &mut Rng) {
        let round = self.jira_issues.fetch_add(1, Ordering::Relaxed);
        let number = round * JIRA_PROJECTS + project + 1;
        let issue = self.vendors.jira().issue(&format!("OPS-{number}"));
        issue
            .title(&title(rng))
            .describe(&description(rng))
            .repo(&field(project))
            .status("Ready");
    }

    /// Creates an issue in place of a finished one, so that the number of waiting issues stays constant.
    pub fn file_replacement_issue(&self, key: &str, rng: &mut Rng) {
        let Some((team, number)) = key.rsplit_once('-') else {
            return;
        };
        if team == "OPS" {
            let number: usize = number.parse().unwrap_or(1);
            return self.create_jira_issue((number - 1) % JIRA_PROJECTS, rng);
        }
        let issue = self.vendors.linear().create_ticket(team, &title(rng));
        issue.describe(&description(rng)).add_label(TRIGGER);
    }

    pub async fn wait_until_all_active(&self) {
        let started = Instant::now();
        while self.active_runs.load(Ordering::Relaxed) < ACTIVE_RUNS {
            let active = self.active_runs.load(Ordering::Relaxed);
            assert!(
                started.elapsed() < SETUP_TIMEOUT,
                "only {active} runs are active"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Runs with their acknowledged reports.
    pub fn acknowledged_runs(&self) -> MutexGuard<'_, Vec<AcknowledgedRun>> {
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Pull requests opened by fake runs.
    pub fn opened_pulls(&self) -> MutexGuard<'_, Vec<OpenedPull>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }
}

pub fn repository_name(number: usize) -> String {
    format!("svc-{}", number % REPOSITORIES)
}

/// Value of the repository field in Jira.
fn field(number: usize) -> String {
    format!("service-{number}")
}

fn title(rng: &mut Rng) -> String {
    format!(
        "Make the {} list {} faster",
        rng.u16(..),
        ["a little", "much"][rng.usize(..2)]
    )
}

/// Issue description of 300 to 1,300 bytes.
fn description(rng: &mut Rng) -> String {
    let sentences = (0..rng.usize(4..17)).map(|_| {
        format!(
            "When list {} holds {} rows, opening it takes {} ms in the browser. ",
            rng.u16(..),
            rng.u16(..),
            rng.u16(..)
        )
    });
    sentences.collect()
}

async fn start_vendors(dir: &Path) -> FakeVendors {
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let mut options = FakeVendorsOptions::new(dir.join("vendors"), program);
    options.app_key_pem = Some(app_key());
    options.fake_runs = true;
    let vendors = FakeVendors::start(options).await.unwrap();
    vendors.keep_in_memory();
    vendors.linear().set_quota(UNLIMITED_QUOTA);
    vendors.github().set_quota(UNLIMITED_QUOTA);
    for label in [
        TRIGGER,
        "Agent-Planning",
        "Agent-Working",
        "Plan-Complete",
        "Ready for Review",
    ] {
        vendors.linear().ensure_label(None, label);
    }
    vendors.jira().ensure_project("OPS", "Operations");
    let github = vendors.github().clone();
    let seeds = tokio::task::spawn_blocking(move || {
        for number in 0..REPOSITORIES {
            let repo = github.repo("acme", &repository_name(number));
            let files = [(".github/workflows/agent-implement.yml", WORKFLOW)];
            repo.seed(&files, "Begin").unwrap();
            repo.set_collaborator_role("reviewer", "write");
        }
    });
    seeds.await.unwrap();
    vendors
}

/// Variable with the path of the measured binary, that of a release.
const PROGRAM: &str = "LOAD_PROGRAM";

/// Returns the path of the measured binary: the named one, or the one that Cargo has built.
pub fn program() -> PathBuf {
    let named = std::env::var_os(PROGRAM).map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-implement").into())
}

/// Returns whether the measured binary is a named one.
pub fn is_program_named() -> bool {
    std::env::var_os(PROGRAM).is_some()
}

fn start_service(vendors: &FakeVendors, dir: &Path, plan: &LoadPlan) -> ServiceProcess {
    let flags = [
        ("--admin-access-code", ACCESS_CODE.to_owned()),
        (
            "--runner-token-secret",
            "0123456789abcdef0123456789abcdef".to_owned(),
        ),
        // Runs need a callback address; the fake runs know the service's real address.
        (
            "--runner-callback-base-url",
            "http://127.0.0.1:9".to_owned(),
        ),
        (
            "--poll-interval-ms",
            plan.poll_interval.as_millis().to_string(),
        ),
        ("--linear-api-key", vendors.linear().api_key()),
        ("--linear-api-url", vendors.linear_url()),
        ("--linear-uploads-url", vendors.linear_uploads_url()),
        ("--linear-webhook-secret", LINEAR_SECRET.to_owned()),
        ("--jira-site-url", vendors.jira_url()),
        ("--jira-email", vendors.jira().email().to_owned()),
        ("--jira-api-token", vendors.jira().api_token().to_owned()),
        ("--github-app-id", vendors.github().app_id().to_string()),
        ("--github-app-private-key", app_key()),
        ("--github-api-url", vendors.github_api_url()),
        ("--scm-webhook-secret", REPO_HOST_SECRET.to_owned()),
        ("--notify-webhook-url", vendors.slack_url()),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .flat_map(|(name, value)| [*name, value.as_str()])
        .collect();
    let dir = dir.join("data");
    let mut command = process::command_of(&program(), &["serve", "--port", "0", "--data-dir"]);
    let command = command.arg(&dir).args(flags).envs(allocator_settings());
    ServiceProcess::spawn(command, &dir)
}
