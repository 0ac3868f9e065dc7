//! Fake vendors of both ticketing systems, and the service that is killed.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{
    BranchProtection, FakeRepo, FakeService, FakeVendors, FakeVendorsOptions, FaultRates,
    RunSnapshot, WebhookFaults,
};
use reqwest::Method;
use serde_json::{Value, json};
use store::crash_injection::CrashPoint;

use crate::landing::{self, LANDING, LANDING_REPOS, PROTECTED, UP_TO_DATE};
use crate::program::{KillOnDrop, PROGRAM, command};
use crate::tickets::{
    self, ExpectedTicket, FAKE_RUN_ISSUES, FAKE_RUN_REPOS, FAKE_RUNS, GATED_ISSUES, ISSUES,
    PLANNED_ISSUES, REPOS, RULED_ISSUES,
};

pub const WEBHOOK_SECRET: &str = "the webhook secret of this test";
const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";

const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");
const PLANNING: &str = include_str!("../../templates/workflows/agent-plan.yml");

/// Maximum wait for any expected event.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Error of a change that is stored, but is not in the place of the standby.
const NOT_IN_STANDBY: &str = "The change is not in the place of the standby yet";

/// Team of a mapping without tickets. The operator changes its cap continuously.
pub const IDLE_TEAM: &str = "IDLE";

/// Cap of each mapping at first.
const FIRST_CAP: u32 = 2;

/// Cap of each mapping of a repository with fake runs.
const FAKE_RUN_CAP: u32 = 6;

/// Recorded requests and observations.
#[derive(Default)]
pub struct CrashRecord {
    pub tickets: Vec<ExpectedTicket>,
    pub kills: usize,
    /// Number of machines before the one that the service runs on.
    pub machines_before: usize,
    /// Times from kills until the store was restored on the next machine.
    pub take_overs: Vec<Duration>,
    /// Instants at which a machine was lost.
    pub machines_lost: Vec<Instant>,
    /// Crash point that the running service is killed at.
    pub awaited: Option<CrashPoint>,
    /// Whether the service is killed no more.
    pub is_undisturbed: bool,
    /// Commits of people: the ticket's key and the SHA.
    pub commits_by_hand: Vec<(String, String)>,
    /// Keys of the tickets whose retry was acknowledged.
    pub retried: HashSet<String>,
    pub reports: Vec<AcknowledgedStep>,
    /// Jobs whose result was acknowledged.
    pub results: Vec<String>,
    pub backups: Vec<BackupAttempt>,
    /// Last requested cap of the idle team, and all acknowledged caps in ascending order.
    pub requested_cap: u32,
    pub acknowledged_caps: Vec<u32>,
    /// Descriptions of forbidden events.
    pub violations: Vec<String>,
}

/// Step of a run whose report was acknowledged.
#[derive(Clone)]
pub struct AcknowledgedStep {
    pub job: String,
    pub step: String,
    pub at: Instant,
}

/// Response to a backup request.
pub struct BackupAttempt {
    pub file: PathBuf,
    /// Whether the response was received completely.
    pub is_complete: bool,
    /// Number of reports acknowledged before the request.
    pub reports_before: usize,
}

