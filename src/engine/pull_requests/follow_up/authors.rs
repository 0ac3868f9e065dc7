//! Authors of feedback, and whether their requests are addressed.

use std::collections::HashMap;

use domain::feedback;
use domain::feedback::FeedbackAuthor;
use domain::feedback::FeedbackClass;
use domain::feedback::PullRequestId;
use domain::mapping::Mapping;
use vendors::scm::GitHub;
use vendors::scm::PullRequestFeedback;

use crate::app::App;
use crate::{permissions, repo_settings};

/// Authors of all active requests in a conversation, including those that no webhook delivered:
/// their permissions must be known in the same cycle, or findings of unauthorized authors would
/// delay the run.
pub(in crate::pull_requests) fn authors_of_requests(
    conversation: &PullRequestFeedback,
) -> impl Iterator<Item = FeedbackAuthor> {
    let active = conversation.items.iter().filter(|item| item.is_active);
    let requests = active
        .filter(|item| !matches!(feedback::classify(&item.comment), FeedbackClass::Ignored(_)));
    requests.map(|item| item.comment.author.clone())
}

/// Determines whose feedback is addressed: people with write permission, and Apps that the
/// repository names as reviewers. An author whose lookup fails is omitted and looked up again
/// later.
pub(in crate::pull_requests) async fn check_authors(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    mapping: &Mapping,
    authors: Vec<FeedbackAuthor>,
) -> HashMap<FeedbackAuthor, bool> {
    let mut permitted = HashMap::new();
    let mut settings = None;
    for author in authors {
        let checked = match &author {
            FeedbackAuthor::Person { login } => {
                permissions::has_write_permission(app, github, &pull.repo, login).await
            }
            FeedbackAuthor::App { slug } => {
                if settings.is_none() {
                    settings = Some(repo_settings::fetch(github, mapping).await);
                }
                match &settings {
                    Some(Ok(settings)) => Ok(settings.reviewers.includes_app(slug)),
                    Some(Err(reason)) => Err(reason.clone()),
                    None => Ok(false),
                }
            }
        };
        match checked {
            Ok(is_permitted) => {
                permitted.insert(author, is_permitted);
            }
            Err(reason) => {
                let author = author.name();
                tracing::warn!(repo = %pull.repo, author, reason, "Failed to look up the permission of an author.");
            }
        }
    }
    permitted
}
