//! `/api/choices/*`: values to choose from in forms. If a vendor cannot list them, the body says why.

use std::collections::BTreeSet;

use crate::error::AdminApiError;
use crate::routing::{ApiResult, QueryParams, Route, ok};
use domain::agent::{self, NAMED_AGENTS};
use domain::ids::TeamKey;
use domain::issue::System;
use domain::mapping;
use engine::app::App;
use engine::choices::{Choice, ChoiceList, VendorList, vendor_list};
use store::jobs::{self, DISPATCH_LOG_SIZE};

/// Routes of `/api/choices`.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/api/choices/teams", "chooseTeam", teams).returns::<ChoiceList>(),
        Route::get("/api/choices/labels", "chooseLabel", labels).returns::<ChoiceList>(),
        Route::get("/api/choices/projects", "chooseProject", projects).returns::<ChoiceList>(),
        Route::get(
            "/api/choices/repositories",
            "chooseRepository",
            repositories,
        )
        .returns::<ChoiceList>(),
        Route::get("/api/choices/branches", "chooseBranch", branches).returns::<ChoiceList>(),
        Route::get("/api/choices/agents", "chooseAgent", agents).returns::<ChoiceList>(),
        Route::get("/api/choices/models", "chooseModel", models).returns::<ChoiceList>(),
    ]
}

async fn teams(query: QueryParams, app: App) -> ApiResult {
    let system = match query.get("system").map(String::as_str) {
        Some("A") => System::Linear,
        Some("B") => System::Jira,
        Some("C") => System::GitHub,
        _ => return Err(AdminApiError::Invalid("system must be A, B or C".to_owned()).into()),
    };
    Ok(ok(&vendor_list(&app, VendorList::Teams(system)).await))
}

async fn labels(query: QueryParams, app: App) -> ApiResult {
    let team = linear_team(&query)?;
    Ok(ok(&vendor_list(&app, VendorList::Labels(team)).await))
}

async fn projects(query: QueryParams, app: App) -> ApiResult {
    let team = linear_team(&query)?;
    Ok(ok(&vendor_list(&app, VendorList::TeamProjects(team)).await))
}

fn linear_team(query: &QueryParams) -> Result<TeamKey, AdminApiError> {
    let team = query.get("team").map(|team| team.trim());
    let team = team.filter(|team| mapping::is_team_key(team));
    team.map(TeamKey::new)
        .ok_or_else(|| AdminApiError::Invalid("team must be the key of a team".to_owned()))
}

async fn repositories(app: App) -> ApiResult {
    Ok(ok(&vendor_list(&app, VendorList::Repositories).await))
}

async fn branches(query: QueryParams, app: App) -> ApiResult {
    let (Some(owner), Some(repo)) = (query.get("owner"), query.get("repo")) else {
        let sentence = "owner and repo are required".to_owned();
        return Err(AdminApiError::Invalid(sentence).into());
    };
    let repo = mapping::parse_repo(owner, repo)?;
    Ok(ok(&vendor_list(&app, VendorList::Branches(repo)).await))
}

async fn agents() -> ApiResult {
    let choices = NAMED_AGENTS.into_iter().map(|known| {
        let is_default = known == agent::DEFAULT;
        let note = is_default.then(|| "Default of repositories that name no agent.".to_owned());
        Choice {
            note,
            ..Choice::new(known.name, known.product)
        }
    });
    Ok(ok(&ChoiceList {
        choices: choices.collect(),
        ..ChoiceList::default()
    }))
}

/// Lists the models of the latest runs, because repositories name their models freely.
async fn models(query: QueryParams, app: App) -> ApiResult {
    let agent = query
        .get("agent")
        .filter(|agent| !agent.is_empty())
        .cloned();
    let read = app.core.store().read_long(move |tx| {
        let latest = jobs::latest(tx, DISPATCH_LOG_SIZE)?;
        let of_agent = latest
            .into_iter()
            .filter(|job| agent.is_none() || job.agent == agent);
        Ok(of_agent
            .filter_map(|job| job.model)
            .collect::<BTreeSet<_>>())
    });
    let models = read.await?;
    let note = match models.is_empty() {
        true => "No run has reported a model yet.",
        false => "Models of the latest runs.",
    };
    let choices = models.into_iter().map(|model| Choice::new(&model, &model));
    Ok(ok(&ChoiceList {
        choices: choices.collect(),
        error: None,
        note: Some(note.to_owned()),
    }))
}
