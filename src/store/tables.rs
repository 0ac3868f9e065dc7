//! All tables. Names end with a generation number, so that a migration can read the previous generation.

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
use domain::plan_approval::PlanGate;
use domain::question::OpenQuestion;
use domain::scoreboard::{RunCounts, ScoreCounts};
use domain::take_over::TakeOver;
use domain::time::Timestamp;

use super::StoreResult;
use super::admin_tokens::AdminToken;
use super::changed_files::PullFiles;
use super::decisions::DecisionHistory;
use super::dedup::DedupEntry;
use super::dispatch_breaker::ParkedIssue;
use super::evidence::EvidenceSet;
use super::github_app_states::GitHubAppState;
use super::issue_waits::IssueWait;
use super::open_tables::TableKey;
use super::outbox::OutboxEntry;
use super::provider_limits::ProviderLimit;
use super::reaper_log::ReaperAction;
use super::run_logs::{LogChunk, RunLog};
use super::secrets::SealedSecret;
use super::steps::{StepRow, StepTally};
use super::table::Table;
use super::template_syncs::SyncRecord;
use super::ticket_commands::CommentCursor;
use super::usage::{IssueUsage, MappingUsage};
use super::webhook_deliveries::WebhookDelivery;

/// Name -> schema version and counters. A few rows.
pub(crate) const META: Table<&str, Value> = Table::new("meta-1");

/// Team key -> mapping. Written by operators; one row per project.
pub(crate) const MAPPINGS: Table<&str, Mapping> = Table::new("mappings-1");
/// (Target repository in lower case, team key) -> repository as the mapping spells it. Written with the
/// mappings.
pub(crate) const MAPPINGS_BY_REPO: Table<(&str, &str), Repo> = Table::new("mappings-by-repo-1");

/// Job id (sorts by time) -> job. Written by every event of a run; never removed.
pub(crate) const JOBS: Table<&str, Job> = Table::new("jobs-1");
/// Ids of active jobs. One row per active run.
pub(crate) const JOBS_ACTIVE: Table<&str, ()> = Table::new("jobs-active-1");
/// (Issue id, job id). Grows with the jobs.
pub(crate) const JOBS_BY_ISSUE: Table<(&str, &str), ()> = Table::new("jobs-by-issue-1");
/// (Repository, pull request number, job id). Grows with the jobs.
pub(crate) const JOBS_BY_PULL: Table<(&str, u64, &str), ()> = Table::new("jobs-by-pull-1");
/// (State class and kind, job id). Changes with the state of the jobs.
pub(crate) const JOBS_BY_STATE: Table<(&str, &str), ()> = Table::new("jobs-by-state-1");
/// (Team key, state class and kind, job id). Changes with the state of the jobs.
pub(crate) const JOBS_BY_TEAM: Table<(&str, &str, &str), ()> = Table::new("jobs-by-team-1");
/// (Issue key in upper case, job id). Grows with the jobs.
pub(crate) const JOBS_BY_ISSUE_KEY: Table<(&str, &str), ()> = Table::new("jobs-by-issue-key-1");
/// (End in milliseconds, job id) of runs of issues that failed in the last week.
pub(crate) const FAILED_RUNS: Table<(u64, &str), ()> = Table::new("failed-runs-1");

/// (Real or shadow runs, hour, team key) -> counters. Written with the jobs; rows of 31 days.
pub(crate) const RUN_HOURS: Table<(&str, u64, &str), RunCounts> = Table::new("run-hours-1");
/// (Real or shadow runs, day, team key) -> counters. Written with the jobs; one row per day and team.
pub(crate) const RUN_DAYS: Table<(&str, u64, &str), RunCounts> = Table::new("run-days-1");
/// (Dimension, day, key) -> counters. Written with jobs, pull requests and decisions; a few rows per day.
pub(crate) const SCORE_DAYS: Table<(&str, u64, &str), ScoreCounts> = Table::new("score-days-1");
/// (Dimension, first day of a month, key) -> sum of its days. Written with the days.
pub(crate) const SCORE_MONTHS: Table<(&str, u64, &str), ScoreCounts> = Table::new("score-months-1");
/// (Dimension, first day of a month) -> number of keys with a row of their own in the month.
pub(crate) const SCORE_KEYS: Table<(&str, u64), u64> = Table::new("score-keys-1");

