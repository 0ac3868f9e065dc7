//! From the environment to the result: setting a run up, seeing it through, telling how it ended.
//!
//! A panic, a signal to stop and the end of the run's time are ends like others: the step that was
//! at work is closed and the result is reported.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::time::sleep_until;

use super::agent;
use super::console::{Console, print_line};
use super::context::{RunContext, RunFailure};
use super::environment::Environment;
use super::executor;
use super::keep_alive;
use super::orchestrator_client;
use super::orphan_processes::{self, OrphanProcesses};
use super::prepare::{self, RunServices};
use super::progress::ProgressReporter;
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

/// Longest repeat of what the agent said last, in bytes.
const MAX_LAST_WORDS: usize = 4_000;

/// Sees one run through and reports its result. The exit code is 0 when it was a success.
pub async fn run(environment: Environment) -> ExitCode {
    let shielded = harden(environment.orphan_processes).and_then(|()| StopSignal::listen());
    let stop = match shielded {
        Ok(stop) => stop,
        Err(error) => {
            print_line(&format!(
                "the run cannot shield itself from its children: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let (config, unfit) = match RunConfig::from_inputs(&environment.inputs) {
        Ok(config) => (Some(config), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let phase = environment.inputs.get("phase");
    let phase = phase.and_then(|phase| RunPhase::parse(phase));
    let phase = phase.unwrap_or(RunPhase::Implementation);
    let callback = config.as_ref().map_or_else(
        || bare_callback(&environment),
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
        Console::for_ci(redactor, progress.clone(), super::random_hex())
    } else {
        Console::plain(redactor, progress.clone())
    };
    let url = callback.as_ref().map(|callback| callback.url.as_str());
    let (herald, sending) = StatusReporter::start(client.clone(), url, environment.nonce.clone());
    let run_id = environment.run_id;
    let mut report = match (config, unfit) {
        (Some(config), _) => {
            let setting = RunServices {
                client: client.clone(),
                console: console.clone(),
                progress: progress.clone(),
                status_reporter: herald,
                secrets,
                stop_signal: stop.clone(),
            };
            Box::pin(see_through(environment, config, setting)).await
        }
        (None, unfit) => {
            let failure = RunFailure::other(unfit.unwrap_or_default());
            herald.report(&broken(&failure));
            drop(herald);
            failed(phase, &failure)
        }
    };
    report.run_id = run_id;
    let telling = async {
        if sender.is_some() {
            progress.flush().await;
        }
        sending.flush().await;
        tell(&client, callback.as_ref(), &report, &console).await;
    };
    tokio::select! {
        () = telling => {}
        () = stop.wait_grace_period() => console.log("the run was stopped before its result was taken"),
    }
    match (stop.exit_code(), report.outcome) {
        (Some(code), _) => ExitCode::from(code),
        (None, RunOutcome::Success) => ExitCode::SUCCESS,
        (None, RunOutcome::Failure) => ExitCode::FAILURE,
    }
}

/// No other process of the same user may read our memory or environment; orphans become ours.
fn harden(strays: OrphanProcesses) -> std::io::Result<()> {
    if strays == OrphanProcesses::Leave {
        return Ok(());
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    orphan_processes::become_subreaper()
}

async fn see_through(
    environment: Environment,
    config: RunConfig,
    setting: RunServices,
) -> ResultReport {
    let phase = config.phase;
    let console = setting.console.clone();
    let herald = setting.status_reporter.clone();
    let prepared = prepare::prepare(environment, config, setting);
    let (mut run, definition) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            let failure = redacted(&console, failure);
            herald.report(&broken(&failure));
            return failed(phase, &failure);
        }
    };
    let definition = keep_alive::effective_pipeline(&run, definition);
    let ended = guarded(&mut run, &definition).await;
    let ended = ended.and_then(|()| delivered(&run));
    let ended = match keep_alive::reason(&run, &ended) {
        Some(kept) => keep_alive::keep_session(&mut run, kept, ended).await,
        None => ended,
    };
    let stop = run.stop_signal.clone();
    tokio::select! {
        biased;
        // Whoever stops a run leaves it no time to tidy up.
        _ = stop.wait() => {}
        () = steps::tear_down(&mut run) => {}
    }
    // Nothing of the work may outlive it.
    let _ = orphan_processes::kill_all(run.orphan_processes).await;
    let mut report = match ended {
        Ok(()) => succeeded(&run),
        Err(failure) => {
            executor::end_open_steps(&mut run, "failed", &failure.reason);
            let failure = redacted(&console, failure);
            // What goes on later has not failed for good, and the end of the time has words of its own;
            // the orchestrator has them.
            let is_told_there =
                failure.retry_at.is_some() || failure.code == Some(FailureCode::TimedOut);
            if !is_told_there {
                herald.report(&broken(&failure));
            }
            ResultReport {
                last_agent_message: last_words(&run),
                ..failed(phase, &failure)
            }
        }
    };
    report.usage = Some(run.progress.usage_meter().total());
    report.patch = run.state.patch.as_ref().map(|patch| console.redact(patch));
    let pull = run.state.pull.as_ref().map(|pull| pull.url.clone());
    // The branch of a shadow stands in place of its pull request.
    report.pr_url = pull.or_else(|| run.state.shadow_url.clone());
    report.unresolved = run
        .state
        .unresolved
        .iter()
        .map(|finding| executor::sanitize(&run, finding))
        .collect();
    report
}

/// An implementation is its pull request; a pipeline of an operator's own may have opened none.
fn delivered(run: &RunContext) -> Result<(), RunFailure> {
    let nothing = run.state.pull.is_none() && run.state.shadow_url.is_none();
    let owed = run.config.phase == RunPhase::Implementation && nothing;
    if owed {
        return Err(RunFailure::other(
            "the run ended without opening a pull request",
        ));
    }
    Ok(())
}

/// The pipeline, with everything that may cut it short.
async fn guarded(run: &mut RunContext, definition: &PipelineDefinition) -> Result<(), RunFailure> {
    let (deadline, stop) = (run.deadline, run.stop_signal.clone());
    tokio::select! {
        ended = caught(Box::pin(executor::execute(run, definition))) => ended.unwrap_or_else(|panic| {
            Err(RunFailure::other(format!("the run broke down: {}", words(panic.as_ref()))))
        }),
        _ = stop.wait() => Err(RunFailure::stopped()),
        () = sleep_until(deadline) => Err(RunFailure::out_of_time()),
    }
}

/// Drives a future; a panic in it is a value.
async fn caught<T>(mut future: impl Future<Output = T> + Unpin) -> Result<T, Box<dyn Any + Send>> {
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

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Everything in the environment that must not be seen.
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

/// The way back of a run whose other inputs are unfit: even that must be told.
fn bare_callback(environment: &Environment) -> Option<RunCallback> {
    let given = |name: &str| environment.inputs.get(name).filter(|text| !text.is_empty());
    Some(RunCallback {
        url: given("callback_url")?.clone(),
        run_token: Secret::new(given("run_token")?),
        progress_token: Secret::new(given("run_progress_token")?),
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

/// What the run wants said on its ticket, as it may leave the run.
fn comments(run: &RunContext) -> Vec<RunComment> {
    let comment = |body: &String| RunComment {
        body: text::truncate(&run.console.sanitize(body), limits::MAX_COMMENT_BYTES),
    };
    run.state.ticket_comments.iter().map(comment).collect()
}

/// What the agent said last, as it may leave the run.
fn last_words(run: &RunContext) -> Option<String> {
    let said = text::truncate(&run.console.sanitize(&run.state.summary), MAX_LAST_WORDS);
    Some(said).filter(|said| !said.trim().is_empty())
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

/// What a session says of its failure.
fn broken(failure: &RunFailure) -> SessionEvent {
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

async fn tell(
    client: &Client,
    callback: Option<&RunCallback>,
    report: &ResultReport,
    console: &Console,
) {
    match &report.failure_reason {
        None => console.log("the run succeeded"),
        Some(reason) => {
            console.log("the run failed");
            reason.lines().for_each(|line| console.log(line));
        }
    }
    let Some(callback) = callback else {
        return;
    };
    if let Err(error) = orchestrator_client::report_result(client, callback, report).await {
        console.log(&format!("the result could not be delivered: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_value() {
        let ended = caught(Box::pin(async {
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "out of luck");
        }))
        .await;
        assert!(words(ended.unwrap_err().as_ref()).contains("out of luck"));
        assert_eq!(caught(Box::pin(async { 7 })).await.ok(), Some(7));
    }
}
