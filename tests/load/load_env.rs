//! The stage: vendors, mappings, issues and the service.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fake_vendors::{FakeRepo, FakeVendors, FakeVendorsOptions};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::fake_runs::AcknowledgedRun;
use crate::http_client::{HttpConnection, RawResponse, encode_request};
use crate::measurements::LoadRecorder;
use crate::process::ServiceProcess;
use test_support::app_key;

use crate::{ACTIVE_RUNS, ISSUES_PER_MAPPING, JIRA_PROJECTS, LINEAR_TEAMS, LoadPlan, REPOSITORIES};

const ACCESS_CODE: &str = "open sesame, please";
pub const REPO_HOST_SECRET: &str = "the host's own secret";
pub const LINEAR_SECRET: &str = "linear's own secret";
const TRIGGER: &str = "Agent-Implement";
const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");

/// More than is asked in an hour: what a vendor would allow is not what is measured here.
const PLENTY: u64 = 10_000_000;

/// How long may the preparations take?
const PATIENCE: Duration = Duration::from_secs(600);

/// Everything that the clients share.
pub struct LoadEnv {
    pub plan: LoadPlan,
    pub vendors: FakeVendors,
    pub service: SocketAddr,
    /// Of the admin API.
    pub token: String,
    pub recorder: LoadRecorder,
    pub dir: tempfile::TempDir,
    /// Runs that report at the moment.
    pub active_runs: AtomicUsize,
    over: AtomicBool,
    told: Mutex<Vec<AcknowledgedRun>>,
    pulls: Mutex<Vec<OpenedPull>>,
    jira_issues: AtomicUsize,
}

/// A pull request that a run of ours has opened.
#[derive(Clone)]
pub struct OpenedPull {
    pub repo: FakeRepo,
    pub number: u64,
    /// Its text, which says that it is ours.
    pub body: String,
}

/// Whether issues of a mapping may run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lot {
    /// One at a time; the others wait for the slot.
    Works,
    Paused,
    /// Each waits for another issue.
    Blocked,
}

fn linear_team(number: usize) -> (String, Lot) {
    let lots = [Lot::Works, Lot::Works, Lot::Paused, Lot::Blocked];
    (format!("T{number}"), lots[number % lots.len()])
}

fn jira_project(number: usize) -> (String, Lot) {
    let lots = [Lot::Works, Lot::Paused];
    (format!("J{number}"), lots[number % lots.len()])
}

impl LoadEnv {
    /// Vendors, the service, two hundred mappings and then five thousand issues.
    pub async fn start(plan: LoadPlan) -> (Arc<Self>, ServiceProcess) {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let town = founded(dir.path()).await;
        let service = started(&town, dir.path(), &plan);
        let address = service.address.trim_start_matches("http://");
        let mut scene = Self {
            vendors: town,
            service: address.parse().unwrap(),
            token: String::new(),
            recorder: LoadRecorder::new(plan.window),
            dir,
            active_runs: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            told: Mutex::default(),
            pulls: Mutex::default(),
            jira_issues: AtomicUsize::new(0),
            plan,
        };
        scene.token = scene.sign_in().await;
        scene.map_all().await;
        let scene = Arc::new(scene);
        let filing = Arc::clone(&scene);
        tokio::task::spawn_blocking(move || filing.file_all())
            .await
            .unwrap();
        assert_eq!(
            scene.admin_request("POST", "/api/poll", None).await.status,
            202
        );
        (scene, service)
    }

    /// Asks the admin API.
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

