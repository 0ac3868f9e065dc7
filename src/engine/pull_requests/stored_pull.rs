//! Pull request as the store knows it, and its current ticket.

use crate::app::{App, Vendors};
use domain::agent_choice::AgentChoice;
use domain::feedback::{
    self, CommentCommand, FeedbackAuthor, FollowUpPolicy, NextPullRequestRun, PullRequestId,
    PullRequestRecord, ReviewFinding, ReviewFindingState,
};
use domain::issue::{IssueLookup, RelatedIssues};
use domain::job::Job;
use domain::mapping::Mapping;
use domain::take_over::{self, TakeOver};
use domain::time::Timestamp;
use domain::usage::BudgetUsage;
use store::pull_feedback::KeyedRow;
use store::{ReadableTx, StoreResult, jobs, mappings, pull_feedback, take_overs};

use super::find_issue;
use super::run;
use crate::{budget, dispatch, provider_limit};

/// Pull request in the store, with what decides about the next run on its branch.
pub(super) struct StoredPull {
    /// Stored data of the pull request.
    pub record: PullRequestRecord,
    /// Jobs of the pull request, oldest first.
    pub jobs: Vec<Job>,
    /// Latest job of the pull request.
    pub last_job: Job,
    /// Whether any run is active on its branch.
    pub is_busy: bool,
    /// Mapping of its repository.
    pub mapping: Mapping,
    /// Unresolved findings of reviewers.
    pub findings: Vec<KeyedRow<ReviewFinding>>,
    /// Commands in comments.
    pub commands: Vec<KeyedRow<CommentCommand>>,
    /// Next run for feedback or a command.
    pub next_run: NextPullRequestRun,
    /// Person who continues the work by hand.
    pub take_over: Option<TakeOver>,
    /// Reason why no run of the mapping may start now.
    pub block: Option<Block>,
}

/// Reason why no run of the mapping may start now.
pub(super) enum Block {
    /// The monthly budget is used up.
    Budget(BudgetUsage),
    /// The model provider's usage limit is reached until this time.
    ProviderLimit(Timestamp),
}

impl StoredPull {
    /// Reads the state. Returns `None` while no run is possible: the pull request has no job, its
    /// repository is not mapped, or the mapping is paused or ineligible.
    pub(super) fn read(
        tx: &impl ReadableTx,
        app: &App,
        pull: &PullRequestId,
        now: Timestamp,
    ) -> StoreResult<Option<Self>> {
        let jobs = jobs::of_pull(tx, &pull.repo, pull.number)?;
        let Some(last_job) = jobs.last().cloned() else {
            return Ok(None);
        };
        let mode = app.core.runner_mode(tx)?;
        let mapping = mappings::get(tx, &last_job.team)?
            .filter(|mapping| !mapping.paused && mapping.target_repo() == pull.repo)
            .filter(|mapping| dispatch::ineligible_reason(app, mode, mapping).is_none());
        let Some(mapping) = mapping else {
            return Ok(None);
        };
        let findings = pull_feedback::unresolved(tx, pull)?;
        let commands = pull_feedback::commands(tx, pull)?;
        let is_busy = run::active_run(tx, &last_job)?.is_some();
        let take_over = take_overs::get(tx, &last_job.issue.id)?;
        let next_run = feedback::next_pull_request_run(
            &FollowUpPolicy::default(),
            is_busy,
            &jobs,
            &values(&findings),
            &values(&commands),
            take_over.as_ref(),
            now,
        );
        let block = match budget::exhausted(tx, &mapping, now)? {
            Some(spending) => Some(Block::Budget(spending)),
            None => {
                let labels = AgentChoice::from_labels(last_job.labels.iter().map(String::as_str));
                let choice = provider_limit::available_choice(tx, app, &mapping, &labels, now)?;
                choice.err().map(Block::ProviderLimit)
            }
        };
        Ok(Some(Self {
            record: pull_feedback::get_pull(tx, pull)?,
            jobs,
            last_job,
            is_busy,
            mapping,
            findings,
            commands,
            next_run,
            take_over,
            block,
        }))
    }

    /// Returns whether automatic work on the branch may start.
    pub(super) fn allows_automatic_work(&self) -> bool {
        self.block.is_none() && self.is_free_for_automatic_work()
    }

    /// Returns whether the service may work on the pull request by itself, apart from runs that cost money.
    pub(super) fn is_free_for_automatic_work(&self) -> bool {
        let findings = self.findings.iter().map(|(_, finding)| finding);
        let commands = self.commands.iter().map(|(_, command)| command);
        take_over::check_automatic_work(self.take_over.as_ref()).is_ok()
            && feedback::may_work_automatically(&self.record, self.is_busy, findings, commands)
    }

    /// Authors of new findings and waiting commands.
    pub(super) fn authors(&self) -> Vec<FeedbackAuthor> {
        let new = self
            .findings
            .iter()
            .filter(|(_, one)| one.state == ReviewFindingState::New);
        let of_findings = new.map(|(_, finding)| finding.comment.author.clone());
        let waiting = self.commands.iter().filter(|(_, one)| one.is_waiting());
        let of_commands = waiting.filter_map(|(_, command)| {
            let login = command.author.clone()?;
            Some(FeedbackAuthor::Person { login })
        });
        of_findings.chain(of_commands).collect()
    }
}

fn values<T: Clone>(keyed: &[KeyedRow<T>]) -> Vec<T> {
    keyed.iter().map(|(_, value)| value.clone()).collect()
}

/// Reads the current ticket. If it no longer exists, the ticket of the last job is used: work on an
/// open pull request outlives its ticket.
pub(super) async fn current_ticket(
    vendors: &Vendors,
    stored: &StoredPull,
) -> Result<IssueLookup, String> {
    let issue = &stored.last_job.issue;
    let account = vendors
        .account(issue.system)
        .ok_or("its ticketing system is not configured")?;
    let found = find_issue(account, &[&stored.mapping], &issue.key)
        .await
        .map_err(|reason| format!("the ticket could not be looked up: {reason}"))?;
    let same = found.into_iter().find(|lookup| lookup.issue.id == issue.id);
    Ok(same.unwrap_or_else(|| IssueLookup {
        issue: issue.clone(),
        team: stored.mapping.team_key.clone(),
        description: String::new(),
        related: RelatedIssues::default(),
        labels: stored.last_job.labels.clone(),
    }))
}