/// Hash of a session's nonce -> job id. Written when a session starts; grows with the sessions.
pub(crate) const JOBS_BY_NONCE: Table<&str, JobId> = Table::new("jobs-by-nonce-1");

/// (Job id, identity of an event) of reported session events. A few rows per session.
pub(crate) const SESSION_EVENTS: Table<(&str, &str), ()> = Table::new("session-events-1");

/// (Repository, pull request number) -> record of the pull request. Written by webhooks and reconciliation;
/// one row per pull request.
pub(crate) const PULLS: Table<(&str, u64), PullRequestRecord> = Table::new("pulls-1");
/// Index of [`PULLS`]: open pull requests, with the SHA of their head if it is known.
pub(crate) const OPEN_PULLS: Table<(&str, u64), Option<String>> = Table::new("pulls-open-1");
/// (Repository, pull request number) -> files that an open pull request changes. Written by ends of runs and
/// reconciliation; removed when the pull request is no longer open.
pub(crate) const PULL_FILES: Table<(&str, u64), PullFiles> = Table::new("pull-files-1");
/// Issue id -> files that its plan declares. Written with plans; removed when its pull request is merged.
pub(crate) const DECLARED_FILES: Table<&str, Vec<String>> = Table::new("declared-files-1");
/// (Repository, pull request number, hash of the text) -> finding with its state. Written by webhooks,
/// reconciliation and ends of follow-up runs; kept, so that no feedback is processed twice.
pub(crate) const REVIEW_FINDINGS: Table<(&str, u64, &str), ReviewFinding> =
    Table::new("findings-1");
/// Keys of unresolved findings. Few rows.
pub(crate) const REVIEW_FINDINGS_UNRESOLVED: Table<(&str, u64, &str), ()> =
    Table::new("findings-at-work-1");
/// (Repository, pull request number, comment or job) -> command in a comment. Grows with the commands.
pub(crate) const COMMANDS: Table<(&str, u64, &str), CommentCommand> = Table::new("commands-1");
/// Keys of commands whose run has not started. Few rows.
pub(crate) const COMMANDS_WAITING: Table<(&str, u64, &str), ()> = Table::new("commands-waiting-1");

/// Delivery id -> time of receipt. Removed after the deduplication window.
pub(crate) const WEBHOOK_DELIVERIES: Table<&str, WebhookDelivery> = Table::new("deliveries-1");
/// (Time of receipt in milliseconds, delivery id). Removed with the deliveries.
pub(crate) const WEBHOOK_DELIVERIES_BY_TIME: Table<(u64, &str), ()> =
    Table::new("deliveries-by-time-1");

/// (Job id, step id) -> step. Written by runs, up to the limits of `steps`; never removed. See
/// docs/behaviour.md#steps.
pub(crate) const STEPS: Table<(&str, &str), StepRow> = Table::new("steps-1");
/// Job id -> number and size of its steps, and number of dropped reports. Written with the steps.
pub(crate) const STEP_TALLIES: Table<&str, StepTally> = Table::new("step-tallies-1");

/// Job id -> state of its log. Written with the chunks of the log.
pub(crate) const RUN_LOGS: Table<&str, RunLog> = Table::new("run-logs-1");
/// (Job id, sequence number) -> chunk of the run's log. Written by runs, up to 1 MiB of text each; removed by
/// maintenance.
pub(crate) const RUN_LOG_CHUNKS: Table<(&str, u64), LogChunk> = Table::new("run-log-chunks-1");

