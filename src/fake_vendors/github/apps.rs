//! Routes of the App itself and of its installations.

use serde_json::{Value, json};

use super::auth::Caller;
use super::rest::{Answer, Call, Refusal, not_found, ok, refuse};
use crate::http::Reply;

impl Call<'_> {
    fn only_app(&self) -> Result<(), Refusal> {
        match &self.caller {
            Caller::App => Ok(()),
            Caller::Token(_) => Err(refuse(401, "A JSON web token could not be decoded")),
        }
    }

    pub fn app(&self) -> Answer {
        self.only_app()?;
        let app = &self.host.app;
        let installations = self.host.shelf.read(|model| model.owners.len());
        ok(json!({
            "id": app.id, "slug": app.slug, "name": app.slug, "node_id": "A_1",
            "owner": {"login": "sandbox"}, "events": [], "permissions": {},
            "installations_count": installations,
        }))
    }

    pub fn user(&self) -> Answer {
        match &self.caller {
            Caller::Token(token) if token.permissions.is_none() => {
                let user = ok(json!({"login": token.login, "id": 1, "type": "User"}));
                match self.host.shelf.read(|model| model.token_scopes.clone()) {
                    Some(scopes) => user.map(|reply| reply.header("x-oauth-scopes", scopes)),
                    None => user,
                }
            }
            _ => Err(refuse(403, "Resource not accessible by integration")),
        }
    }

    fn installation_shape(&self, owner: &str, id: u64) -> Value {
        json!({
            "id": id, "app_id": self.host.app.id, "app_slug": self.host.app.slug,
            "account": {"login": owner, "id": id, "type": "Organization"},
            "target_type": "Organization", "repository_selection": "all",
            "permissions": self.host.app_permissions(), "events": [],
        })
    }

    pub fn installations(&self) -> Answer {
        self.only_app()?;
        let owners = self.host.shelf.read(|model| model.owners.clone());
        let all = (5_000u64..)
            .zip(owners)
            .map(|(id, owner)| self.installation_shape(&owner, id));
        self.page(all.collect(), |_, items| items.into())
    }

    pub fn installation(&self, owner: &str, name: &str) -> Answer {
        self.only_app()?;
        let id = self.host.shelf.read(|model| {
            let known = name.is_empty() || model.find(owner, name).is_some();
            model.installation(owner).filter(|_| known)
        });
        let id = id.ok_or_else(not_found)?;
        ok(self.installation_shape(owner, id))
    }

    pub fn mint(&self, id: &str) -> Answer {
        self.only_app()?;
        let id = id.parse().map_err(|_| not_found())?;
        Ok(Reply::json(201, &self.host.mint(id, &self.body)?))
    }

    pub fn installation_repositories(&self) -> Answer {
        let token = self.token()?;
        let shapes = self.host.shelf.read(|model| {
            let repos = model
                .repos
                .iter()
                .filter(|repo| token.sees(&repo.owner, &repo.name));
            repos.map(|repo| self.host.repo_shape(repo)).collect()
        });
        self.page(
            shapes,
            |total, items| json!({"total_count": total, "repositories": items}),
        )
    }
}
