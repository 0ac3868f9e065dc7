//! Permissions of people in repositories and on issues, read at the vendor and cached.

use crate::app::App;
use domain::ids::Repo;
use domain::issue::IssueRef;
use domain::ticket_comment::{AuthorKind, CommentAuthor};
use vendors::http::VendorError;
use vendors::scm::{GitHub, RepoPermission};
use vendors::ticketing::TicketingClient;

/// Returns whether a person has write permission. The error is the reason why that is unknown.
pub(crate) async fn has_write_permission(
    app: &App,
    github: &GitHub,
    repo: &Repo,
    login: &str,
) -> Result<bool, String> {
    let read =
        Box::pin(async { Ok(github.permission(repo, login).await? >= RepoPermission::Write) });
    cached(app, repo.to_string(), login, read).await
}

/// Returns whether a person has write permission, if that is cached.
pub(crate) fn known_write_permission(app: &App, repo: &Repo, login: &str) -> Option<bool> {
    let key = (repo.to_string(), login.to_owned());
    app.live.permission_cache.get(&key, app.core.now())
}

/// Returns whether the author of a comment may edit an issue. The error is the reason why that is unknown.
pub(crate) async fn may_edit(
    app: &App,
    account: &TicketingClient,
    issue: &IssueRef,
    author: &CommentAuthor,
) -> Result<bool, String> {
    if author.kind != AuthorKind::Person {
        return Ok(false);
    }
    let scope = match issue.repo_and_number() {
        Some((repo, _)) => repo.to_string(),
        None => issue.id.to_string(),
    };
    let read = Box::pin(account.may_edit(issue, author));
    cached(app, scope, &author.id, read).await
}

async fn cached(
    app: &App,
    scope: String,
    account: &str,
    read: impl Future<Output = Result<bool, VendorError>>,
) -> Result<bool, String> {
    let (cache, now) = (&app.live.permission_cache, app.core.now());
    let key = (scope, account.to_owned());
    if let Some(may_write) = cache.get(&key, now) {
        return Ok(may_write);
    }
    let may_write = read.await.map_err(|error| error.to_string())?;
    cache.insert(key, may_write, now);
    Ok(may_write)
}
