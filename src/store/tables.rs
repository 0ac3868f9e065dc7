//! Every table there is. Names carry a generation, so that a change of shape can read the old one.

use redb::WriteTransaction;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use domain::audit::AuditEntry;
use domain::feedback::{CommentCommand, PullRequestRecord, ReviewFinding};
use domain::ids::{JobId, Repo};
use domain::job::Job;
use domain::mapping::Mapping;
use domain::plan::IssueContext;
use domain::time::Timestamp;

use super::StoreResult;
use super::admin_tokens::AdminToken;
use super::decisions::DecisionHistory;
use super::dedup::DedupEntry;
use super::dispatch_breaker::ParkedIssue;
use super::issue_waits::IssueWait;
use super::open_tables::TableKey;
use super::outbox::OutboxEntry;
use super::provider_limits::ProviderLimit;
use super::reaper_log::ReaperAction;
use super::secrets::SealedSecret;
use super::steps::{StepRow, StepTally};
use super::table::Table;
use super::template_syncs::SyncRecord;
use super::usage::{IssueUsage, MappingUsage};
use super::webhook_deliveries::WebhookDelivery;

/// Name -> schema version, counters. A handful.
pub const META: Table<&str, Value> = Table::new("meta-1");

/// Team key -> mapping. Written by operators; as many as there are projects.
pub const MAPPINGS: Table<&str, Mapping> = Table::new("mappings-1");
/// (Target repository in lower case, team key) -> the repository as the mapping writes it. Written with the
/// mappings.
pub const MAPPINGS_BY_REPO: Table<(&str, &str), Repo> = Table::new("mappings-by-repo-1");

/// Job id (sorts by time) -> job. Written by every event of a run; never removed.
pub const JOBS: Table<&str, Job> = Table::new("jobs-1");
/// Job id, while the job is active. As many as there are runs.
pub const JOBS_ACTIVE: Table<&str, ()> = Table::new("jobs-active-1");
/// (Issue id, job id). Grows with the jobs.
pub const JOBS_BY_ISSUE: Table<(&str, &str), ()> = Table::new("jobs-by-issue-1");
/// (Repository, pull request number, job id). Grows with the jobs.
pub const JOBS_BY_PULL: Table<(&str, u64, &str), ()> = Table::new("jobs-by-pull-1");
/// Hash of a session's nonce -> job id. Written when a session is started; grows with the sessions.
pub const JOBS_BY_NONCE: Table<&str, JobId> = Table::new("jobs-by-nonce-1");

/// (Job id, identity of an event), once its session has told it. A few a session.
pub const SESSION_EVENTS: Table<(&str, &str), ()> = Table::new("session-events-1");

/// (Repository, pull request number) -> what is known of it beside its jobs. Written by webhooks and
/// sweeps; as many as there are pull requests.
pub const PULLS: Table<(&str, u64), PullRequestRecord> = Table::new("pulls-1");
/// (Repository, pull request number, hash of the words) -> feedback and what became of it. Written by
/// webhooks, sweeps and the ends of follow-ups; kept, so that nothing is asked for twice.
pub const REVIEW_FINDINGS: Table<(&str, u64, &str), ReviewFinding> = Table::new("findings-1");
/// The keys of feedback that something is still to be done about. Short.
pub const REVIEW_FINDINGS_UNRESOLVED: Table<(&str, u64, &str), ()> =
    Table::new("findings-at-work-1");
/// (Repository, pull request number, comment or job) -> a run asked for in a comment. Grows with the
/// comments that ask.
pub const COMMANDS: Table<(&str, u64, &str), CommentCommand> = Table::new("commands-1");
/// The keys of those that have not been started. Short.
pub const COMMANDS_WAITING: Table<(&str, u64, &str), ()> = Table::new("commands-waiting-1");

/// Delivery id -> when it was taken. Swept when its window is over.
pub const WEBHOOK_DELIVERIES: Table<&str, WebhookDelivery> = Table::new("deliveries-1");
/// (Taken in milliseconds, delivery id). Swept with the deliveries.
pub const WEBHOOK_DELIVERIES_BY_TIME: Table<(u64, &str), ()> = Table::new("deliveries-by-time-1");

