//! What was found when each connection was last tried.
//!
//! A finding stands for a minute and is shared by all who ask meanwhile, so that a page which many
//! people watch asks a vendor no more often than one of them would.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use serde::Serialize;

use domain::time::Timestamp;

/// How long does a finding stand?
const STANDS_FOR: Duration = Duration::from_secs(60);

/// What the service depends on, or is depended on by. (spec: `GET /api/admin/config-status`)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    #[serde(rename = "ticketing-a")]
    Linear,
    #[serde(rename = "ticketing-b")]
    Jira,
    RepoHost,
    RunnerCallback,
    GapFillTrigger,
    Webhook,
    VmSessions,
    LocalContainers,
    Notifications,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStatus {
    Ok,
    /// Not configured.
    Off,
    Error,
    /// The other side takes no requests for a while.
    Limited,
}

/// How a connection is, and why, in a sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    pub status: ProbeStatus,
    pub detail: String,
    /// Whether the other side did not judge the request: it was not reached, or is out of order.
    pub is_unanswered: bool,
}

impl ProbeResult {
    pub fn new(status: ProbeStatus, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            is_unanswered: false,
        }
    }

    /// An error for which the other side is no witness.
    pub fn unanswered(detail: impl Into<String>) -> Self {
        Self {
            is_unanswered: true,
            ..Self::new(ProbeStatus::Error, detail)
        }
    }
}

/// The last try of each connection.
#[derive(Default)]
pub struct ProbeCache(Mutex<BTreeMap<Connection, Try>>);

type Outcome = Shared<BoxFuture<'static, ProbeResult>>;

struct Try {
    began_at: Timestamp,
    outcome: Outcome,
}

impl ProbeCache {
    /// What the last try of the connection found, or is about to find; the finding of `probe` when
    /// that is too old.
    pub async fn get_or_probe(
        &self,
        connection: Connection,
        now: Timestamp,
        probe: impl Future<Output = ProbeResult> + Send + 'static,
    ) -> ProbeResult {
        self.outcome(connection, now, probe).await
    }

    fn outcome(
        &self,
        connection: Connection,
        now: Timestamp,
        probe: impl Future<Output = ProbeResult> + Send + 'static,
    ) -> Outcome {
        let mut tries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = tries.get(&connection).filter(|last| last.stands(now)) {
            return last.outcome.clone();
        }
        // A task of its own: whoever asked first may go away while others wait.
        let outcome = tokio::spawn(probe)
            .map(|ended| {
                let broke_off = |_| ProbeResult::new(ProbeStatus::Error, "the probe broke off");
                ended.unwrap_or_else(broke_off)
            })
            .boxed()
            .shared();
        let begun = Try {
            began_at: now,
            outcome: outcome.clone(),
        };
        tries.insert(connection, begun);
        outcome
    }
}

impl Try {
    fn stands(&self, now: Timestamp) -> bool {
        // That a vendor is limited is known, and how long, by those who send: not from here.
        let limited = self
            .outcome
            .peek()
            .is_some_and(|finding| finding.status == ProbeStatus::Limited);
        !limited && now >= self.began_at && now.since(self.began_at) < STANDS_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts its tries and finds what it is told to.
    #[derive(Default)]
    struct Host(Arc<AtomicU32>);

    impl Host {
        fn probe(&self, condition: ProbeStatus) -> impl Future<Output = ProbeResult> + 'static {
            let tries = self.0.clone();
            async move {
                tokio::task::yield_now().await;
                let number = tries.fetch_add(1, Ordering::SeqCst) + 1;
                ProbeResult::new(condition, number.to_string())
            }
        }
    }

    async fn find(probes: &ProbeCache, host: &Host, second: u64, condition: ProbeStatus) -> String {
        let now = Timestamp::from_millis(1_000 * second);
        let probe = host.probe(condition);
        probes
            .get_or_probe(Connection::RepoHost, now, probe)
            .await
            .detail
    }

    #[tokio::test]
    async fn a_finding_is_shared_and_stands_for_a_minute() {
        let (probes, host) = (ProbeCache::default(), Host::default());
        let at_once = (0..10).map(|_| find(&probes, &host, 100, ProbeStatus::Ok));
        let told = futures_util::future::join_all(at_once).await;
        assert!(told.iter().all(|number| number == "1"), "{told:?}");
        assert_eq!(find(&probes, &host, 159, ProbeStatus::Ok).await, "1");
        assert_eq!(find(&probes, &host, 160, ProbeStatus::Error).await, "2");
        assert_eq!(find(&probes, &host, 161, ProbeStatus::Ok).await, "2");
        // A clock that was put back must not keep it for longer.
        assert_eq!(find(&probes, &host, 50, ProbeStatus::Limited).await, "3");
        // A limit ends by itself, in its own time.
        assert_eq!(find(&probes, &host, 51, ProbeStatus::Ok).await, "4");
    }

    #[tokio::test]
    async fn a_probe_goes_on_when_nobody_waits_for_it_and_may_break() {
        let (probes, host) = (ProbeCache::default(), Host::default());
        drop(probes.outcome(
            Connection::RepoHost,
            Timestamp::EPOCH,
            host.probe(ProbeStatus::Ok),
        ));
        while host.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(find(&probes, &host, 1, ProbeStatus::Ok).await, "1");
        let broken = async { panic!("on purpose") };
        let now = Timestamp::from_millis(120_000);
        let found = probes.get_or_probe(Connection::RepoHost, now, broken).await;
        assert_eq!(
            found,
            ProbeResult::new(ProbeStatus::Error, "the probe broke off")
        );
    }
}