    async fn map_all(&self) {
        let linear = (0..LINEAR_TEAMS).map(|number| {
            let (team, lot) = linear_team(number);
            (number, team, lot, json!({"kind": "A"}))
        });
        let jira = (0..JIRA_PROJECTS).map(|number| {
            let (team, lot) = jira_project(number);
            let config =
                json!({"kind": "B", "jql": "project = OPS", "repoFieldValue": field(number)});
            (number, team, lot, config)
        });
        for (number, team, lot, config) in linear.chain(jira) {
            let mapping = json!({
                "teamKey": team, "owner": "acme", "repo": repository_name(number), "defaultBranch": "main",
                "ticketingProvider": config["kind"], "ticketingConfig": config,
                "maxInProgressAiIssues": 1, "paused": lot == Lot::Paused,
            });
            let answer = self
                .admin_request("POST", "/api/mappings", Some(mapping))
                .await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }

    fn file_all(&self) {
        let mut rng = Rng::with_seed(self.plan.seed);
        let linear = self.vendors.linear();
        for number in 0..LINEAR_TEAMS {
            let (team, lot) = linear_team(number);
            let first =
                (lot == Lot::Blocked).then(|| linear.create_ticket(&team, "Before them all"));
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
            self.file_on_jira(number % JIRA_PROJECTS, &mut rng);
        }
    }

    /// The numbers of a project's issues are its own number and those that are whole rounds of all
    /// projects after it; so the key alone tells the project.
    fn file_on_jira(&self, project: usize, rng: &mut Rng) {
        let round = self.jira_issues.fetch_add(1, Ordering::Relaxed);
        let number = round * JIRA_PROJECTS + project + 1;
        let issue = self.vendors.jira().issue(&format!("OPS-{number}"));
        issue
            .title(&title(rng))
            .describe(&description(rng))
            .repo(&field(project))
            .status("Ready");
    }

    /// Files another issue where this one was, so that as many wait as before.
    pub fn file_replacement_issue(&self, key: &str, rng: &mut Rng) {
        let Some((team, number)) = key.rsplit_once('-') else {
            return;
        };
        if team == "OPS" {
            let number: usize = number.parse().unwrap_or(1);
            return self.file_on_jira((number - 1) % JIRA_PROJECTS, rng);
        }
        let issue = self.vendors.linear().create_ticket(team, &title(rng));
        issue.describe(&description(rng)).add_label(TRIGGER);
    }

    pub async fn wait_until_all_active(&self) {
        let began = Instant::now();
        while self.active_runs.load(Ordering::Relaxed) < ACTIVE_RUNS {
            let active = self.active_runs.load(Ordering::Relaxed);
            assert!(began.elapsed() < PATIENCE, "only {active} runs have begun");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// What runs have reported, and were answered that it is kept.
    pub fn acknowledged_runs(&self) -> MutexGuard<'_, Vec<AcknowledgedRun>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pull requests that runs have opened.
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

/// The value of Jira's repo field.
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

/// Between three hundred and thirteen hundred bytes, as people write them.
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

async fn founded(dir: &Path) -> FakeVendors {
    let program = env!("CARGO_BIN_EXE_agent-implement");
    let mut options = FakeVendorsOptions::new(dir.join("town"), program);
    options.app_key_pem = Some(app_key());
    options.fake_runs = true;
    let town = FakeVendors::start(options).await.unwrap();
    town.keep_in_memory();
    town.linear().set_quota(PLENTY);
    town.github().set_quota(PLENTY);
    for label in [
        TRIGGER,
        "Agent-Planning",
        "Agent-Working",
        "Plan-Complete",
        "Ready for Review",
    ] {
        town.linear().ensure_label(None, label);
    }
    town.jira().ensure_project("OPS", "Operations");
    let github = town.github().clone();
    let seeding = tokio::task::spawn_blocking(move || {
        for number in 0..REPOSITORIES {
            let repo = github.repo("acme", &repository_name(number));
            let files = [(".github/workflows/agent-implement.yml", WORKFLOW)];
            repo.seed(&files, "Begin").unwrap();
            repo.set_collaborator_role("reviewer", "write");
        }
    });
    seeding.await.unwrap();
    town
}

fn started(town: &FakeVendors, dir: &Path, plan: &LoadPlan) -> ServiceProcess {
    let flags = [
        ("--admin-access-code", ACCESS_CODE.to_owned()),
        (
            "--runner-token-secret",
            "0123456789abcdef0123456789abcdef".to_owned(),
        ),
        // Runs are told where to report; the load's clients know it from its own log.
        (
            "--runner-callback-base-url",
            "http://127.0.0.1:9".to_owned(),
        ),
        (
            "--poll-interval-ms",
            plan.poll_interval.as_millis().to_string(),
        ),
        ("--linear-api-key", town.linear().api_key()),
        ("--linear-api-url", town.linear_url()),
        ("--linear-webhook-secret", LINEAR_SECRET.to_owned()),
        ("--jira-site-url", town.jira_url()),
        ("--jira-email", town.jira().email().to_owned()),
        ("--jira-api-token", town.jira().api_token().to_owned()),
        ("--github-app-id", town.github().app_id().to_string()),
        ("--github-app-private-key", app_key()),
        ("--github-api-url", town.github_api_url()),
        ("--scm-webhook-secret", REPO_HOST_SECRET.to_owned()),
        ("--notify-webhook-url", town.slack_url()),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .flat_map(|(name, value)| [*name, value.as_str()])
        .collect();
    ServiceProcess::start(&dir.join("data"), &flags)
}