pub struct CrashEnv {
    pub dir: PathBuf,
    pub vendors: FakeVendors,
    pub seed: u64,
    /// Flags of the service in addition to those of every environment.
    extra_flags: Vec<(&'static str, String)>,
    port: u16,
    record: Arc<Mutex<CrashRecord>>,
}

impl CrashEnv {
    /// Creates the vendors and a service with its mappings, which is then stopped. No tickets exist yet. The service has
    /// these flags in addition to those of every environment.
    pub async fn create(
        dir: &Path,
        seed: u64,
        extra_flags: impl FnOnce(&FakeVendors) -> Vec<(&'static str, String)>,
    ) -> Self {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = dir.canonicalize().unwrap();
        let mut options = FakeVendorsOptions::new(dir.join("vendors"), PROGRAM);
        options.fault_seed = seed;
        let vendors = FakeVendors::start(options).await.unwrap();
        let env = Self {
            extra_flags: extra_flags(&vendors),
            vendors,
            port: free_port(),
            record: Arc::default(),
            dir,
            seed,
        };
        env.seed_vendors();
        let service = env.start_service(None);
        for mapping in mappings() {
            let (status, body) = env
                .request_until_answered(Method::POST, "/api/mappings", mapping)
                .await;
            assert_eq!(status, 200, "{body}");
        }
        env.record().requested_cap = FIRST_CAP;
        env.record().acknowledged_caps.push(FIRST_CAP);
        drop(service);
        env
    }

    fn seed_vendors(&self) {
        let vendors = &self.vendors;
        vendors.linear().set_quota(1_000_000);
        vendors.github().set_quota(1_000_000);
        let workflows = [
            (".github/workflows/agent-implement.yml", WORKFLOW),
            (".github/workflows/agent-plan.yml", PLANNING),
        ];
        let readme = ("README.md", "# Shop\n");
        let fake_workflows = workflows.map(|(path, text)| {
            let text = fake_run_workflow(text, &self.gates_dir());
            (path, text)
        });
        let fake_workflows = fake_workflows
            .each_ref()
            .map(|(path, text)| (*path, text.as_str()));
        for name in REPOS {
            let repo = self.repo(name);
            let [implement, plan] = match FAKE_RUN_REPOS.contains(&name) {
                true => fake_workflows,
                false => workflows,
            };
            repo.seed(&[implement, plan, readme], "Begin").unwrap();
            repo.allow_actions_to_open_pulls();
            repo.set_collaborator_role("mia", "maintain")
                .set_secret("ANTHROPIC_API_KEY", "sk-ant-sandbox-only");
            repo.set_webhook(&self.url("/api/repo-host/webhook"), WEBHOOK_SECRET);
        }
        let ci = format!(".github/workflows/{}", landing::CI);
        for name in LANDING_REPOS {
            let repo = self.repo(name);
            let workflow = landing::ci_workflow(self);
            let files = [(ci.as_str(), workflow.as_str())];
            repo.commit("main", &files, "Add checks").unwrap();
            repo.run_checks();
        }
        self.repo(UP_TO_DATE).require_up_to_date(true);
        let two_approvals = BranchProtection {
            required_reviews: 2,
            ..BranchProtection::default()
        };
        self.repo(PROTECTED)
            .allow_auto_merge()
            .protect(two_approvals)
            .set_collaborator_role("kim", "write");
        std::fs::create_dir_all(self.flakes_dir()).unwrap();
        std::fs::create_dir_all(self.gates_dir()).unwrap();
        std::fs::create_dir_all(self.dir.join("backups")).unwrap();
        let steps = [
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::message("Done."),
        ];
        let script = Script::new().pass(steps);
        script.save(&vendors.scripts_dir(), "default").unwrap();
        tickets::set_up_vendors(vendors);
        let webhook_faults = WebhookFaults {
            duplicate_rate: 0.15,
            retry_until_accepted: true,
            ..WebhookFaults::default()
        };
        vendors.github().webhooks().set_faults(webhook_faults);
        vendors.linear().webhooks().set_faults(webhook_faults);
        vendors.jira().webhooks().set_faults(webhook_faults);
        let webhook_url = self.url("/api/ticketing-a/webhook");
        vendors.linear().set_webhook(&webhook_url, WEBHOOK_SECRET);
        let webhook_url = self.url("/api/ticketing-b/webhook");
        vendors.jira().set_webhook(&webhook_url, WEBHOOK_SECRET);
    }

    pub fn record(&self) -> MutexGuard<'_, CrashRecord> {
        self.record.lock().unwrap()
    }

    /// Records a forbidden event.
    pub fn record_violation(&self, fault: String) {
        self.record().violations.push(fault);
    }

    pub fn repo(&self, name: &str) -> FakeRepo {
        self.vendors.github().repo("acme", name)
    }

    /// Data folder of the machine that the service runs on.
    pub fn data_dir(&self) -> PathBuf {
        match self.record().machines_before {
            0 => self.dir.join("data"),
            before => self.dir.join(format!("data-{before}")),
        }
    }

    /// Folder of the gate files that end fake runs, named after their dispatch IDs.
    pub fn gates_dir(&self) -> PathBuf {
        self.dir.join("gates")
    }

    /// Gate file that a run waits for, or that a person opens.
    pub fn gate(&self, key: &str) -> PathBuf {
        self.gates_dir().join(key.replace('#', "-"))
    }