/// (Job id, step id) -> step. Written by runs, up to the limits of `steps`; never removed (spec: *Job and step
/// record*).
pub const STEPS: Table<(&str, &str), StepRow> = Table::new("steps-1");
/// Job id -> number and size of its steps, and how many reports were dropped. Written with the steps.
pub const STEP_TALLIES: Table<&str, StepTally> = Table::new("step-tallies-1");

/// Job id -> its work that could not be pushed, as git applies it. Written with the result of a run;
/// never removed, and rare.
pub const PATCHES: Table<&str, String> = Table::new("patches-1");

/// Issue id -> when it was dispatched. Removed as the dedup rules say.
pub const DEDUP: Table<&str, DedupEntry> = Table::new("dedup-1");

/// (Issue id, phase) -> failures in a row. Removed by a success.
pub const BREAKER_FAILURES: Table<(&str, &str), u32> = Table::new("breaker-1");
/// Issue id -> why it is parked. Removed by an operator.
pub const PARKED_ISSUES: Table<&str, ParkedIssue> = Table::new("parked-1");

/// Name of model credentials -> until when their provider lets them do nothing. Written by runs that met
/// the limit; one for each repository, team or service that has credentials.
pub const PROVIDER_LIMITS: Table<&str, ProviderLimit> = Table::new("limits-1");
/// (Issue id, phase) -> runs in a row that met a limit. Removed by one that did not.
pub const PROVIDER_LIMIT_HITS: Table<(&str, &str), u32> = Table::new("limit-hits-1");

/// (Month, team key) -> what the mapping's runs used. Written by the ends of jobs; one a mapping and month.
pub const USAGE_BY_MAPPING: Table<(&str, &str), MappingUsage> = Table::new("usage-by-mapping-1");
/// (Month, team key, issue id) -> what the issue's runs used. Written by the ends of jobs; grows with the
/// issues.
pub const USAGE_BY_ISSUE: Table<(&str, &str, &str), IssueUsage> = Table::new("usage-by-issue-1");

/// Issue id -> its plan and what stands around it. Written by dispatches and by plans; grows with the
/// issues.
pub const ISSUE_CONTEXTS: Table<&str, IssueContext> = Table::new("contexts-1");

/// Issue key -> its last decision and the ones before. Written when a decision changes.
pub const DECISIONS: Table<&str, DecisionHistory> = Table::new("ledger-1");

/// Issue id -> the wait that it is in, when that does not pass by itself. As many as there are such issues.
pub const ISSUE_WAITS: Table<&str, IssueWait> = Table::new("waiting-1");

/// (Lane, sequence) -> errand that is owed. Short: what the outside has not taken yet.
pub const OUTBOX: Table<(&str, u64), OutboxEntry> = Table::new("outbox-1");
/// (Due in milliseconds, lane) -> sequence of the lane's first errand. One row for each lane.
pub const OUTBOX_HEADS: Table<(u64, &str), u64> = Table::new("outbox-heads-1");
/// Sequence -> errand that was given up. Removed by operators.
pub const OUTBOX_DEAD: Table<u64, OutboxEntry> = Table::new("outbox-dead-1");

/// Team key -> how its last sync ended. Written by syncs; one for each project.
pub const TEMPLATE_SYNCS: Table<&str, SyncRecord> = Table::new("syncs-1");

/// Hash of an admin token -> when it expires. Swept when a token is issued.
pub const ADMIN_TOKENS: Table<&str, AdminToken> = Table::new("admin-tokens-1");

/// (Milliseconds, machine id) -> what the reaper did. A day's, and the latest hundred.
pub const REAPER_ACTIONS: Table<(u64, &str), ReaperAction> = Table::new("reaper-actions-1");
/// (Machine id, rule and badge) -> when it was noted. Gone with the machine.
pub const REAPER_RECORDED: Table<(&str, &str), Timestamp> = Table::new("reaper-noted-1");

/// (Team in upper case or nothing, stored name) -> sealed value. Written by operators; a handful a
/// team, gone with its mapping.
pub const SECRETS: Table<(&str, &str), SealedSecret> = Table::new("secrets-1");
/// Name -> value of a setting that operators changed. A handful.
pub const SETTINGS: Table<&str, String> = Table::new("settings-1");

