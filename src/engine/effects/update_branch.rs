//! Update of the branch of a pull request by the host.

use super::{EffectFailure, EffectOutcome, github};
use crate::app::App;
use domain::feedback::PullRequestId;
use domain::ids::Repo;

/// Makes the host merge the base branch into the branch. A repeat finds the head moved by the first attempt, which
/// the host refuses like any other reason why nothing is to be done. The update is optional, so a refusal needs no
/// operator.
pub(super) async fn update_branch(
    app: &App,
    repo: &Repo,
    number: u64,
    expected_head: &str,
) -> Result<EffectOutcome, EffectFailure> {
    let outcome = match github(&app.vendors)?
        .update_branch(repo, number, expected_head)
        .await
    {
        Ok(()) => EffectOutcome::Done,
        Err(error) if error.is_permanent() && !error.is_unauthorized() => {
            EffectOutcome::Gone(error.to_string())
        }
        Err(error) => return Err(error.into()),
    };
    let pull = PullRequestId::new(repo, number);
    app.live.reconciliation.note_changed(vec![pull]);
    Ok(outcome)
}
