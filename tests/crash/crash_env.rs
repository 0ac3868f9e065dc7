//! A town of stand-in vendors on both ticketing systems, and the service that is killed in it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fake_vendors::scripted_agent::{Script, ScriptStep};
use fake_vendors::{
    FakeRepo, FakeService, FakeVendors, FakeVendorsOptions, FaultRates, WebhookFaults,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::program::{KillOnDrop, PROGRAM, command};
use crate::tickets::{self, ExpectedTicket};

pub const WEBHOOK_SECRET: &str = "what the senders of webhooks know";
const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";

const WORKFLOW: &str = include_str!("../../templates/workflows/agent-implement.yml");
const PLANNING: &str = include_str!("../../templates/workflows/agent-plan.yml");

/// How long may any one thing take that must happen?
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// A mapping that no ticket has. Operators change it all the time.
pub const IDLE_TEAM: &str = "IDLE";

/// What was seen so far.
#[derive(Default)]
pub struct CrashRecord {
    pub tickets: Vec<ExpectedTicket>,
    pub kills: usize,
    /// Job and step of every report that was answered with 2xx.
    pub reports: Vec<(String, String)>,
    /// Jobs whose result was answered.
    pub results: Vec<String>,
    pub backups: Vec<BackupAttempt>,
    /// The last cap that an operator asked for, and those that were acknowledged.
    pub requested_cap: u32,
    pub acknowledged_caps: Vec<u32>,
    /// What must not have happened.
    pub violations: Vec<String>,
}

/// An answer to a request for a backup.
pub struct BackupAttempt {
    pub file: PathBuf,
    /// Whether it was answered to its end.
    pub is_complete: bool,
    /// How many reports had been acknowledged before it was asked for.
    pub reports_before: usize,
}

pub struct CrashEnv {
    pub dir: PathBuf,
    pub vendors: FakeVendors,
    pub seed: u64,
    port: u16,
    record: Arc<Mutex<CrashRecord>>,
}

impl CrashEnv {
    /// A town, a service that knows its projects and is stopped again, and nothing filed yet.
    pub async fn create(dir: &Path, seed: u64) -> Self {
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = dir.canonicalize().unwrap();
        let mut options = FakeVendorsOptions::new(dir.join("town"), PROGRAM);
        options.fault_seed = seed;
        let world = Self {
            vendors: FakeVendors::start(options).await.unwrap(),
            port: free_port(),
            record: Arc::default(),
            dir,
            seed,
        };
        world.furnish();
        let service = world.start_service(None);
        for mapping in mappings() {
            let (status, body) = world
                .request_until_answered(Method::POST, "/api/mappings", mapping)
                .await;
            assert_eq!(status, 200, "{body}");
        }
        drop(service);
        world
    }

    fn furnish(&self) {
        let town = &self.vendors;
        town.linear().set_quota(1_000_000);
        town.github().set_quota(1_000_000);
        let workflows = [
            (".github/workflows/agent-implement.yml", WORKFLOW),
            (".github/workflows/agent-plan.yml", PLANNING),
        ];
        let real = self.repo("shop");
        let readme = ("README.md", "# Shop\n");
        real.seed(&[workflows[0], workflows[1], readme], "Begin")
            .unwrap();
        let puppet = puppet_workflow(&self.gates_dir());
        let puppet = (".github/workflows/agent-implement.yml", puppet.as_str());
        self.repo("puppets")
            .seed(&[puppet, readme], "Begin")
            .unwrap();
        for name in ["shop", "puppets"] {
            let repo = self.repo(name);
            repo.allow_actions_to_open_pulls();
            repo.set_collaborator_role("mia", "maintain")
                .set_secret("ANTHROPIC_API_KEY", "sk-ant-sandbox-only");
            repo.set_webhook(&self.url("/api/repo-host/webhook"), WEBHOOK_SECRET);
        }
        std::fs::create_dir_all(self.gates_dir()).unwrap();
        std::fs::create_dir_all(self.dir.join("backups")).unwrap();
        let done = [
            ScriptStep::write("feature.txt", "done\n"),
            ScriptStep::message("Done."),
        ];
        let script = Script::new().pass(done);
        script.save(&town.scripts_dir(), "default").unwrap();
        tickets::set_up_vendors(town);
        let hooks = WebhookFaults {
            duplicate_rate: 0.15,
            retry_until_accepted: true,
            ..WebhookFaults::default()
        };
        town.github().set_webhook_faults(hooks);
        town.linear().set_webhook_faults(hooks);
        town.jira().set_webhook_faults(hooks);
        let hook = self.url("/api/ticketing-a/webhook");
        town.linear().set_webhook(&hook, WEBHOOK_SECRET);
        let hook = self.url("/api/ticketing-b/webhook");
        town.jira().set_webhook(&hook, WEBHOOK_SECRET);
    }

    pub fn record(&self) -> MutexGuard<'_, CrashRecord> {
        self.record.lock().unwrap()
    }

    /// What must not have happened.
    pub fn record_violation(&self, fault: String) {
        self.record().violations.push(fault);
    }

    pub fn repo(&self, name: &str) -> FakeRepo {
        self.vendors.github().repo("acme", name)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where the runs that this test plays wait for their end, each by its dispatch id.
    pub fn gates_dir(&self) -> PathBuf {
        self.dir.join("gates")
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("service.log")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Lets every vendor misbehave by chance, or (zero) no more.
    pub fn set_fault_rate(&self, chance: f64) {
        let dial = FaultRates {
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
        ] {
            self.vendors.faults(vendor).clear();
            self.vendors.faults(vendor).set_rates(dial.clone());
        }
    }

    /// Starts the service, to die at a visit of a place if one is named.
    pub fn start_service(&self, visit: Option<&str>) -> KillOnDrop {
        let mut log = self.opened_log();
        writeln!(log, "== started, to die at {visit:?}").unwrap();
        let mut serve = command(&["serve", "--quick", "--log-level=info"]);
        serve.args(self.flags());
        if let Some(visit) = visit {
            serve.args(["--crash-at", visit]);
        }
        serve.stdout(log.try_clone().unwrap()).stderr(log);
        KillOnDrop(serve.spawn().unwrap())
    }

    fn opened_log(&self) -> File {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .append(true)
            .open(self.log_file())
            .unwrap()
    }

    fn flags(&self) -> Vec<String> {
        let town = &self.vendors;
        let flags = [
            ("--port", self.port.to_string()),
            ("--data-dir", self.data_dir().display().to_string()),
            ("--poll-interval-ms", "1000".to_owned()),
            ("--runner-token-secret", TOKEN_SECRET.to_owned()),
            ("--runner-callback-base-url", self.url("")),
            ("--linear-api-key", town.linear().api_key()),
            ("--linear-api-url", town.linear_url()),
            ("--linear-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--jira-site-url", town.jira_url()),
            ("--jira-email", town.jira().email().to_owned()),
            ("--jira-api-token", town.jira().api_token().to_owned()),
            ("--jira-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--github-token", town.github().personal_token().to_owned()),
            ("--github-api-url", town.github_api_url()),
            ("--scm-webhook-secret", WEBHOOK_SECRET.to_owned()),
            ("--notify-webhook-url", town.slack_url()),
        ];
        let pair = |(flag, value): (&str, String)| [flag.to_owned(), value];
        flags.into_iter().flat_map(pair).collect()
    }

    /// A client of the control socket. Nothing is kept alive: who answers dies too often.
    pub fn control_client(&self) -> reqwest::Client {
        let client = reqwest::Client::builder().unix_socket(self.data_dir().join("control.sock"));
        let client = client.pool_max_idle_per_host(0);
        client.timeout(Duration::from_secs(20)).build().unwrap()
    }

    /// Asks the control socket until somebody answers.
    pub async fn request_until_answered(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let began = Instant::now();
        loop {
            if let Some(answer) = self.try_request(method.clone(), path, &body).await {
                return answer;
            }
            assert!(began.elapsed() < TIMEOUT, "nobody answers {path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// None when nobody answered to the end.
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
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let text = answer.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    /// What is owed and what was given up.
    pub async fn outbox_state(&self) -> (usize, Value) {
        let (_, shown) = self
            .request_until_answered(Method::GET, "/api/outbox", Value::Null)
            .await;
        let pending = shown["pending"].as_array().map_or(usize::MAX, Vec::len);
        (pending, shown["dead"].clone())
    }
}

/// A port that no client is given by chance, so that it is free again after each kill.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(15_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The real workflow's head, and a job that waits until its part has been played.
fn puppet_workflow(gates: &Path) -> String {
    let (head, _) = WORKFLOW.split_once("\njobs:\n").unwrap();
    let gate = gates.display();
    format!(
        "{head}\njobs:\n  implement:\n    runs-on: ubuntu-latest\n    steps:\n      - name: Wait\n        \
         run: 'while [ ! -e \"$GATE\" ]; do sleep 0.2; done'\n        env:\n          \
         GATE: {gate}/${{{{ inputs.dispatch_id }}}}\n"
    )
}

fn mappings() -> Vec<Value> {
    let mut all = Vec::new();
    for (team, repo, is_planned) in [
        ("ENG", "shop", false),
        ("PLAN", "shop", true),
        ("PUP", "puppets", false),
        (IDLE_TEAM, "shop", false),
        ("OPS", "shop", false),
        ("WAY", "shop", true),
        ("SIM", "puppets", false),
    ] {
        let mut mapping = json!({
            "teamKey": team, "owner": "acme", "repo": repo, "defaultBranch": "main",
            "ticketingProvider": "A", "maxInProgressAiIssues": if repo == "puppets" { 6 } else { 2 },
        });
        if is_planned {
            mapping["planningEnabled"] = json!(true);
            mapping["planningWorkflowFile"] = json!("agent-plan.yml");
        }
        if ["OPS", "WAY", "SIM"].contains(&team) {
            mapping["ticketingProvider"] = json!("B");
            mapping["ticketingConfig"] =
                json!({"kind": "B", "jql": format!("project = {team}"), "repoFieldValue": team});
        }
        all.push(mapping);
    }
    all
}
