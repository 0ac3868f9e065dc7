//! `agent-implement demo`: the whole story on one machine, with nothing configured.
//!
//! Stand-in vendors, the real service and real runs, all on loopback. Killed at any moment and
//! started again in the same folder, it goes on where it was.

mod outcomes;
mod progress;
mod saved_state;
mod tickets;

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use domain::ids::Repo;
use domain::mapping::{Mapping, MappingInput, PLAN_WORKFLOW};
use domain::runner_mode::RunnerMode;
use domain::secret::Secret;
use domain::templates::{self, SyncPolicy, Template};
use domain::time::Timestamp;
use engine::app::{App, AppOptions, Timings};
use engine::config::{
    ChatConfig, Config, ContainerEngine, ContainersConfig, GitHubAuthConfig, GitHubConfig,
    JiraAuthConfig, JiraConfig, LinearAuthConfig, LinearConfig, LogFormat, MetricsConfig, Notices,
    ProxyConfig, ReaperConfig, VmSessionsConfig,
};
use fake_vendors::demo::{self, Tracker};
use fake_vendors::{FakeVendors, FakeVendorsOptions};
use run::StopSignal;
use store::crash_injection::{CrashPlan, CrashTrigger};
use store::{Store, mappings};
use vendors::chat::ChatKind;
use vendors::http::Redactor;

use super::{logging, serve};
use progress::{DemoProgress, DemoResult};
use saved_state::DemoState;
use tickets::DemoTickets;

/// How long may the demo take to become idle before it is called stuck?
const PATIENCE: Duration = Duration::from_secs(300);

/// How often is it tried to remove the demo's folder, and after which pause?
const CLEARING_ROUNDS: u32 = 40;
const CLEARING_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The ticketing system that the tickets are filed in.
    #[arg(long, value_enum, default_value_t)]
    system: Tracker,
    /// Where the runs execute: as workflows, in virtual machines, or in containers of this machine.
    #[arg(long, value_enum, default_value_t)]
    runner: Runner,
    /// Folder to keep everything in, to go on in it later; unset uses one that is removed at the end.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Exit once nothing is left to do: 0 when every ticket came to the end that its story has, 1 with
    /// the reason when one did not.
    #[arg(long)]
    exit_when_idle: bool,
    /// What is logged to standard error: error, warn, info, debug or trace.
    #[arg(long, default_value = "warn")]
    log_level: String,
    /// Die at a named point, as kill -9 would; for crash tests.
    #[arg(long, hide = true)]
    crash_at: Option<CrashTrigger>,
}

/// Where the demo's runs execute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Runner {
    #[default]
    Ci,
    Vm,
    Local,
}

impl Runner {
    fn mode(self) -> RunnerMode {
        match self {
            Runner::Ci => RunnerMode::Ci,
            Runner::Vm => RunnerMode::Vm,
            Runner::Local => RunnerMode::Local,
        }
    }
}

pub async fn demo(arguments: DemoArgs) -> anyhow::Result<ExitCode> {
    // Before there is anything that could be left behind.
    let stop = StopSignal::listen()?;
    let place = DemoDir::find(arguments.data_dir.as_deref())?;
    let done = play(arguments, &place, &stop).await;
    place.clear().await;
    done
}