/// Job id -> names and sizes of its evidence. Written by runs; removed by maintenance.
pub(crate) const EVIDENCE: Table<&str, EvidenceSet> = Table::new("evidence-1");
/// (Job id, name) -> content of a file in base64. Written with the row of the job, up to 5 MiB each job; removed with it.
pub(crate) const EVIDENCE_FILES: Table<(&str, &str), String> = Table::new("evidence-files-1");

/// Job id -> patch with work that could not be pushed, for `git apply`. Written with the result of a run;
/// never removed, and rare.
pub(crate) const PATCHES: Table<&str, String> = Table::new("patches-1");

/// Issue id -> last dispatch. Removed according to the deduplication rules.
pub(crate) const DEDUP: Table<&str, DedupEntry> = Table::new("dedup-1");

/// (Issue id, phase) -> number of consecutive failures. Removed by a success.
pub(crate) const BREAKER_FAILURES: Table<(&str, &str), u32> = Table::new("breaker-1");
/// Issue id -> parked issue. Removed by an operator.
pub(crate) const PARKED_ISSUES: Table<&str, ParkedIssue> = Table::new("parked-1");

/// Issue id -> time at which an operator requested another run. Removed by the dispatch of the implementation.
pub(crate) const OPERATOR_RETRIES: Table<&str, Timestamp> = Table::new("operator-retries-1");

/// Name of model credentials -> end of their usage limit. Written by runs that hit the limit; one row per
/// repository, team or service with credentials.
pub(crate) const PROVIDER_LIMITS: Table<&str, ProviderLimit> = Table::new("limits-1");
/// (Issue id, phase) -> number of consecutive runs that hit a limit. Removed by a run that did not.
pub(crate) const PROVIDER_LIMIT_HITS: Table<(&str, &str), u32> = Table::new("limit-hits-1");

/// (Month, team key) -> usage of the mapping's runs. Written by ends of jobs; one row per mapping and month.
pub(crate) const USAGE_BY_MAPPING: Table<(&str, &str), MappingUsage> =
    Table::new("usage-by-mapping-1");
/// (Month, team key, issue id) -> usage of the issue's runs. Written by ends of jobs; grows with the issues.
pub(crate) const USAGE_BY_ISSUE: Table<(&str, &str, &str), IssueUsage> =
    Table::new("usage-by-issue-1");

/// Issue id -> its plan and related issues. Written by dispatches and plans; grows with the issues.
pub(crate) const ISSUE_CONTEXTS: Table<&str, IssueContext> = Table::new("contexts-1");

/// Issue key -> its latest decisions. Written when the decision changes.
pub(crate) const DECISIONS: Table<&str, DecisionHistory> = Table::new("ledger-1");

/// Issue id -> wait that lasts until somebody acts. One row per waiting issue.
pub(crate) const ISSUE_WAITS: Table<&str, IssueWait> = Table::new("waiting-1");

/// Issue id -> question that waits for an answer. One row per waiting issue.
pub(crate) const OPEN_QUESTIONS: Table<&str, OpenQuestion> = Table::new("questions-1");
/// Issue id -> plan that waits for an approval, or has one. Removed when the implementation is complete.
pub(crate) const PLAN_GATES: Table<&str, PlanGate> = Table::new("plan-gates-1");
/// Issue id -> person who has taken it over. Removed when it is given back or its pull request is closed; few rows.
pub(crate) const TAKE_OVERS: Table<&str, TakeOver> = Table::new("take-overs-1");
/// (Ticketing system, comment id) -> time at which the command in the comment was carried out. Rows of two weeks.
pub(crate) const TICKET_COMMANDS: Table<(&str, &str), Timestamp> = Table::new("ticket-commands-1");
/// Ticketing system -> how far its comments were read. Three rows.
pub(crate) const COMMENT_CURSORS: Table<&str, CommentCursor> = Table::new("comment-cursors-1");

