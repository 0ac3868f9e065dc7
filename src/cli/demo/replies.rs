//! What a demo without a person replies: answers to questions, and approvals of plans.

use domain::audit::Actor;
use domain::plan_approval::PlanGate;
use domain::question::{OpenQuestion, Question};
use engine::app::App;
use engine::conversation::{answers, plans};
use store::{open_questions, plan_gates};

/// Answer to a question with neither a default nor choices.
const DECIDE: &str = "Decide yourself";

/// Answers all open questions and approves all plans that wait. Returns what was done, a line each.
///
/// # Errors
/// Fails if the service refuses an answer or an approval.
pub(super) async fn reply(app: &App) -> Result<Vec<String>, String> {
    let store = app.core.store();
    let (questions, gates) = store
        .read(|tx| Ok((open_questions::all(tx)?, plan_gates::all(tx)?)))
        .map_err(|error| error.to_string())?;
    let mut done = Vec::new();
    for open in &questions {
        let (key, text) = (&open.issue.key, answer(open));
        let answered = answers::answer(app, Actor::owner(), key.as_str(), &text).await;
        answered.map_err(|error| format!("{key}: {error}"))?;
        done.push(format!("{key} asks. The demo answers: {text}"));
    }
    for gate in gates.iter().filter(|gate| PlanGate::is_waiting(gate)) {
        let key = &gate.issue.key;
        let approved = plans::approve(app, Actor::owner(), key.as_str()).await;
        approved.map_err(|error| format!("{key}: {error}"))?;
        done.push(format!("{key} has a plan. The demo approves it."));
    }
    Ok(done)
}

/// Answer to all questions of a run: the default, or the first choice.
pub(super) fn answer(open: &OpenQuestion) -> String {
    let reply = |question: &Question| {
        let first = question.default.as_ref().or(question.choices.first());
        first.map_or_else(|| DECIDE.to_owned(), Clone::clone)
    };
    let replies: Vec<String> = open.questions.iter().map(reply).collect();
    replies.join("\n")
}
