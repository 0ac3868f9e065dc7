//! Endpoints of the App and its installations.

use serde_json::{Value, json};

use super::auth::Caller;
use super::rest::{ApiCall, RestError, RestResult, not_found, ok_json, rest_error};
use crate::http::HttpResponse;

/// Events that the App receives.
const APP_EVENTS: [&str; 6] = [
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "pull_request_review_thread",
];

impl ApiCall<'_> {
    fn require_app(&self) -> Result<(), RestError> {
        match &self.caller {
            Caller::App => Ok(()),
            Caller::Token(_) => Err(rest_error(401, "A JSON web token could not be decoded")),
        }
    }

    pub(super) fn app(&self) -> RestResult {
        self.require_app()?;
        let app = &self.host.app;
        let installations = self.host.model.read(|model| model.installed_on().len());
        ok_json(json!({
            "id": app.id, "slug": app.slug, "name": app.slug, "node_id": "A_1",
            "owner": {"login": "sandbox"}, "events": APP_EVENTS,
            "permissions": self.host.app_permissions(),
            "installations_count": installations,
        }))
    }

    pub(super) fn user(&self) -> RestResult {
        match &self.caller {
            Caller::Token(token) if token.is_personal() => {
                let user = ok_json(json!({"login": token.login, "id": 1, "type": "User"}));
                match self.host.model.read(|model| model.token_scopes.clone()) {
                    Some(scopes) => user.map(|reply| reply.header("x-oauth-scopes", scopes)),
                    None => user,
                }
            }
            _ => Err(rest_error(403, "Resource not accessible by integration")),
        }
    }

    fn installation_json(&self, owner: &str, id: u64) -> Value {
        json!({
            "id": id, "app_id": self.host.app.id, "app_slug": self.host.app.slug,
            "account": {"login": owner, "id": id, "type": "Organization"},
            "target_type": "Organization", "repository_selection": "all",
            "permissions": self.host.app_permissions(), "events": [],
        })
    }

    pub(super) fn installations(&self) -> RestResult {
        self.require_app()?;
        let owners = self.host.model.read(|model| model.installed_on().to_vec());
        let all = (5_000u64..)
            .zip(owners)
            .map(|(id, owner)| self.installation_json(&owner, id));
        self.paginate(all.collect(), |_, items| items.into())
    }

    pub(super) fn installation(&self, owner: &str, name: &str) -> RestResult {
        self.require_app()?;
        let id = self.host.model.read(|model| {
            let repo_exists = name.is_empty() || model.find_repo(owner, name).is_some();
            model.installation_id(owner).filter(|_| repo_exists)
        });
        let id = id.ok_or_else(not_found)?;
        ok_json(self.installation_json(owner, id))
    }

    pub(super) fn create_installation_token(&self, id: &str) -> RestResult {
        self.require_app()?;
        let id = id.parse().map_err(|_| not_found())?;
        Ok(HttpResponse::json(
            201,
            &self.host.create_installation_token(id, &self.body)?,
        ))
    }

    pub(super) fn installation_repositories(&self) -> RestResult {
        self.paginate(
            self.visible_repositories()?,
            |total, items| json!({"total_count": total, "repositories": items}),
        )
    }

    pub(super) fn user_repositories(&self) -> RestResult {
        if !self.require_token()?.is_personal() {
            return Err(rest_error(403, "Resource not accessible by integration"));
        }
        self.paginate(self.visible_repositories()?, |_, items| items.into())
    }

    fn visible_repositories(&self) -> Result<Vec<Value>, RestError> {
        let token = self.require_token()?;
        Ok(self.host.model.read(|model| {
            let repos = model
                .repos
                .iter()
                .filter(|repo| token.can_access_repo(&repo.owner, &repo.name));
            repos.map(|repo| self.host.repo_json(repo)).collect()
        }))
    }
}