/// (Queue key, sequence number) -> pending outbox entry. Few rows: effects that were not performed yet.
pub(crate) const OUTBOX: Table<(&str, u64), OutboxEntry> = Table::new("outbox-1");
/// (Due time in milliseconds, queue key) -> sequence number of the first entry of the queue key. One row per
/// queue key.
pub(crate) const OUTBOX_HEADS: Table<(u64, &str), u64> = Table::new("outbox-heads-1");
/// Sequence number -> dead outbox entry. Removed by operators; of chat messages the latest hundred.
pub(crate) const OUTBOX_DEAD: Table<u64, OutboxEntry> = Table::new("outbox-dead-1");

/// Team key -> result of its last template sync. Written by syncs; one row per project.
pub(crate) const TEMPLATE_SYNCS: Table<&str, SyncRecord> = Table::new("syncs-1");

/// Hash of an admin token -> its expiry. Expired rows are removed when a token is issued.
pub(crate) const ADMIN_TOKENS: Table<&str, AdminToken> = Table::new("admin-tokens-1");

/// (Time in milliseconds, machine id) -> action of the reaper. Rows of one day, and the latest hundred.
pub(crate) const REAPER_ACTIONS: Table<(u64, &str), ReaperAction> = Table::new("reaper-actions-1");
/// (Machine id, rule and outcome) -> time of the record. Removed with the machine.
pub(crate) const REAPER_RECORDED: Table<(&str, &str), Timestamp> = Table::new("reaper-noted-1");

/// (Team key in upper case or empty, stored name) -> encrypted value. Written by operators; a few rows per
/// team, removed with its mapping.
pub(crate) const SECRETS: Table<(&str, &str), SealedSecret> = Table::new("secrets-1");
/// (Connection, variable) -> encrypted value of a vendor's credential. Written by operators; a few rows.
pub(crate) const CONNECTIONS: Table<(&str, &str), SealedSecret> = Table::new("connections-1");
/// Hash of a state -> begun creation of a GitHub App. Removed when it ends, or by later ones; at most 20 rows.
pub(crate) const GITHUB_APP_STATES: Table<&str, GitHubAppState> = Table::new("github-app-states-1");
/// Name -> value of a setting that operators changed. A few rows.
pub(crate) const SETTINGS: Table<&str, String> = Table::new("settings-1");

/// Sequence number -> audit entry. Written in the commit of the recorded action; never changed or removed.
pub(crate) const AUDIT: Table<u64, AuditEntry> = Table::new("audit-1");

/// Operation on every table.
pub(crate) trait TableVisitor {
    /// Visits a table.
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        table: &Table<K, V>,
    ) -> StoreResult<()>;
}

