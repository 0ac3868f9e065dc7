//! The fault dial: what goes wrong between a vendor and its client.
//!
//! Decides only; the town carries it out. Forced faults (`next`, `next_on`) come before outage and
//! rate limit, and those before chance, so a test that names a fault always gets that one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use super::persistence::lock;

/// The separately dialled parts of the town.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FakeService {
    Linear,
    GitHub,
    Chat,
    /// Git over HTTP: off unless dialled.
    Git,
    Jira,
    Fly,
    Docker,
}

impl FakeService {
    /// The word the request log uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::GitHub => "github",
            Self::Chat => "chat",
            Self::Git => "git",
            Self::Jira => "jira",
            Self::Fly => "fly",
            Self::Docker => "docker",
        }
    }
}

/// Chances in 0..=1 per request, and a delay for all of them.
#[derive(Clone, Debug, Default)]
pub struct FaultRates {
    pub latency: Duration,
    /// Answers 500; nothing happened.
    pub error_rate: f64,
    /// Connection closed without an answer; nothing happened.
    pub drop_request_rate: f64,
    /// It happened and is stored; connection closed without an answer.
    pub drop_response_rate: f64,
}

/// One thing going wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// Answers this status; nothing happened.
    ErrorStatus(u16),
    /// Connection closed without an answer; nothing happened.
    DropRequest,
    /// It happened and is stored; connection closed without an answer.
    DropResponse,
    /// It happened and is stored; the answer is this status.
    ReplaceResponseStatus(u16),
    /// Refused by quota in the vendor's own way; resets after this long.
    RateLimited(Duration),
    /// Answered properly, but late.
    DelayResponse(Duration),
    /// It happens late, and even when the client has gone by then.
    DelayRequest(Duration),
}

struct Inner {
    dial: FaultRates,
    rng: fastrand::Rng,
    outage: bool,
    limited_until: Option<SystemTime>,
    /// Forced faults; one with a text waits for a request that contains it.
    forced: VecDeque<(Option<String>, InjectedFault)>,
    struck: Vec<(String, InjectedFault)>,
}

/// The dial of one vendor. Clones turn the same dial.
#[derive(Clone)]
pub struct FaultInjector(Arc<Mutex<Inner>>);

impl Default for FaultInjector {
    fn default() -> Self {
        Self::with_seed(0x5eed)
    }
}

impl FaultInjector {
    /// A dial whose chances repeat from run to run.
    pub fn with_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            dial: FaultRates::default(),
            rng: fastrand::Rng::with_seed(seed),
            outage: false,
            limited_until: None,
            forced: VecDeque::new(),
            struck: Vec::new(),
        })))
    }

    /// Starts the random sequence again from this seed.
    pub fn reseed(&self, seed: u64) {
        lock(&self.0).rng = fastrand::Rng::with_seed(seed);
    }

    pub fn set_rates(&self, dial: FaultRates) {
        lock(&self.0).dial = dial;
    }

    /// The next request fails like this.
    pub fn inject_next(&self, fault: InjectedFault) {
        lock(&self.0).forced.push_back((None, fault));
    }

    /// The next request whose `METHOD path?query body` contains `text` fails like this.
    pub fn inject_on_match(&self, text: &str, fault: InjectedFault) {
        lock(&self.0)
            .forced
            .push_back((Some(text.to_owned()), fault));
    }

    /// While on, every request is answered 503 by a stranger's proxy page.
    pub fn set_outage(&self, on: bool) {
        lock(&self.0).outage = on;
    }

    /// Every request until then is refused by quota; `None` lifts it.
    pub fn rate_limit_until(&self, until: Option<SystemTime>) {
        lock(&self.0).limited_until = until;
    }

    /// Back to a healthy vendor; forced faults that did not strike are forgotten.
    pub fn clear(&self) {
        let mut inner = lock(&self.0);
        inner.dial = FaultRates::default();
        inner.outage = false;
        inner.limited_until = None;
        inner.forced.clear();
    }

    /// Forced faults that have not struck.
    pub fn pending(&self) -> usize {
        lock(&self.0).forced.len()
    }

    /// What struck so far, with the `METHOD path` it struck.
    pub fn injected(&self) -> Vec<(String, InjectedFault)> {
        lock(&self.0).struck.clone()
    }

    pub(crate) fn latency(&self) -> Duration {
        lock(&self.0).dial.latency
    }

    /// Draws the fate of one request.
    pub(crate) fn sample(&self, line: &str, body: &[u8]) -> Option<InjectedFault> {
        let mut inner = lock(&self.0);
        let fault = inner.draw(line, body);
        if let Some(fault) = fault {
            inner.struck.push((line.to_owned(), fault));
        }
        fault
    }
}

impl Inner {
    fn draw(&mut self, line: &str, body: &[u8]) -> Option<InjectedFault> {
        let body = String::from_utf8_lossy(body);
        let forced = self.forced.iter().position(|(text, _)| {
            text.as_ref()
                .is_none_or(|text| line.contains(text.as_str()) || body.contains(text.as_str()))
        });
        if let Some((_, fault)) = forced.and_then(|at| self.forced.remove(at)) {
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
        } = self.dial;
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
