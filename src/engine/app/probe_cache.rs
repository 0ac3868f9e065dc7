//! Cache of connection probe results.
//!
//! A result is valid for one minute and shared by all callers, so that a page with many viewers
//! does not cause more vendor requests than a page with a single one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use schemars::JsonSchema;
use serde::Serialize;

use domain::time::Timestamp;

/// Lifetime of a probe result.
const TTL: Duration = Duration::from_secs(60);

/// Connection of the service, outbound or inbound. See docs/behaviour.md#configuration-status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// Linear.
    #[serde(rename = "ticketing-a")]
    Linear,
    /// Jira Cloud.
    #[serde(rename = "ticketing-b")]
    Jira,
    /// GitHub.
    RepoHost,
    /// Callback URL, as runs reach it.
    RunnerCallback,
    /// Gap-fill commands on pull requests.
    GapFillTrigger,
    /// Repository webhook.
    Webhook,
    /// Fly Machines.
    VmSessions,
    /// Local container engine.
    LocalContainers,
    /// Kubernetes cluster.
    Kubernetes,
    /// Chat webhook.
    Notifications,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
/// State of a connection.
pub enum ProbeStatus {
    /// Working.
    Ok,
    /// Not configured.
    Off,
    /// Failing; the detail states the reason.
    Error,
    /// Rate limited by the vendor.
    Limited,
}

/// State of a connection, with a sentence for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// State of the connection.
    pub status: ProbeStatus,
    /// Explanation for operators, in one sentence.
    pub detail: String,
    /// Whether the vendor was unreachable or failed, so that the request itself was not judged.
    pub is_unanswered: bool,
}

impl ProbeResult {
    /// Creates the result of a probe that got a response.
    pub fn new(status: ProbeStatus, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            is_unanswered: false,
        }
    }

    /// Creates an error of a vendor that was unreachable or failed.
    pub fn unanswered(detail: impl Into<String>) -> Self {
        Self {
            is_unanswered: true,
            ..Self::new(ProbeStatus::Error, detail)
        }
    }
}

/// Cache of the latest probe of each connection.
#[derive(Default)]
pub struct ProbeCache(Mutex<BTreeMap<Connection, CachedProbe>>);

type Outcome = Shared<BoxFuture<'static, ProbeResult>>;

struct CachedProbe {
    started_at: Timestamp,
    outcome: Outcome,
}

impl ProbeCache {
    /// Returns the result of the latest probe, or waits for the one in progress. Runs `probe` if
    /// the latest result has expired.
    pub async fn get_or_probe(
        &self,
        connection: Connection,
        now: Timestamp,
        probe: impl Future<Output = ProbeResult> + Send + 'static,
    ) -> ProbeResult {
        self.outcome(connection, now, probe).await
    }

    /// Discards the results of these connections. A probe in progress does not count any more.
    pub fn forget(&self, connections: &[Connection]) {
        let mut probes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        probes.retain(|connection, _| !connections.contains(connection));
    }

    fn outcome(
        &self,
        connection: Connection,
        now: Timestamp,
        probe: impl Future<Output = ProbeResult> + Send + 'static,
    ) -> Outcome {
        let mut probes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = probes.get(&connection).filter(|last| last.is_valid(now)) {
            return last.outcome.clone();
        }
        // The probe runs as a separate task, because the first caller may be dropped while others
        // wait.
        let outcome = tokio::spawn(probe)
            .map(|ended| {
                let aborted =
                    |_| ProbeResult::new(ProbeStatus::Error, "the probe ended unexpectedly");
                ended.unwrap_or_else(aborted)
            })
            .boxed()
            .shared();
        let probe = CachedProbe {
            started_at: now,
            outcome: outcome.clone(),
        };
        probes.insert(connection, probe);
        outcome
    }
}

impl CachedProbe {
    fn is_valid(&self, now: Timestamp) -> bool {
        // The vendor client knows the end of a rate limit; a cached result must not outlast it.
        let limited = self
            .outcome
            .peek()
            .is_some_and(|result| result.status == ProbeStatus::Limited);
        !limited && now >= self.started_at && now.since(self.started_at) < TTL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Fake connection that counts its probes and returns the given status.
    #[derive(Default)]
    struct Host(Arc<AtomicU32>);

    impl Host {
        fn probe(&self, status: ProbeStatus) -> impl Future<Output = ProbeResult> + 'static {
            let probes = self.0.clone();
            async move {
                tokio::task::yield_now().await;
                let number = probes.fetch_add(1, Ordering::SeqCst) + 1;
                ProbeResult::new(status, number.to_string())
            }
        }
    }

    async fn find(probes: &ProbeCache, host: &Host, second: u64, status: ProbeStatus) -> String {
        let now = Timestamp::from_millis(1_000 * second);
        let probe = host.probe(status);
        probes
            .get_or_probe(Connection::RepoHost, now, probe)
            .await
            .detail
    }

    #[tokio::test]
    async fn a_result_is_shared_and_valid_for_a_minute() {
        let (probes, host) = (ProbeCache::default(), Host::default());
        let at_once = (0..10).map(|_| find(&probes, &host, 100, ProbeStatus::Ok));
        let results = futures_util::future::join_all(at_once).await;
        assert!(results.iter().all(|number| number == "1"), "{results:?}");
        assert_eq!(find(&probes, &host, 159, ProbeStatus::Ok).await, "1");
        assert_eq!(find(&probes, &host, 160, ProbeStatus::Error).await, "2");
        assert_eq!(find(&probes, &host, 161, ProbeStatus::Ok).await, "2");
        // A clock that was set back must not extend the lifetime.
        assert_eq!(find(&probes, &host, 50, ProbeStatus::Limited).await, "3");
        // A rate limit is never cached.
        assert_eq!(find(&probes, &host, 51, ProbeStatus::Ok).await, "4");
    }

    #[tokio::test]
    async fn a_probe_survives_a_dropped_caller_and_may_panic() {
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
            ProbeResult::new(ProbeStatus::Error, "the probe ended unexpectedly")
        );
    }
}
