//! `agent-implement serve`: the service.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};

use domain::machine::HostKind;
use engine::app::{App, AppOptions, Timings};
use engine::config::{Config, ConfigError, Options};
use engine::{ShutdownSignal, github_token};
use server::ControlSocket;
use store::Store;
use store::crash_injection::{CrashPlan, CrashTrigger};
use vendors::http::Redactor;

use super::DISK_FAILED;
use super::logging;
use super::service_manager::ServiceManagerNotifier;

/// How long may requests and effects under way go on after the signal to stop?
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// How long may the repository host take at the start to say what a plain token may do?
const TOKEN_DEADLINE: Duration = Duration::from_secs(5);

/// What the help says of secrets.
const SECRETS: &str = "A flag beats its variable. A secret may also stand in a file that NAME_FILE names, or be a systemd \
    credential called NAME: LINEAR_API_KEY_FILE=/etc/agent-implement/linear. A wrong value stops the start with \
    one message that lists everything that is wrong; --print-config shows what is in force.";

#[derive(Debug, clap::Args)]
#[command(after_help = SECRETS)]
pub struct ServeArgs {
    #[command(flatten)]
    options: Options,
    /// Print the configuration in force, secrets masked, and exit.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    trial: Trial,
}

/// What only tests of the program itself ask for: hidden from the help, and no variable sets it.
#[derive(Debug, clap::Args)]
struct Trial {
    /// Die at a named point, as kill -9 would.
    #[arg(long, hide = true)]
    crash_at: Option<CrashTrigger>,
    /// Move as fast as stand-in vendors allow.
    #[arg(long, hide = true)]
    quick: bool,
}

impl Trial {
    fn setting(self) -> AppOptions {
        AppOptions {
            timings: match self.quick {
                true => Timings::for_fake_vendors(),
                false => Timings::default(),
            },
            crash_plan: CrashPlan::new(self.crash_at),
            ..AppOptions::default()
        }
    }
}

pub async fn serve(arguments: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = Config::from_options(arguments.options)?;
    if arguments.print_config {
        for (name, value) in config.effective() {
            println!("{name}={value}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let setting = arguments.trial.setting();
    let store = Store::open_with_crash_plan(&config.data_dir, setting.crash_plan.clone())?;
    let redactor = Redactor::new(config.secrets());
    let _logging = logging::start(&config, &config.log_level, &redactor)?;
    for notice in &config.notices.unknown_names {
        tracing::warn!(notice, "Unknown setting.");
    }
    server::raise_descriptor_limit();
    let listener = server::bind(config.listen).with_context(|| {
        format!(
            "listening on {} (is another service using the port?)",
            config.listen
        )
    })?;
    let app = App::new(config, store, setting).map_err(anyhow::Error::msg)?;
    refuse_workflow_token(&app).await?;
    summarise(&app, &listener);
    run(app, listener, told_to_stop()?).await
}

/// Runs engine and HTTP until `stop` resolves or the store is lost.
pub async fn run(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<ExitCode> {
    let supervision = ServiceManagerNotifier::connect(app.config.supervisor.as_ref());
    let (hand, signal) = ShutdownSignal::new();
    let control = open_control(&app);
    let mut engine = tokio::spawn(engine::run(app.clone(), signal.clone()));
    let told = signal.clone();
    let mut serving = tokio::spawn(server::serve(app.clone(), listener, async move {
        told.requested().await
    }));
    let controlled = tokio::spawn(serve_control(app.clone(), control, signal));
    supervision.notify_ready();
    let code = tokio::select! {
        () = stop => ExitCode::SUCCESS,
        // What the last commit did is known only to the next process.
        () = app.store.failed() => ExitCode::from(DISK_FAILED),
        // Half a service is none: whoever started us starts a whole one.
        ended = &mut engine => ended_early("The engine", ended.err()),
        ended = &mut serving => ended_early("The HTTP server", ended.err()),
        never = supervision.report_periodically(&app) => match never {},
    };
    tracing::info!("Stopping.");
    supervision.notify_stopping();
    let _ = hand.send(true);
    let rest = async { tokio::join!(finish(engine), finish(serving), finish(controlled)) };
    let _ = tokio::time::timeout(STOP_DEADLINE, rest).await;
    Ok(code)
}

/// Refuses a plain token that may change workflows. A host that does not answer now is no reason not to
/// start: no run is handed the token before it has been asked.
async fn refuse_workflow_token(app: &App) -> Result<(), ConfigError> {
    let asked = tokio::time::timeout(TOKEN_DEADLINE, github_token::is_refused(app)).await;
    match asked {
        Ok(Ok(true)) => Err(ConfigError::single(github_token::REFUSAL_MESSAGE)),
        _ => Ok(()),
    }
}

fn ended_early(what: &str, panic: Option<JoinError>) -> ExitCode {
    let cause = panic.map(|error| error.to_string());
    tracing::error!(cause, "{what} has ended by itself.");
    ExitCode::FAILURE
}

/// Waits for a task whose end nobody has seen yet.
async fn finish<T>(task: JoinHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}

/// Lets the owner of the data directory operate. A directory that cannot hold a socket is no reason
/// not to work.
fn open_control(app: &App) -> Option<ControlSocket> {
    let dir = &app.config.data_dir;
    ControlSocket::open(dir)
        .inspect_err(|error| {
            tracing::error!(dir = %dir.display(), %error, "There is no control socket: the commands why, doctor and backup work only while the service is stopped.");
        })
        .ok()
}

/// Serves the control socket, where there is one.
async fn serve_control(app: App, control: Option<ControlSocket>, stop: ShutdownSignal) {
    if let Some(control) = control {
        // What was cut off at the stop is said by whoever asked for it.
        let _ = server::serve_control(app, control, async move { stop.requested().await }).await;
    }
}

fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Says once what is switched on, and for what is not, what it would take.
fn summarise(app: &App, listener: &TcpListener) {
    let address = listener
        .local_addr()
        .map(|address| address.to_string())
        .unwrap_or_default();
    let on = |set: bool, how: &'static str| if set { "on" } else { how };
    let config = &app.config;
    tracing::info!(
        address,
        data_dir = %config.data_dir.display(),
        admin = on(config.admin_access_code.is_some(), "off (set ADMIN_ACCESS_CODE)"),
        linear = on(config.linear.is_some(), "off (set LINEAR_API_KEY)"),
        jira = on(config.jira.is_some(), "off (set JIRA_SITE_URL, JIRA_EMAIL and JIRA_API_TOKEN)"),
        github = on(config.github.is_some(), "off (set GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY)"),
        callbacks = on(config.has_callbacks(), "off (set RUNNER_CALLBACK_BASE_URL and RUNNER_TOKEN_SECRET)"),
        webhook = on(config.scm_webhook_secret.is_some(), "off (set SCM_WEBHOOK_SECRET)"),
        linear_webhook = on(config.linear_webhook_secret.is_some(), "off (set LINEAR_WEBHOOK_SECRET)"),
        jira_webhook = on(config.jira_webhook_secret.is_some(), "off (set JIRA_WEBHOOK_SECRET)"),
        vm_sessions = on(app.sessions.has_host(HostKind::Vm), "off (set VM_SESSIONS_TOKEN and VM_SESSIONS_APP)"),
        local_containers = on(app.sessions.has_host(HostKind::Local), "off (set DOCKER_HOST)"),
        chat = on(config.chat.is_some(), "off (set NOTIFY_WEBHOOK_URL)"),
        version = env!("CARGO_PKG_VERSION"),
        "Agent Implement is running."
    );
}
