//! What a run tells us, stored.

use serde_json::Value;

use crate::app::App;
use crate::domain::ids::JobId;
use crate::domain::report::{ProgressReport, ResultReport, Step};
use crate::domain::transition::{Event, advance};
use crate::store::{StoreError, StoreResult, WriteTx, jobs, outbox, steps};
use crate::wire::Redactor;

/// How many bytes of a step's outputs are kept?
const MAX_OUTPUTS: usize = 64 << 10;

/// Why a report is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("no such job")]
    UnknownJob,
    #[error("the result was reported before")]
    AlreadyConsumed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Told = StoreResult<Result<(), ReportError>>;

/// Stores the one result of a run and what follows from it.
pub async fn result(app: &App, job: &JobId, report: ResultReport) -> Result<(), ReportError> {
    let (job, now) = (job.clone(), app.now());
    let told = move |tx: &WriteTx<'_>| -> Told {
        let Some(mut found) = jobs::get(tx, &job)? else {
            return Ok(Err(ReportError::UnknownJob));
        };
        if found.reported {
            return Ok(Err(ReportError::AlreadyConsumed));
        }
        let event = Event::ResultReported {
            report: report.clone(),
        };
        if let Ok(next) = advance(&found, event, now) {
            found = next.job;
            for effect in &next.owed.effects {
                outbox::push(tx, effect, now)?;
            }
        }
        found.reported = true;
        jobs::put(tx, &found)?;
        Ok(Ok(()))
    };
    app.store.write(told).await?
}

/// Stores a step of a run, which proves that it runs.
pub async fn progress(app: &App, job: &JobId, report: ProgressReport) -> Result<(), ReportError> {
    let (job, now) = (job.clone(), app.now());
    let step = clean(report.step, &app.redactor);
    let told = move |tx: &WriteTx<'_>| -> Told {
        let Some(found) = jobs::get(tx, &job)? else {
            return Ok(Err(ReportError::UnknownJob));
        };
        steps::put(tx, &job, &step)?;
        if let Ok(next) = advance(&found, Event::StepReported, now) {
            for effect in &next.owed.effects {
                outbox::push(tx, effect, now)?;
            }
            jobs::put(tx, &next.job)?;
        }
        Ok(Ok(()))
    };
    app.store.write(told).await?
}

fn clean(mut step: Step, redactor: &Redactor) -> Step {
    step.outputs = step.outputs.map(|outputs| {
        let text = redactor.redact(&outputs.to_string());
        if text.len() > MAX_OUTPUTS {
            let end = (0..=MAX_OUTPUTS)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0);
            return Value::from(format!("{} [… cut]", &text[..end]));
        }
        serde_json::from_str(&text).unwrap_or(Value::from(text))
    });
    step
}