/// Sequence -> who did what. Written with what it tells of; only ever added to.
pub const AUDIT: Table<u64, AuditEntry> = Table::new("audit-1");

/// What is done with every table.
pub trait TableVisitor {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        shelf: &Table<K, V>,
    ) -> StoreResult<()>;
}

/// Shows each of them to the visitor. What is not here is not made, and in no backup.
pub fn visit_all(visitor: &mut impl TableVisitor) -> StoreResult<()> {
    visitor.visit(&META)?;
    visitor.visit(&MAPPINGS)?;
    visitor.visit(&MAPPINGS_BY_REPO)?;
    visitor.visit(&JOBS)?;
    visitor.visit(&JOBS_ACTIVE)?;
    visitor.visit(&JOBS_BY_ISSUE)?;
    visitor.visit(&JOBS_BY_PULL)?;
    visitor.visit(&JOBS_BY_NONCE)?;
    visitor.visit(&SESSION_EVENTS)?;
    visitor.visit(&PULLS)?;
    visitor.visit(&REVIEW_FINDINGS)?;
    visitor.visit(&REVIEW_FINDINGS_UNRESOLVED)?;
    visitor.visit(&COMMANDS)?;
    visitor.visit(&COMMANDS_WAITING)?;
    visitor.visit(&WEBHOOK_DELIVERIES)?;
    visitor.visit(&WEBHOOK_DELIVERIES_BY_TIME)?;
    visitor.visit(&STEPS)?;
    visitor.visit(&STEP_TALLIES)?;
    visitor.visit(&PATCHES)?;
    visitor.visit(&DEDUP)?;
    visitor.visit(&BREAKER_FAILURES)?;
    visitor.visit(&PARKED_ISSUES)?;
    visitor.visit(&PROVIDER_LIMITS)?;
    visitor.visit(&PROVIDER_LIMIT_HITS)?;
    visitor.visit(&USAGE_BY_MAPPING)?;
    visitor.visit(&USAGE_BY_ISSUE)?;
    visitor.visit(&ISSUE_CONTEXTS)?;
    visitor.visit(&DECISIONS)?;
    visitor.visit(&ISSUE_WAITS)?;
    visitor.visit(&OUTBOX)?;
    visitor.visit(&OUTBOX_HEADS)?;
    visitor.visit(&OUTBOX_DEAD)?;
    visitor.visit(&TEMPLATE_SYNCS)?;
    visitor.visit(&ADMIN_TOKENS)?;
    visitor.visit(&REAPER_ACTIONS)?;
    visitor.visit(&REAPER_RECORDED)?;
    visitor.visit(&SECRETS)?;
    visitor.visit(&SETTINGS)?;
    visitor.visit(&AUDIT)
}

/// Makes all of them, so that a snapshot never meets a missing table.
pub fn create_all(tx: &WriteTransaction) -> StoreResult<()> {
    visit_all(&mut Maker(tx))
}

struct Maker<'t>(&'t WriteTransaction);

impl TableVisitor for Maker<'_> {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        shelf: &Table<K, V>,
    ) -> StoreResult<()> {
        shelf.create(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names(Vec<&'static str>);

    impl TableVisitor for Names {
        fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
            &mut self,
            shelf: &Table<K, V>,
        ) -> StoreResult<()> {
            self.0.push(shelf.name());
            Ok(())
        }
    }

    #[test]
    fn every_table_of_this_file_is_visited_once() {
        let mut visited = Names(Vec::new());
        visit_all(&mut visited).unwrap();
        let source = include_str!("tables.rs");
        let named = |name: &&str| source.contains(&format!("Shelf::new(\"{name}\")"));
        assert!(visited.0.iter().all(named));
        let declared = source.lines().filter(|line| line.starts_with("pub const "));
        assert_eq!(declared.count(), visited.0.len());
        visited.0.sort_unstable();
        visited.0.dedup();
        assert_eq!(visited.0.len(), source.matches("= Shelf::new(\"").count());
    }
}