    /// Folder with a folder for each head whose check failed once.
    pub fn flakes_dir(&self) -> PathBuf {
        self.dir.join("flakes")
    }

    /// Runs that the service started in a repository: not those that check commits.
    pub fn dispatched_runs(&self, repo: &str) -> Vec<RunSnapshot> {
        let mut runs = self.repo(repo).runs();
        runs.retain(|run| run.workflow != landing::CI);
        runs
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("service.log")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Sets the chance of each kind of vendor fault; zero disables faults.
    pub fn set_fault_rate(&self, chance: f64) {
        let rates = FaultRates {
            latency: Duration::ZERO,
            error_rate: chance,
            drop_request_rate: chance,
            drop_response_rate: chance,
        };
        for vendor in [
            FakeService::Linear,
            FakeService::Jira,
            FakeService::GitHub,
            FakeService::Chat,
            FakeService::Bucket,
        ] {
            self.vendors.faults(vendor).clear();
            self.vendors.faults(vendor).set_rates(rates.clone());
        }
    }

    /// Starts the service, optionally with a crash point.
    pub fn start_service(&self, visit: Option<&str>) -> KillOnDrop {
        let mut log = self.open_log();
        writeln!(log, "== started, crash point {visit:?}").unwrap();
        let mut serve = command(&["serve", "--quick", "--log-level=info"]);
        serve.args(self.flags());
        if let Some(visit) = visit {
            serve.args(["--crash-at", visit]);
        }
        serve.stdout(log.try_clone().unwrap()).stderr(log);
        KillOnDrop(serve.spawn().unwrap())
    }

    fn open_log(&self) -> File {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap()
    }

    fn flags(&self) -> Vec<String> {
        let vendors = &self.vendors;
        let flags = [
            ("--port", self.port.to_string()),
            ("--data-dir", self.data_dir().display().to_string()),
            ("--poll-interval-ms", "1000".to_owned()),
            ("--runner-token-secret", TOKEN_SECRET.to_owned()),
            ("--runner-callback-base-url", self.url("")),
            ("--linear-api-key", vendors.linear().api_key()),
            ("--linear-api-url", vendors.linear_url()),
            ("--linear-uploads-url", vendors.linear_uploads_url()),
            ("--linear-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--jira-site-url", vendors.jira_url()),
            ("--jira-email", vendors.jira().email().to_owned()),
            ("--jira-api-token", vendors.jira().api_token().to_owned()),
            ("--jira-webhook-secret", WEBHOOK_SECRET.to_owned()),
            (
                "--github-token",
                vendors.github().personal_token().to_owned(),
            ),
            ("--github-api-url", vendors.github_api_url()),
            ("--scm-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--notify-webhook-url", vendors.slack_url()),
            ("--vm-sessions-token", vendors.fly().token().to_owned()),
            ("--vm-sessions-app", vendors.fly().app().to_owned()),
            ("--vm-api-url", vendors.fly_url()),
            ("--docker-host", vendors.docker_socket()),
            (
                "--kubeconfig",
                vendors.kubernetes().kubeconfig().display().to_string(),
            ),
            (
                "--kubernetes-namespace",
                vendors.kubernetes().namespace().to_owned(),
            ),
            ("--anthropic-api-key", "sk-ant-sandbox-only".to_owned()),
        ];
        let pair = |(flag, value): (&str, String)| [flag.to_owned(), value];
        let flags = flags.into_iter().chain(self.extra_flags.clone());
        flags.flat_map(pair).collect()
    }

    /// Client of the control socket. It keeps no connections, because the service is killed often.
    pub fn control_client(&self) -> reqwest::Client {
        let client = reqwest::Client::builder().unix_socket(self.data_dir().join("control.sock"));
        let client = client.pool_max_idle_per_host(0);
        client.timeout(Duration::from_secs(20)).build().unwrap()
    }

    /// Repeats a control-socket request until it gets a response.
    pub async fn request_until_answered(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let started = Instant::now();
        loop {
            if let Some(response) = self.try_request(method.clone(), path, &body).await {
                return response;
            }
            assert!(started.elapsed() < TIMEOUT, "no response to {path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a control-socket request. Returns `None` if its outcome is unknown: without a complete response, or if a
    /// change is only in the store of a machine that may be lost.
    pub async fn try_request(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let mut request = self
            .control_client()
            .request(method, format!("http://control{path}"));
        if !body.is_null() {
            request = request.json(body);
        }
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        let is_unshipped = status == 503 && text.contains(NOT_IN_STANDBY);
        (!is_unshipped).then(|| (status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// Number of pending outbox entries, and the dead ones.
    pub async fn outbox_state(&self) -> (usize, Value) {
        let (_, body) = self
            .request_until_answered(Method::GET, "/api/outbox", Value::Null)
            .await;
        let pending = body["pending"].as_array().map_or(usize::MAX, Vec::len);
        (pending, body["dead"].clone())
    }
}

/// Port outside the ephemeral range, so that it is free again after each kill.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(15_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Header of a real workflow, and a job that waits for its gate file.
fn fake_run_workflow(workflow: &str, gates: &Path) -> String {
    let (head, _) = workflow.split_once("\njobs:\n").unwrap();
    let gate = gates.display();
    format!(
        "{head}\njobs:\n  implement:\n    runs-on: ubuntu-latest\n    steps:\n      - name: Wait\n        \
         run: 'while [ ! -e \"$GATE\" ]; do sleep 0.2; done'\n        env:\n          \
         GATE: {gate}/${{{{ inputs.dispatch_id }}}}\n"
    )
}

fn mappings() -> Vec<Value> {
    let mut mappings_json = Vec::new();
    for (team, repo, has_planning) in [
        ("ENG", "shop", false),
        ("PLAN", "shop", true),
        ("LAND", LANDING, false),
        ("BEHIND", UP_TO_DATE, false),
        ("FAKE", FAKE_RUNS, false),
        ("GATE", FAKE_RUNS, true),
        ("RULE", FAKE_RUNS, true),
        (IDLE_TEAM, "shop", false),
        ("OPS", "shop", false),
        ("WAY", "shop", true),
        ("SIM", FAKE_RUNS, false),
        ("ASK", FAKE_RUNS, true),
        ("AUTO", FAKE_RUNS, true),
        ("PORT", LANDING, false),
        ("LAG", UP_TO_DATE, false),
        ("ARM", PROTECTED, false),
        ("HOLD", PROTECTED, false),
        ("HUBARM", PROTECTED, false),
        ("HUB", ISSUES, false),
        ("HUBPLAN", PLANNED_ISSUES, true),
        ("HUBFAKE", FAKE_RUN_ISSUES, false),
        ("HUBGATE", GATED_ISSUES, true),
        ("HUBRULE", RULED_ISSUES, true),
        ("HUBLAND", LANDING, false),
        ("HUBBEHIND", UP_TO_DATE, false),
    ] {
        let cap = match FAKE_RUN_REPOS.contains(&repo) {
            true => FAKE_RUN_CAP,
            false => FIRST_CAP,
        };
        let mut mapping = json!({
            "teamKey": team, "owner": "acme", "repo": repo, "defaultBranch": "main",
            "ticketingProvider": "A", "maxInProgressAiIssues": cap,
            // The scripted agent changes the same file for every ticket, and nobody merges.
            "collisions": "allow",
        });
        if has_planning {
            mapping["planningEnabled"] = json!(true);
            mapping["planningWorkflowFile"] = json!("agent-plan.yml");
        }
        if LANDING_REPOS.contains(&repo) {
            let is_squashed = repo != UP_TO_DATE;
            let method = if is_squashed { "squash" } else { "merge" };
            mapping["merge"] = json!({"mode": "auto", "method": method});
            mapping["deleteBranch"] = json!(!is_squashed);
        }
        match team {
            "GATE" | "ASK" | "HUBGATE" => mapping["planApproval"] = json!("required"),
            "RULE" | "AUTO" | "HUBRULE" => {
                mapping["planApproval"] = json!("auto");
                mapping["planAutoApprove"] = json!({"maxFiles": 3});
            }
            _ => {}
        }
        if ["OPS", "WAY", "SIM", "ASK", "AUTO", "PORT", "LAG", "HOLD"].contains(&team) {
            mapping["ticketingProvider"] = json!("B");
            mapping["ticketingConfig"] =
                json!({"kind": "B", "jql": format!("project = {team}"), "repoFieldValue": team});
        }
        if team.starts_with("HUB") {
            mapping["ticketingProvider"] = json!("C");
        }
        mappings_json.push(mapping);
    }
    mappings_json
}
