//! Fault injection between a vendor and its client.
//!
//! Only decides which fault a request gets; the HTTP server performs it. Precedence: faults that a
//! test queued (`inject_next`, `inject_on_match`), then outage, then rate limit, then random faults.
//! A test that queues a fault therefore always gets that fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use super::persistence::lock;

/// Fake service with its own fault injector and its own name in the request log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FakeService {
    /// Linear GraphQL API.
    Linear,
    /// GitHub REST and GraphQL API.
    GitHub,
    /// Incoming webhooks of Slack and Teams.
    Chat,
    /// Git over HTTP. Without faults unless a test sets its rates.
    Git,
    /// Jira Cloud REST API.
    Jira,
    /// Fly Machines API.
    Fly,
    /// Docker Engine API.
    Docker,
    /// Kubernetes API.
    Kubernetes,
    /// Bucket for backups.
    Bucket,
}

impl FakeService {
    /// Returns the service's name in the request log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::GitHub => "github",
            Self::Chat => "chat",
            Self::Git => "git",
            Self::Jira => "jira",
            Self::Fly => "fly",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
            Self::Bucket => "bucket",
        }
    }
}

/// Fault probabilities per request (0 to 1), and a delay for every request.
#[derive(Clone, Debug, Default)]
pub struct FaultRates {
    /// Delay of every request.
    pub latency: Duration,
    /// Probability of a 500 response without the request's effect.
    pub error_rate: f64,
    /// Probability of a dropped connection without the request's effect.
    pub drop_request_rate: f64,
    /// Probability of a dropped connection after the request's effect is stored.
    pub drop_response_rate: f64,
}

/// Fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Responds with this status; the request has no effect.
    ErrorStatus(u16),
    /// Closes the connection without a response; the request has no effect.
    DropRequest,
    /// Closes the connection without a response after the request's effect is stored.
    DropResponse,
    /// Responds with this status after the request's effect is stored.
    ReplaceResponseStatus(u16),
    /// Responds with the vendor's own rate-limit error, which resets after this duration.
    RateLimited(Duration),
    /// Performs the request at once and delays the response.
    DelayResponse(Duration),
    /// Performs the request at once and holds the response until [`FaultInjector::release`].
    HoldResponse,
    /// Delays the request. It takes effect even if the client has disconnected by then.
    DelayRequest(Duration),
}

struct Inner {
    rates: FaultRates,
    rng: fastrand::Rng,
    outage: bool,
    limited_until: Option<SystemTime>,
    /// Queued faults. With a text, the fault applies to the first request that contains it.
    queued: VecDeque<(Option<String>, InjectedFault)>,
    injected: Vec<(String, InjectedFault)>,
    /// Number of responses that are held.
    held: usize,
    /// Notified when held responses are released.
    released: Arc<Notify>,
}

/// Fault injector of one service. Clones share their state.
#[derive(Clone)]
pub struct FaultInjector(Arc<Mutex<Inner>>);

impl Default for FaultInjector {
    fn default() -> Self {
        Self::with_seed(0x5eed)
    }
}

impl FaultInjector {
    /// Creates an injector whose random faults are the same in every run.
    pub fn with_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            rates: FaultRates::default(),
            rng: fastrand::Rng::with_seed(seed),
            outage: false,
            limited_until: None,
            queued: VecDeque::new(),
            injected: Vec::new(),
            held: 0,
            released: Arc::default(),
        })))
    }

    /// Sets the probabilities of random faults and the latency.
    pub fn set_rates(&self, rates: FaultRates) {
        lock(&self.0).rates = rates;
    }

    /// Queues a fault for the next request.
    pub fn inject_next(&self, fault: InjectedFault) {
        lock(&self.0).queued.push_back((None, fault));
    }

    /// Queues a fault for the next request whose `METHOD path?query body` contains `text`.
    pub fn inject_on_match(&self, text: &str, fault: InjectedFault) {
        lock(&self.0)
            .queued
            .push_back((Some(text.to_owned()), fault));
    }

    /// Starts or ends an outage: every request gets a 503 with the HTML page of a proxy.
    pub fn set_outage(&self, on: bool) {
        lock(&self.0).outage = on;
    }

    /// Rejects every request with the vendor's rate-limit error until then; `None` lifts the limit.
    pub fn rate_limit_until(&self, until: Option<SystemTime>) {
        lock(&self.0).limited_until = until;
    }

    /// Removes all faults: rates, outage, rate limit, queued faults and held responses.
    pub fn clear(&self) {
        let mut inner = lock(&self.0);
        inner.rates = FaultRates::default();
        inner.outage = false;
        inner.limited_until = None;
        inner.queued.clear();
        inner.release();
    }

    /// Returns the number of responses that are held. Their requests have taken effect.
    pub fn held(&self) -> usize {
        lock(&self.0).held
    }

    /// Sends all responses that are held.
    pub fn release(&self) {
        lock(&self.0).release();
    }

    /// Waits until the next release.
    pub(crate) async fn hold(&self) {
        let released = lock(&self.0).released.clone();
        let next = {
            let mut inner = lock(&self.0);
            inner.held += 1;
            released.notified()
        };
        next.await;
    }

    /// Returns the number of queued faults that have not been injected.
    pub fn pending(&self) -> usize {
        lock(&self.0).queued.len()
    }

    /// Returns the injected faults so far, each with its request as `METHOD path?query`.
    pub fn injected(&self) -> Vec<(String, InjectedFault)> {
        lock(&self.0).injected.clone()
    }

    pub(crate) fn latency(&self) -> Duration {
        lock(&self.0).rates.latency
    }

    /// Chooses the fault of one request, if any, and records it.
    pub(crate) fn sample(&self, line: &str, body: &[u8]) -> Option<InjectedFault> {
        let mut inner = lock(&self.0);
        let fault = inner.draw(line, body);
        if let Some(fault) = fault {
            inner.injected.push((line.to_owned(), fault));
        }
        fault
    }
}

impl Inner {
    fn release(&mut self) {
        self.held = 0;
        self.released.notify_waiters();
    }

    fn draw(&mut self, line: &str, body: &[u8]) -> Option<InjectedFault> {
        let body = String::from_utf8_lossy(body);
        let queued = self.queued.iter().position(|(text, _)| {
            text.as_ref()
                .is_none_or(|text| line.contains(text.as_str()) || body.contains(text.as_str()))
        });
        if let Some((_, fault)) = queued.and_then(|at| self.queued.remove(at)) {
            return Some(fault);
        }
        if self.outage {
            return Some(InjectedFault::ErrorStatus(503));
        }
        if let Some(left) = self
            .limited_until
            .and_then(|until| until.duration_since(SystemTime::now()).ok())
        {
            return Some(InjectedFault::RateLimited(left));
        }
        let roll = self.rng.f64();
        let FaultRates {
            error_rate: error,
            drop_request_rate: drop_before,
            drop_response_rate: drop_after,
            ..
        } = self.rates;
        if roll < error {
            Some(InjectedFault::ErrorStatus(500))
        } else if roll < error + drop_before {
            Some(InjectedFault::DropRequest)
        } else if roll < error + drop_before + drop_after {
            Some(InjectedFault::DropResponse)
        } else {
            None
        }
    }
}
