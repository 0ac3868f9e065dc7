//! `/api/issues/:issue/take` and `/give-back`, and the same of a pull request: people continue issues by hand. See
//! docs/operate.md#take-over.

use bytes::Bytes;
use serde_json::{Value, json};

use super::job_control::parse_options;
use crate::error::{AdminApiError, ApiError};
use crate::routing::{ApiResult, FromRequest, PathSegment, Request, Route, ok};
use domain::audit::Actor;
use domain::feedback::PullRequestId;
use domain::ids::Repo;
use domain::take_over_guide::TakeOverGuide;
use engine::app::App;
use engine::take_over::{self, Named, TakeOverError};
use engine::take_over_guide;

/// Routes of take-overs.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/issues/:issueId/take", "showTakeOverGuide", show)
            .returns::<TakeOverGuide>(),
        Route::post("/api/issues/:issueId/take", "takeIssue", take_issue)
            .body()
            .returns::<TakeOverGuide>(),
        Route::post(
            "/api/issues/:issueId/give-back",
            "giveIssueBack",
            give_issue_back,
        )
        .body(),
        Route::post(
            "/api/pulls/:owner/:repo/:number/take",
            "takePull",
            take_pull,
        )
        .body(),
        Route::post(
            "/api/pulls/:owner/:repo/:number/give-back",
            "givePullBack",
            give_pull_back,
        )
        .body(),
    ]
}

async fn show(PathSegment(issue): PathSegment, app: App) -> ApiResult {
    Ok(ok(&take_over_guide::load(&app, &Named::Issue(issue)).await?))
}

async fn take_issue(
    PathSegment(issue): PathSegment,
    actor: Actor,
    body: Bytes,
    app: App,
) -> ApiResult {
    let guide = take(&app, actor, Named::Issue(issue), &body).await?;
    Ok(ok(&guide))
}

async fn give_issue_back(
    PathSegment(issue): PathSegment,
    actor: Actor,
    body: Bytes,
    app: App,
) -> ApiResult {
    give_back(&app, actor, Named::Issue(issue), &body).await
}

async fn take_pull(PullPath(pull): PullPath, actor: Actor, body: Bytes, app: App) -> ApiResult {
    take(&app, actor, Named::Pull(pull), &body).await?;
    Ok(ok(&json!({"taken": true})))
}

async fn give_pull_back(
    PullPath(pull): PullPath,
    actor: Actor,
    body: Bytes,
    app: App,
) -> ApiResult {
    give_back(&app, actor, Named::Pull(pull), &body).await
}

/// Pull request in the path: owner and name of its repository, and its number.
struct PullPath(PullRequestId);

impl FromRequest for PullPath {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        let mut next = || PathSegment::from_request(request).map(|PathSegment(text)| text);
        let (owner, name, number) = (next()?, next()?, next()?);
        let number = number.parse().map_err(|_| TakeOverError::UnknownPull)?;
        let repo = Repo::new(owner, name);
        Ok(Self(PullRequestId { repo, number }))
    }
}

async fn take(
    app: &App,
    actor: Actor,
    named: Named,
    body: &[u8],
) -> Result<TakeOverGuide, ApiError> {
    let by = name_in(body)?;
    Ok(take_over::take(app, actor, named, by.as_deref()).await?)
}

async fn give_back(app: &App, actor: Actor, named: Named, body: &[u8]) -> ApiResult {
    let by = name_in(body)?;
    take_over::give_back(app, actor, named, by.as_deref()).await?;
    Ok(ok(&json!({"taken": false})))
}

/// Reads the name of the person from a body.
fn name_in(body: &[u8]) -> Result<Option<String>, AdminApiError> {
    match parse_options(body)?.remove("by") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(_) => Err(AdminApiError::ByNotText),
    }
}