async fn play(arguments: DemoArgs, place: &DemoDir, stop: &StopSignal) -> anyhow::Result<ExitCode> {
    let dir = place.dir.as_path();
    let keepsake = DemoState::open(dir, arguments.system)?;
    let town = found_town(dir, keepsake.tracker).await?;
    let listener = TcpListener::bind(("127.0.0.1", keepsake.port))
        .await
        .with_context(|| {
            format!(
                "listening on port {} again, where runs of this folder report",
                keepsake.port
            )
        })?;
    let port = listener.local_addr()?.port();
    keepsake.save(dir, port)?;

    let config = Config {
        runner_mode: Some(arguments.runner.mode()),
        ..config(dir, &town, &keepsake, port)
    };
    let redactor = Redactor::new(config.secrets());
    let _logging = logging::start(&config, &arguments.log_level, &redactor)?;
    let crash = CrashPlan::new(arguments.crash_at);
    let store = Store::open_with_crash_plan(&config.data_dir, crash.clone())?;
    let setting = AppOptions {
        timings: Timings::for_fake_vendors(),
        crash_plan: crash,
        ..AppOptions::default()
    };
    let app = App::new(config, store, setting).map_err(anyhow::Error::msg)?;
    map_project(&app, keepsake.tracker).await?;

    let board = DemoTickets::new(town.clone(), keepsake.tracker);
    let narrator = DemoProgress::new(app.clone(), town.clone(), board);
    narrator.print_introduction(port, &keepsake.access_code, place);
    let told = async {
        let told = async {
            match arguments.exit_when_idle {
                true => narrator.follow_until_idle(PATIENCE).await,
                false => narrator.follow().await,
            }
        };
        tokio::select! {
            ending = told => ending,
            _ = stop.wait() => DemoResult::Interrupted,
        }
    };
    let (end, ended) = tokio::sync::oneshot::channel();
    let until_told = async move {
        // The serving half only has to know when; the answer goes to the caller below.
        let _ = end.send(told.await);
    };
    let served = serve::run(app, listener, until_told).await;
    match place.lent {
        Some(_) => town.stop_and_kill_runs().await,
        // Its runs go on, and are found again by who comes back to the folder.
        None => town.stop().await,
    }
    let code = served?;
    if let Some(code) = stop.exit_code() {
        return Ok(ExitCode::from(code));
    }
    Ok(match ended.await {
        Ok(ending) => ending.tell(),
        Err(_) => code,
    })
}

/// Where everything is kept.
struct DemoDir {
    dir: PathBuf,
    /// Removes the folder at the end when it was only lent.
    lent: Option<tempfile::TempDir>,
}

impl DemoDir {
    fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(dir) = given {
            std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
            let dir = dir.canonicalize()?;
            return Ok(Self { dir, lent: None });
        }
        let lent = tempfile::Builder::new()
            .prefix("agent-implement-demo-")
            .tempdir()?;
        Ok(Self {
            dir: lent.path().to_owned(),
            lent: Some(lent),
        })
    }

    /// Removes a lent folder. Processes that were killed in it may write a last time.
    async fn clear(self) {
        if self.lent.is_none() {
            return;
        }
        for _ in 0..CLEARING_ROUNDS {
            let _ = std::fs::remove_dir_all(&self.dir);
            if !self.dir.exists() {
                break;
            }
            tokio::time::sleep(CLEARING_PAUSE).await;
        }
    }
}

impl fmt::Display for DemoDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = if self.lent.is_some() {
            " until the end"
        } else {
            ""
        };
        write!(f, "{}{until}", self.dir.display())
    }
}

async fn found_town(dir: &Path, tracker: Tracker) -> anyhow::Result<FakeVendors> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let town = FakeVendors::start(FakeVendorsOptions::new(dir.join("town"), program)).await?;
    let workflows = workflows(tracker)?;
    let workflows: Vec<(&str, &str)> = workflows
        .iter()
        .map(|one| (one.path.as_str(), one.text.as_str()))
        .collect();
    demo::seed_demo(&town, tracker, &workflows)?;
    Ok(town)
}

/// The workflows as a sync would leave them in the demo's repository; the stand-in host reads them as
/// the real one would.
fn workflows(tracker: Tracker) -> anyhow::Result<Vec<Template>> {
    let projects = projects(tracker, Timestamp::EPOCH)?;
    let repo = Repo::new(demo::DEMO_OWNER, demo::DEMO_REPO);
    let mut all = templates::desired_templates(&repo, &projects, None)?;
    all.retain(|template| template.sync_policy == SyncPolicy::Managed);
    Ok(all)
}