/// Visits all tables. A table that is missing here is neither created nor backed up.
pub(crate) fn visit_all(visitor: &mut impl TableVisitor) -> StoreResult<()> {
    visitor.visit(&META)?;
    visitor.visit(&MAPPINGS)?;
    visitor.visit(&MAPPINGS_BY_REPO)?;
    visitor.visit(&JOBS)?;
    visitor.visit(&JOBS_ACTIVE)?;
    visitor.visit(&JOBS_BY_ISSUE)?;
    visitor.visit(&JOBS_BY_PULL)?;
    visitor.visit(&JOBS_BY_STATE)?;
    visitor.visit(&JOBS_BY_TEAM)?;
    visitor.visit(&JOBS_BY_ISSUE_KEY)?;
    visitor.visit(&FAILED_RUNS)?;
    visitor.visit(&RUN_HOURS)?;
    visitor.visit(&RUN_DAYS)?;
    visitor.visit(&SCORE_DAYS)?;
    visitor.visit(&SCORE_MONTHS)?;
    visitor.visit(&SCORE_KEYS)?;
    visitor.visit(&JOBS_BY_NONCE)?;
    visitor.visit(&SESSION_EVENTS)?;
    visitor.visit(&PULLS)?;
    visitor.visit(&OPEN_PULLS)?;
    visitor.visit(&PULL_FILES)?;
    visitor.visit(&DECLARED_FILES)?;
    visitor.visit(&REVIEW_FINDINGS)?;
    visitor.visit(&REVIEW_FINDINGS_UNRESOLVED)?;
    visitor.visit(&COMMANDS)?;
    visitor.visit(&COMMANDS_WAITING)?;
    visitor.visit(&WEBHOOK_DELIVERIES)?;
    visitor.visit(&WEBHOOK_DELIVERIES_BY_TIME)?;
    visitor.visit(&STEPS)?;
    visitor.visit(&STEP_TALLIES)?;
    visitor.visit(&RUN_LOGS)?;
    visitor.visit(&RUN_LOG_CHUNKS)?;
    visitor.visit(&EVIDENCE)?;
    visitor.visit(&EVIDENCE_FILES)?;
    visitor.visit(&PATCHES)?;
    visitor.visit(&DEDUP)?;
    visitor.visit(&BREAKER_FAILURES)?;
    visitor.visit(&PARKED_ISSUES)?;
    visitor.visit(&OPERATOR_RETRIES)?;
    visitor.visit(&PROVIDER_LIMITS)?;
    visitor.visit(&PROVIDER_LIMIT_HITS)?;
    visitor.visit(&USAGE_BY_MAPPING)?;
    visitor.visit(&USAGE_BY_ISSUE)?;
    visitor.visit(&ISSUE_CONTEXTS)?;
    visitor.visit(&DECISIONS)?;
    visitor.visit(&ISSUE_WAITS)?;
    visitor.visit(&OPEN_QUESTIONS)?;
    visitor.visit(&PLAN_GATES)?;
    visitor.visit(&TAKE_OVERS)?;
    visitor.visit(&TICKET_COMMANDS)?;
    visitor.visit(&COMMENT_CURSORS)?;
    visitor.visit(&OUTBOX)?;
    visitor.visit(&OUTBOX_HEADS)?;
    visitor.visit(&OUTBOX_DEAD)?;
    visitor.visit(&TEMPLATE_SYNCS)?;
    visitor.visit(&ADMIN_TOKENS)?;
    visitor.visit(&REAPER_ACTIONS)?;
    visitor.visit(&REAPER_RECORDED)?;
    visitor.visit(&SECRETS)?;
    visitor.visit(&CONNECTIONS)?;
    visitor.visit(&GITHUB_APP_STATES)?;
    visitor.visit(&SETTINGS)?;
    visitor.visit(&AUDIT)
}

/// Creates all tables, so that no snapshot misses one.
pub(crate) fn create_all(tx: &WriteTransaction) -> StoreResult<()> {
    visit_all(&mut TableCreator(tx))
}

struct TableCreator<'t>(&'t WriteTransaction);

impl TableVisitor for TableCreator<'_> {
    fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
        &mut self,
        table: &Table<K, V>,
    ) -> StoreResult<()> {
        table.create(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names(Vec<&'static str>);

    impl TableVisitor for Names {
        fn visit<K: TableKey, V: Serialize + DeserializeOwned>(
            &mut self,
            table: &Table<K, V>,
        ) -> StoreResult<()> {
            self.0.push(table.name());
            Ok(())
        }
    }

    #[test]
    fn visits_every_table_once() {
        let mut visited = Names(Vec::new());
        visit_all(&mut visited).unwrap();
        let source = include_str!("tables.rs");
        let is_declared = |name: &&str| source.contains(&format!("Table::new(\"{name}\")"));
        assert!(visited.0.iter().all(is_declared));
        let declared = source
            .lines()
            .filter(|line| line.contains(" const ") && line.starts_with("pub"));
        assert_eq!(declared.count(), visited.0.len());
        visited.0.sort_unstable();
        visited.0.dedup();
        assert_eq!(visited.0.len(), source.matches("Table::new(\"").count());
    }
}
