//! Authors of feedback, and whether their requests are addressed.

use std::collections::HashMap;

use domain::external_reviewers::ExternalReviewConfig;
use domain::external_reviewers::ReviewInputs;
use domain::feedback;
use domain::feedback::FeedbackAuthor;
use domain::feedback::FeedbackClass;
use domain::feedback::PullRequestId;
use domain::mapping::Mapping;
use serde::Deserialize;
use vendors::scm::GitHub;
use vendors::scm::PullRequestFeedback;

use crate::app::App;
use crate::permissions;

/// Settings file of a repository, which names its reviewers.
const SETTINGS_FILE: &str = ".agent-implement/config.yml";

/// Authors of all active requests in a conversation, including those that no webhook delivered:
/// their permissions must be known in the same cycle, or findings of unauthorized authors would
/// delay the run.
pub(super) fn authors_of_requests(
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
pub(super) async fn check_authors(
    app: &App,
    github: &GitHub,
    pull: &PullRequestId,
    mapping: &Mapping,
    authors: Vec<FeedbackAuthor>,
) -> HashMap<FeedbackAuthor, bool> {
    let mut permitted = HashMap::new();
    let mut reviewers = None;
    for author in authors {
        let checked = match &author {
            FeedbackAuthor::Person { login } => {
                permissions::has_write_permission(app, github, &pull.repo, login).await
            }
            FeedbackAuthor::App { slug } => {
                if reviewers.is_none() {
                    reviewers = Some(named_reviewers(github, mapping).await);
                }
                match &reviewers {
                    Some(Ok(reviewers)) => Ok(reviewers.includes_app(slug)),
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

/// Reviewers named on the default branch. An invalid file names none.
async fn named_reviewers(
    github: &GitHub,
    mapping: &Mapping,
) -> Result<ExternalReviewConfig, String> {
    #[derive(Deserialize, Default)]
    struct SettingsFile {
        #[serde(flatten)]
        review: ReviewInputs,
    }
    let file = github
        .file(
            &mapping.target_repo(),
            SETTINGS_FILE,
            &mapping.default_branch,
        )
        .await
        .map_err(|error| error.to_string())?;
    let settings: Option<SettingsFile> = file
        .and_then(|file| serde_saphyr::from_str(&file.text).ok())
        .flatten();
    Ok(ExternalReviewConfig::default().with_overrides(&settings.unwrap_or_default().review))
}