fn config(dir: &Path, town: &FakeVendors, keepsake: &DemoState, port: u16) -> Config {
    let address = format!("http://127.0.0.1:{port}");
    let hook_secret = keepsake.webhook_secret.as_ref().map(Secret::new);
    Config {
        listen: ([127, 0, 0, 1], port).into(),
        data_dir: dir.join("data"),
        custom_dir: dir.join("custom"),
        admin_access_code: Some(Secret::new(&keepsake.access_code)),
        poll_interval: Duration::from_secs(1),
        callback_base_url: Some(address),
        runner_token_secret: Some(Secret::new(&keepsake.token_secret)),
        scm_webhook_secret: hook_secret.clone(),
        linear_webhook_secret: hook_secret.clone(),
        jira_webhook_secret: hook_secret.clone(),
        gap_fill_trigger_secret: hook_secret,
        linear: (keepsake.tracker == Tracker::Linear).then(|| linear(town)),
        jira: (keepsake.tracker == Tracker::Jira).then(|| jira(town)),
        github: Some(GitHubConfig {
            credentials: GitHubAuthConfig::Token(Secret::new(town.github().personal_token())),
            api_url: town.github_api_url(),
        }),
        session_image: None,
        vm_sessions: VmSessionsConfig {
            token: Some(Secret::new(town.fly().token())),
            app: Some(town.fly().app().to_owned()),
            region: None,
            api_url: town.fly_url(),
        },
        containers: ContainersConfig {
            engine: ContainerEngine::Http(town.docker_url()),
            is_explicit: true,
            image: town.docker().image().to_owned(),
        },
        model_keys: vec![("ANTHROPIC_API_KEY", Secret::new("sk-ant-sandbox-only"))],
        chat: Some(ChatConfig {
            url: Secret::new(town.slack_url()),
            kind: ChatKind::Slack,
        }),
        dedup_window: Some(Duration::from_secs(24 * 60 * 60)),
        breaker_threshold: Some(3),
        secrets_key: None,
        runner_mode: None,
        image_prefixes: Vec::new(),
        reaper: ReaperConfig {
            dry_run: false,
            alert_threshold: None,
        },
        trusted_proxies: Vec::new(),
        proxy: ProxyConfig::default(),
        supervisor: None,
        metrics: MetricsConfig {
            enabled: true,
            token: None,
        },
        log_format: LogFormat::Text,
        log_level: "warn".to_owned(),
        log_keep_days: 14,
        allow_plain_http: false,
        allow_workflow_token: false,
        notices: Notices::default(),
    }
}

fn linear(town: &FakeVendors) -> LinearConfig {
    LinearConfig {
        credentials: LinearAuthConfig::Key(Secret::new(town.linear().api_key())),
        api_url: town.linear_url(),
    }
}

fn jira(town: &FakeVendors) -> JiraConfig {
    JiraConfig {
        credentials: JiraAuthConfig::Basic {
            email: town.jira().email().to_owned(),
            token: Secret::new(town.jira().api_token()),
        },
        site_url: Some(town.jira_url()),
        api_url: town.jira_url(),
    }
}

/// Maps the demo's teams or projects to their repository, once, as an operator would.
async fn map_project(app: &App, tracker: Tracker) -> anyhow::Result<()> {
    let mapped = projects(tracker, app.now())?;
    app.store
        .write(move |tx| {
            for mapping in &mapped {
                if mappings::get(tx, &mapping.team_key)?.is_none() {
                    mappings::put(tx, mapping)?;
                }
            }
            Ok(())
        })
        .await?;
    Ok(())
}

fn projects(tracker: Tracker, now: Timestamp) -> anyhow::Result<Vec<Mapping>> {
    let plain = mapping(tracker, demo::DEMO_TEAM);
    let mut planned = mapping(tracker, demo::DEMO_PLANNING_TEAM);
    planned["planningEnabled"] = json!(true);
    planned["planningWorkflowFile"] = json!(PLAN_WORKFLOW);
    let valid = |body| Ok(MappingInput::read(body)?.validate(None, now)?);
    [plain, planned].into_iter().map(valid).collect()
}

fn mapping(tracker: Tracker, team: &str) -> Value {
    let mut mapping = json!({
        "teamKey": team,
        "owner": demo::DEMO_OWNER,
        "repo": demo::DEMO_REPO,
        "defaultBranch": "main",
    });
    match tracker {
        Tracker::Linear => mapping["ticketingProvider"] = json!("A"),
        Tracker::Jira => {
            mapping["ticketingProvider"] = json!("B");
            mapping["ticketingConfig"] = json!({
                "kind": "B", "jql": format!("project = {team}"), "repoFieldValue": demo::DEMO_REPO,
            });
        }
    }
    mapping
}

impl DemoResult {
    /// Says how it ended and answers the exit code.
    fn tell(self) -> ExitCode {
        match self {
            DemoResult::Expected | DemoResult::Interrupted | DemoResult::OutputClosed => {
                ExitCode::SUCCESS
            }
            DemoResult::Unexpected(reason) => {
                // The reader closed the pipe, and reads the exit code.
                let _ = writeln!(
                    std::io::stderr(),
                    "agent-implement: the demo did not end as its story does: {reason}"
                );
                ExitCode::FAILURE
            }
        }
    }
}
