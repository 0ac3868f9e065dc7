//! Incidents: vendors that are rate limited or do not answer at the moment.
//!
//! The HTTP client of each vendor knows whether the vendor answered the latest request. An incident therefore
//! begins with the first request that fails and ends with the first that is answered, whichever task sends it.
//! It is kept in memory: after a restart the first request that fails begins it again.

use std::collections::{BTreeMap, HashSet};

use crate::app::{App, PolledIssue, Vendors};
use domain::decision::{DecisionOutcome, WaitReason};
use domain::effect::Effect;
use domain::ids::{IssueId, Repo, TeamKey};
use domain::time::{Timestamp, duration_text};
use domain::vendor::Vendor;
use store::outbox::OutboxEntry;
use store::{ReadableTx, StoreResult, jobs, mappings, outbox};
use vendors::http::{Availability, now_millis};
use vendors::scm::{GitHub, RateLimitScope};

/// Kind of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentKind {
    /// The vendor accepts no requests before a known time.
    RateLimited,
    /// The vendor does not answer, or answers with server errors.
    Unreachable,
}

impl IncidentKind {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            IncidentKind::RateLimited => "rate-limited",
            IncidentKind::Unreachable => "unreachable",
        }
    }
}

/// Incident of a vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Vendor.
    pub vendor: Vendor,
    /// Kind.
    pub kind: IncidentKind,
    /// Time of the first request that failed.
    pub since: Timestamp,
    /// End of the rate limit. `None` for a vendor that does not answer.
    pub until: Option<Timestamp>,
    /// Requests that are rejected.
    pub scope: RateLimitScope,
}

/// Work that an incident delays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingWork {
    /// Number of issues that wait.
    pub issues: usize,
    /// Number of updates that wait in the outbox. Starts of runs count as issues.
    pub updates: usize,
}

impl Incident {
    /// Returns what the vendor is, without a period: `Linear is rate limited`.
    pub fn headline(&self) -> String {
        let vendor = self.vendor;
        match (self.kind, self.scope) {
            (IncidentKind::Unreachable, _) => format!("{vendor} is unreachable"),
            (IncidentKind::RateLimited, RateLimitScope::AllRepositories) => {
                format!("{vendor} is rate limited")
            }
            (IncidentKind::RateLimited, RateLimitScope::SomeRepositories) => {
                format!("{vendor} is rate limited for some repositories")
            }
            (IncidentKind::RateLimited, RateLimitScope::GraphQl) => {
                format!("{vendor} is rate limited for GraphQL requests")
            }
        }
    }

    /// Whether new runs wait for the end of the incident.
    pub fn stops_dispatch(&self) -> bool {
        match self.vendor {
            Vendor::Linear | Vendor::Jira | Vendor::GitHub => self.scope != RateLimitScope::GraphQl,
            Vendor::FlyMachines | Vendor::ContainerEngine | Vendor::Kubernetes | Vendor::Chat => {
                false
            }
        }
    }

    /// Returns the consequence, as a sentence.
    pub fn affects(&self) -> &'static str {
        match self.vendor {
            Vendor::Linear | Vendor::Jira => {
                "Nothing new starts for its issues. Status and comments there are updated later."
            }
            Vendor::GitHub => match self.scope {
                RateLimitScope::AllRepositories => {
                    "No CI runs start. Pull requests and their comments are updated later."
                }
                RateLimitScope::SomeRepositories => {
                    "No CI runs start there. Pull requests and their comments are updated later."
                }
                RateLimitScope::GraphQl => {
                    "GitHub Issues and reviews are read, and pull requests marked as drafts, later. Other runs start."
                }
            },
            Vendor::FlyMachines => "No machines start or stop.",
            Vendor::ContainerEngine => "No containers start or stop.",
            Vendor::Kubernetes => "No Kubernetes Jobs start or stop.",
            Vendor::Chat => "Chat messages arrive later.",
        }
    }

    /// Returns the incident in one line: until when, the consequence, and what waits.
    pub fn message(&self, waiting: WaitingWork) -> String {
        // Its times are by the clock of the HTTP clients.
        self.message_at(waiting, Timestamp::from_millis(now_millis()))
    }

    fn message_at(&self, waiting: WaitingWork, now: Timestamp) -> String {
        let headline = self.headline();
        let time = match self.until {
            Some(until) => format!(
                "until {} (in {})",
                until.clock_text(now),
                duration_text(until.since(now))
            ),
            None => format!(
                "since {} ({})",
                self.since.clock_text(now),
                duration_text(now.since(self.since))
            ),
        };
        let consequence = match self.vendor {
            Vendor::Linear | Vendor::Jira => "Nothing new starts",
            Vendor::GitHub => match self.scope {
                RateLimitScope::AllRepositories => "No CI runs start",
                RateLimitScope::SomeRepositories => "No CI runs start there",
                RateLimitScope::GraphQl => "GitHub Issues and reviews are read later",
            },
            Vendor::FlyMachines => "No machines start",
            Vendor::ContainerEngine => "No containers start",
            Vendor::Kubernetes => "No Kubernetes Jobs start",
            Vendor::Chat => "Chat messages arrive later",
        };
        format!("{headline} {time}. {consequence}{}.", waiting.clause())
    }
}

