//! Permissions of people in repositories, read at the host and cached.

use crate::app::App;
use domain::ids::Repo;
use vendors::scm::{GitHub, RepoPermission};

/// Returns whether a person has write permission. The error is the reason why that is unknown.
pub(crate) async fn has_write_permission(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    login: &str,
) -> Result<bool, String> {
    let now = app.core.now();
    let cached = app.live.permission_cache.get(repo, login, now);
    let permission = match cached {
        Some(permission) => permission,
        None => {
            let fetched = github.permission(repo, login).await;
            let permission = fetched.map_err(|error| error.to_string())?;
            app.live
                .permission_cache
                .insert(repo, login, permission, now);
            permission
        }
    };
    Ok(permission >= RepoPermission::Write)
}
