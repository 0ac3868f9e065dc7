//! `/api/questions` and `/api/plans`: what tickets wait for people to do. See docs/behaviour.md#questions.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::job_control::parse_options;
use crate::error::AdminApiError;
use crate::routing::{ApiResult, PathSegment, Route, accepted, ok, parse_json};
use domain::audit::Actor;
use domain::ids::{IssueId, IssueKey, JobId, TeamKey};
use domain::plan_approval::{Approval, PlanGate};
use domain::question::{OpenQuestion, Question};
use domain::time::Timestamp;
use engine::app::App;
use engine::conversation::{answers, plans};
use store::{open_questions, plan_gates};

/// Routes of `/api/questions` and `/api/plans`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/questions", "listQuestions", list_questions).returns::<QuestionsView>(),
        Route::post("/api/questions/:issueId/answer", "answerQuestion", answer).body(),
        Route::get("/api/plans", "listPlans", list_plans).returns::<PlansView>(),
        Route::post("/api/plans/:issueId/approve", "approvePlan", approve).body(),
        Route::post("/api/plans/:issueId/reject", "rejectPlan", reject).body(),
        Route::post("/api/plans/:issueId/replan", "replan", replan).body(),
    ]
}

async fn list_questions(app: App) -> ApiResult {
    let mut open = app.core.store().read_long(open_questions::all).await?;
    open.sort_by_key(|question| question.asked_at);
    let questions = open.into_iter().map(QuestionView::from).collect();
    Ok(ok(&QuestionsView { questions }))
}

async fn answer(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let body = parse_json(&body).ok_or(AdminApiError::InvalidBody)?;
    let text = body["answer"]
        .as_str()
        .ok_or(AdminApiError::AnswerRequired)?;
    answers::answer(&app, by, &named, text).await?;
    Ok(accepted(&json!({"resumed": true})))
}

async fn list_plans(app: App) -> ApiResult {
    let mut gates = app.core.store().read_long(plan_gates::all).await?;
    gates.sort_by_key(|gate| gate.planned_at);
    let plans = gates.into_iter().map(PlanView::from).collect();
    Ok(ok(&PlansView { plans }))
}

async fn approve(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    parse_options(&body)?;
    plans::approve(&app, by, &named).await?;
    Ok(ok(&json!({"approved": true})))
}

async fn reject(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    parse_options(&body)?;
    plans::reject(&app, by, &named).await?;
    Ok(ok(&json!({"rejected": true})))
}

async fn replan(PathSegment(named): PathSegment, by: Actor, body: Bytes, app: App) -> ApiResult {
    let instruction = match parse_options(&body)?.remove("instruction") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(_) => return Err(AdminApiError::InstructionNotText.into()),
    };
    plans::replan(&app, by, &named, &instruction).await?;
    Ok(accepted(&json!({"planning": true})))
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Questions")]
struct QuestionsView {
    questions: Vec<QuestionView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OpenQuestion")]
struct QuestionView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    team_key: TeamKey,
    ticket_url: String,
    /// Job that asked.
    job_id: JobId,
    asked_at: Timestamp,
    /// Time of the reminder on the ticket.
    reminded_at: Option<Timestamp>,
    /// Time at which the work goes on with the defaults.
    expires_at: Option<Timestamp>,
    /// Number of the round of questions in this phase.
    #[schemars(range(min = 1))]
    round: u32,
    #[schemars(length(min = 1, max = 3))]
    questions: Vec<Question>,
}

impl From<OpenQuestion> for QuestionView {
    fn from(open: OpenQuestion) -> Self {
        Self {
            issue_id: open.issue.id,
            issue_identifier: open.issue.key,
            issue_title: open.issue.title,
            team_key: open.team,
            ticket_url: open.issue.url,
            job_id: open.job,
            asked_at: open.asked_at,
            reminded_at: open.reminded_at,
            expires_at: open.expires_at,
            round: open.round,
            questions: open.questions,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Plans")]
struct PlansView {
    plans: Vec<PlanView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PlanWithApproval")]
struct PlanView {
    issue_id: IssueId,
    issue_identifier: IssueKey,
    issue_title: String,
    team_key: TeamKey,
    ticket_url: String,
    /// Job that made the plan.
    job_id: JobId,
    planned_at: Timestamp,
    /// Time of the reminder on the ticket.
    reminded_at: Option<Timestamp>,
    /// Reason why the rule of the project did not approve the plan.
    objection: Option<String>,
    /// Null while the plan waits.
    approval: Option<ApprovalView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
struct ApprovalView {
    by: String,
    #[schemars(extend("enum" = ["auto", "marker", "comment", "operator"]))]
    how: &'static str,
    at: Timestamp,
    /// Hash of title, description and plan as approved.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    hash: String,
}

impl From<PlanGate> for PlanView {
    fn from(gate: PlanGate) -> Self {
        let view = |approval: Approval| ApprovalView {
            by: approval.by,
            how: approval.source.as_str(),
            at: approval.at,
            hash: approval.hash,
        };
        Self {
            issue_id: gate.issue.id,
            issue_identifier: gate.issue.key,
            issue_title: gate.issue.title,
            team_key: gate.team,
            ticket_url: gate.issue.url,
            job_id: gate.job,
            planned_at: gate.planned_at,
            reminded_at: gate.reminded_at,
            objection: gate.objection,
            approval: gate.approval.map(view),
        }
    }
}