impl WaitingWork {
    /// Returns the rest of a sentence: `; 180 issues wait`.
    fn clause(self) -> String {
        let count = |count: usize, noun: &str| match count {
            0 => None,
            1 => Some(format!("1 {noun}")),
            _ => Some(format!("{count} {noun}s")),
        };
        let parts: Vec<String> = [count(self.issues, "issue"), count(self.updates, "update")]
            .into_iter()
            .flatten()
            .collect();
        match (parts.is_empty(), self.issues + self.updates) {
            (true, _) => String::new(),
            (false, 1) => format!("; {} waits", parts.join(" and ")),
            (false, _) => format!("; {} wait", parts.join(" and ")),
        }
    }
}

/// Incidents of all vendors at the moment, one per vendor.
pub fn current(vendors: &Vendors) -> BTreeMap<Vendor, Incident> {
    let ticketing = vendors
        .ticketing
        .iter()
        .map(|account| (account.system().into(), account.availability()));
    let github = vendors.github.iter();
    let github = github.map(|github| (Vendor::GitHub, github.availability()));
    let hosts = vendors.sessions.availability();
    let hosts = hosts.map(|(host, availability)| (Vendor::from(host), availability));
    let chat = vendors.chat.iter();
    let chat = chat.map(|chat| (Vendor::Chat, chat.availability()));
    ticketing
        .chain(github)
        .chain(hosts)
        .chain(chat)
        .filter_map(|(vendor, availability)| Some((vendor, incident(vendor, &availability)?)))
        .map(|(vendor, incident)| (vendor, scoped(incident, vendors)))
        .collect()
}

/// Adds the scope of the rate limits of GitHub, the only vendor with several accounts.
fn scoped(incident: Incident, vendors: &Vendors) -> Incident {
    let github = vendors.github.as_ref();
    let github = github.filter(|_| incident.vendor == Vendor::GitHub);
    let scope = github.and_then(GitHub::rate_limit_scope);
    Incident {
        scope: scope.unwrap_or(incident.scope),
        ..incident
    }
}

/// Incident of a vendor; `None` if it answers. A rate limit comes first, because nothing is sent before its end.
fn incident(vendor: Vendor, availability: &Availability) -> Option<Incident> {
    let limits = &availability.rate_limits;
    let limited = limits.iter().map(|limit| (limit.since, limit.until));
    let limited = limited.reduce(|(since, until), other| (since.min(other.0), until.max(other.1)));
    let (kind, since, until) = match (limited, &availability.outage) {
        (Some((since, until)), _) => (IncidentKind::RateLimited, since, Some(until)),
        (None, Some(outage)) => (IncidentKind::Unreachable, outage.since, None),
        (None, None) => return None,
    };
    Some(Incident {
        vendor,
        kind,
        since: Timestamp::from_millis(since),
        until: until.map(Timestamp::from_millis),
        scope: RateLimitScope::AllRepositories,
    })
}

/// Returns the incident that delays an effect, if one does.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn delaying<'i>(
    tx: &impl ReadableTx,
    vendors: &Vendors,
    effect: &Effect,
    incidents: &'i BTreeMap<Vendor, Incident>,
) -> StoreResult<Option<&'i Incident>> {
    for vendor in vendors_of(tx, effect)? {
        let Some(incident) = incidents.get(&vendor) else {
            continue;
        };
        let delays = match (incident.scope, effect) {
            (RateLimitScope::AllRepositories, _) => true,
            (RateLimitScope::GraphQl, _) => matches!(effect, Effect::SetDraft { .. }),
            (RateLimitScope::SomeRepositories, Effect::StartRun { job, .. }) => {
                jobs::get(tx, job)?.is_some_and(|job| is_limited(vendors, &job.repo))
            }
            (RateLimitScope::SomeRepositories, _) => {
                effect.repo().is_some_and(|repo| is_limited(vendors, repo))
            }
        };
        if delays {
            return Ok(Some(incident));
        }
    }
    Ok(None)
}

