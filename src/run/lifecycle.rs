//! Lifecycle of a run: preparation, pipeline, teardown and result.
//!
//! A panic, a stop signal and the time limit are handled like other failures: open steps are ended
//! and the result is reported.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::time::sleep_until;

use super::agent;
use super::console::Console;
use super::context::RunContext;
use super::environment::Environment;
use super::executor;
use super::failure::RunFailure;
use super::keep_alive;
use super::orchestrator_client;
use super::orphan_processes::{self, OrphanProcesses};
use super::prepare::{self, RunServices};
use super::print::print_line;
use super::progress::ProgressReporter;
use super::random::random_hex;
use super::status_reporter::StatusReporter;
use super::steps;
use super::stop_signal::StopSignal;
use super::text;
use domain::limits;
use domain::report::{FailureCode, ResultReport, RunComment, RunOutcome, RunPhase};
use domain::run_config::{RunCallback, RunConfig};
use domain::secret::Secret;
use domain::session_event::SessionEvent;
use pipeline::PipelineDefinition;
use vendors::http::{Client, Redactor};

/// Maximum length of the agent's last message in the result, in bytes.
const MAX_LAST_MESSAGE: usize = 4_000;

/// Executes a run and reports its result. The exit code is 0 on success, and 128 plus the signal number
/// after a stop signal.
pub async fn run(environment: Environment) -> ExitCode {
    let hardened = harden(environment.orphan_processes).and_then(|()| StopSignal::listen());
    let stop = match hardened {
        Ok(stop) => stop,
        Err(error) => {
            print_line(&format!(
                "Cannot protect the run from its child processes: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let (config, config_error) = match RunConfig::from_inputs(&environment.inputs) {
        Ok(config) => (Some(config), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let phase = environment.inputs.get("phase");
    let phase = phase.and_then(|phase| RunPhase::parse(phase));
    let phase = phase.unwrap_or(RunPhase::Implementation);
    let callback = config.as_ref().map_or_else(
        || callback_from_inputs(&environment),
        |config| config.callback.clone(),
    );
    let secrets = secrets(&environment, callback.as_ref());
    let redactor = Redactor::new(secrets.iter().map(Secret::expose));
    let client = match Client::with_proxies(&environment.proxies, "orchestrator", redactor.clone())
    {
        Ok(client) => client,
        Err(error) => {
            print_line(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let progress = ProgressReporter::default();
    let sender = callback
        .as_ref()
        .map(|callback| progress.start(client.clone(), callback, environment.run_id));
    let console = if environment.is_ci {
        Console::for_ci(redactor, progress.clone(), random_hex())
    } else {
        Console::plain(redactor, progress.clone())
    };
    let url = callback.as_ref().map(|callback| callback.url.as_str());
    let (status_reporter, status_task) =
        StatusReporter::start(client.clone(), url, environment.nonce.clone());
    let run_id = environment.run_id;
    let mut report = match (config, config_error) {
        (Some(config), _) => {
            let services = RunServices {
                client: client.clone(),
                console: console.clone(),
                progress: progress.clone(),
                status_reporter,
                secrets,
                stop_signal: stop.clone(),
            };
            Box::pin(execute(environment, config, services)).await
        }
        (None, config_error) => {
            let failure = RunFailure::other(config_error.unwrap_or_default());
            status_reporter.report(&error_event(&failure));
            drop(status_reporter);
            failed(phase, &failure)
        }
    };
    report.run_id = run_id;
    let reporting = async {
        if sender.is_some() {
            progress.flush().await;
        }
        status_task.flush().await;
        report_result(&client, callback.as_ref(), &report, &console).await;
    };
    tokio::select! {
        () = reporting => {}
        () = stop.wait_grace_period() => console.log("Run stopped before its result was accepted"),
    }
    match (stop.exit_code(), report.outcome) {
        (Some(code), _) => ExitCode::from(code),
        (None, RunOutcome::Success) => ExitCode::SUCCESS,
        (None, RunOutcome::Failure) => ExitCode::FAILURE,
    }
}

/// Denies other processes of the user access to memory and environment of this process, and adopts
/// orphans.
fn harden(orphans: OrphanProcesses) -> std::io::Result<()> {
    if orphans == OrphanProcesses::Leave {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    orphan_processes::become_subreaper()
}

/// Prepares the run, executes its pipeline and returns the result.
async fn execute(
    environment: Environment,
    config: RunConfig,
    services: RunServices,
) -> ResultReport {
    let phase = config.phase;
    let console = services.console.clone();
    let status_reporter = services.status_reporter.clone();
    let prepared = prepare::prepare(environment, config, services);
    let (mut run, definition) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let failure = redacted(&console, failure);
            status_reporter.report(&error_event(&failure));
            return failed(phase, &failure);
        }
    };
    let definition = keep_alive::effective_pipeline(&run, definition);
    let result = execute_pipeline(&mut run, &definition).await;
    let result = result.and_then(|()| require_pull(&run));
    let result = match keep_alive::reason(&run, &result) {
        Some(reason) => keep_alive::keep_session(&mut run, reason, result).await,
        None => result,
    };
    let stop = run.stop_signal.clone();
    tokio::select! {
        biased;
        // A stop signal leaves no time for teardown.
        _ = stop.wait() => {}
        () = steps::tear_down(&mut run) => {}
    }
    // No process may outlive the run.
    let _ = orphan_processes::kill_all(run.orphan_processes).await;
    let mut report = match result {
        Ok(()) => succeeded(&run),
        Err(failure) => {
            executor::end_open_steps(&mut run, "failed", &failure.reason);
            let failure = redacted(&console, failure);
            // The orchestrator reports a later retry and the time limit itself.
            let is_reported_by_orchestrator =
                failure.retry_at.is_some() || failure.code == Some(FailureCode::TimedOut);
            if !is_reported_by_orchestrator {
                status_reporter.report(&error_event(&failure));
            }
            ResultReport {
                last_agent_message: last_agent_message(&run),
                ..failed(phase, &failure)
            }
        }
    };
    report.usage = Some(run.progress.usage_meter().total());
    report.patch = run.state.patch.as_ref().map(|patch| console.redact(patch));
    let pull = run.state.pull.as_ref().map(|pull| pull.url.clone());
    // A shadow run has a branch instead of a pull request.
    report.pr_url = pull.or_else(|| run.state.shadow_url.clone());
    report.unresolved = run
        .state
        .unresolved
        .iter()
        .map(|finding| executor::sanitize(&run, finding))
        .collect();
    report
}

/// Fails an implementation run without a pull request, which a custom pipeline can cause.
fn require_pull(run: &RunContext) -> Result<(), RunFailure> {
    let has_none = run.state.pull.is_none() && run.state.shadow_url.is_none();
    if run.config.phase == RunPhase::Implementation && has_none {
        return Err(RunFailure::other(
            "the run ended without opening a pull request",
        ));
    }
    Ok(())
}

/// Executes the pipeline until it ends, panics, is stopped or reaches the time limit.
async fn execute_pipeline(
    run: &mut RunContext,
    definition: &PipelineDefinition,
) -> Result<(), RunFailure> {
    let (deadline, stop) = (run.deadline, run.stop_signal.clone());
    tokio::select! {
        result = catch_panic(Box::pin(executor::execute(run, definition))) => result.unwrap_or_else(|panic| {
            let message = panic_message(panic.as_ref());
            Err(RunFailure::other(format!("the run panicked: {message}")))
        }),
        _ = stop.wait() => Err(RunFailure::stopped()),
        () = sleep_until(deadline) => Err(RunFailure::out_of_time()),
    }
}

/// Drives a future and returns a panic in it as an error.
async fn catch_panic<T>(
    mut future: impl Future<Output = T> + Unpin,
) -> Result<T, Box<dyn Any + Send>> {
    std::future::poll_fn(move |context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            std::pin::Pin::new(&mut future).poll(context)
        }));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Returns every secret of the environment, for redaction.
fn secrets(environment: &Environment, callback: Option<&RunCallback>) -> Vec<Secret> {
    let keys = environment
        .direct_keys
        .iter()
        .chain(&environment.cloud_keys);
    keys.filter(|(name, _)| !agent::is_base_url(name))
        .map(|(_, key)| key.clone())
        .chain(environment.workflow_token.clone())
        .chain(environment.nonce.clone())
        .chain(environment.secrets.clone())
        .chain(
            callback
                .into_iter()
                .flat_map(|callback| [callback.run_token.clone(), callback.progress_token.clone()]),
        )
        .collect()
}

/// Returns the callback from the raw inputs, so that an invalid configuration can be reported too.
fn callback_from_inputs(environment: &Environment) -> Option<RunCallback> {
    let input = |name: &str| environment.inputs.get(name).filter(|text| !text.is_empty());
    Some(RunCallback {
        url: input("callback_url")?.clone(),
        run_token: Secret::new(input("run_token")?),
        progress_token: Secret::new(input("run_progress_token")?),
    })
}

fn succeeded(run: &RunContext) -> ResultReport {
    let unapproved = !run.state.unresolved.is_empty();
    ResultReport {
        phase: run.config.phase,
        outcome: RunOutcome::Success,
        pr_url: None,
        comments: comments(run),
        failure_reason: None,
        failure_code: unapproved.then_some(FailureCode::ReviewUnapproved),
        last_agent_message: None,
        retry_at: None,
        unresolved: Vec::new(),
        usage: None,
        patch: None,
        run_id: None,
    }
}

/// Returns the sanitized ticket comments.
fn comments(run: &RunContext) -> Vec<RunComment> {
    let comment = |body: &String| RunComment {
        body: text::truncate(&run.console.sanitize(body), limits::MAX_COMMENT_BYTES),
    };
    run.state.ticket_comments.iter().map(comment).collect()
}

/// Returns the sanitized last message of the agent.
fn last_agent_message(run: &RunContext) -> Option<String> {
    let message = text::truncate(&run.console.sanitize(&run.state.summary), MAX_LAST_MESSAGE);
    Some(message).filter(|message| !message.trim().is_empty())
}

fn failed(phase: RunPhase, failure: &RunFailure) -> ResultReport {
    ResultReport {
        phase,
        outcome: RunOutcome::Failure,
        pr_url: None,
        comments: Vec::new(),
        failure_reason: Some(failure.reason.clone()),
        failure_code: failure.code,
        last_agent_message: None,
        retry_at: failure.retry_at,
        unresolved: Vec::new(),
        usage: None,
        patch: None,
        run_id: None,
    }
}

fn error_event(failure: &RunFailure) -> SessionEvent {
    SessionEvent::Error {
        reason: failure.reason.clone(),
    }
}

fn redacted(console: &Console, failure: RunFailure) -> RunFailure {
    RunFailure {
        reason: console.sanitize(&failure.reason),
        ..failure
    }
}

/// Logs the result and reports it to the orchestrator.
async fn report_result(
    client: &Client,
    callback: Option<&RunCallback>,
    report: &ResultReport,
    console: &Console,
) {
    match &report.failure_reason {
        None => console.log("Run succeeded"),
        Some(reason) => {
            console.log("Run failed");
            reason.lines().for_each(|line| console.log(line));
        }
    }
    let Some(callback) = callback else {
        return;
    };
    if let Err(error) = orchestrator_client::report_result(client, callback, report).await {
        console.log(&format!("Failed to report the result: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_a_panic_as_an_error() {
        let result = catch_panic(Box::pin(async {
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "out of luck");
        }))
        .await;
        assert!(panic_message(result.unwrap_err().as_ref()).contains("out of luck"));
        let result = catch_panic(Box::pin(async { 7 })).await;
        assert_eq!(result.ok(), Some(7));
    }
}