fn is_limited(vendors: &Vendors, repo: &Repo) -> bool {
    let github = vendors.github.as_ref();
    github.is_some_and(|github| github.limited_until(repo).is_some())
}

/// Vendors without which an effect cannot be performed, the first request first.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn vendors_of(tx: &impl ReadableTx, effect: &Effect) -> StoreResult<Vec<Vendor>> {
    let runner = match effect {
        Effect::StartRun { job, .. } | Effect::StopRun { job, .. } => {
            jobs::run_state(tx, job)?.map(|job| job.runner)
        }
        _ => None,
    };
    Ok(effect.vendors(runner))
}

/// Counts the work that each incident delays: issues that wait in the latest poll, and outbox entries.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn waiting_work(
    tx: &impl ReadableTx,
    app: &App,
    incidents: &BTreeMap<Vendor, Incident>,
) -> StoreResult<BTreeMap<Vendor, WaitingWork>> {
    let mut waiting = BTreeMap::new();
    if incidents.is_empty() {
        return Ok(waiting);
    }
    let mut issues: BTreeMap<Vendor, HashSet<IssueId>> = BTreeMap::new();
    for OutboxEntry { effect, .. } in outbox::pending(tx)? {
        let Some(incident) = delaying(tx, &app.vendors, &effect, incidents)? else {
            continue;
        };
        match &effect {
            Effect::StartRun { issue, .. } => {
                let of_vendor = issues.entry(incident.vendor).or_default();
                of_vendor.insert(issue.id.clone());
            }
            _ => {
                let of_vendor = waiting.entry(incident.vendor);
                of_vendor.or_insert_with(WaitingWork::default).updates += 1;
            }
        }
    }
    let limited_teams = limited_teams(tx, app)?;
    for (system, snapshot) in app.live.poll_snapshots.all() {
        let waits = |polled: &&PolledIssue| polled.decision.outcome == DecisionOutcome::Waiting;
        for polled in snapshot.issues.iter().filter(waits) {
            let id = &polled.issue.issue.id;
            issues.entry(system.into()).or_default().insert(id.clone());
            let is_quota = polled.decision.reason == Some(WaitReason::Quota);
            if is_quota && limited_teams.contains(&polled.issue.team) {
                issues.entry(Vendor::GitHub).or_default().insert(id.clone());
            }
        }
    }
    for (vendor, issues) in issues {
        waiting
            .entry(vendor)
            .or_insert_with(WaitingWork::default)
            .issues = issues.len();
    }
    Ok(waiting)
}

/// Teams whose repository is behind a rate limit of GitHub.
fn limited_teams(tx: &impl ReadableTx, app: &App) -> StoreResult<HashSet<TeamKey>> {
    let limited = mappings::all(tx)?
        .into_iter()
        .filter(|mapping| is_limited(&app.vendors, &mapping.target_repo()));
    Ok(limited.map(|mapping| mapping.team_key).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_228_800_000);

    fn incident(vendor: Vendor, until: Option<Duration>) -> Incident {
        Incident {
            vendor,
            kind: match until {
                Some(_) => IncidentKind::RateLimited,
                None => IncidentKind::Unreachable,
            },
            since: NOW - Duration::from_secs(5 * 60),
            until: until.map(|wait| NOW + wait),
            scope: RateLimitScope::AllRepositories,
        }
    }

    #[test]
    fn a_message_states_the_time_the_consequence_and_what_waits() {
        let limited = incident(Vendor::Linear, Some(Duration::from_secs(44 * 60)));
        let down = incident(Vendor::ContainerEngine, None);
        let work = |issues, updates| WaitingWork { issues, updates };
        for (incident, waiting, expected) in [
            (
                &limited,
                work(180, 0),
                "Linear is rate limited until 03:24 UTC (in 44 min). Nothing new starts; 180 issues wait.",
            ),
            (
                &limited,
                work(0, 1),
                "Linear is rate limited until 03:24 UTC (in 44 min). Nothing new starts; 1 update waits.",
            ),
            (
                &down,
                work(1, 1),
                "Container engine is unreachable since 02:35 UTC (5 min). No containers start; \
                 1 issue and 1 update wait.",
            ),
            (
                &down,
                work(0, 0),
                "Container engine is unreachable since 02:35 UTC (5 min). No containers start.",
            ),
        ] {
            assert_eq!(incident.message_at(waiting, NOW), expected);
        }
    }
}
