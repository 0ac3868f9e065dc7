//! Service of a model: driven step by step on a manual clock, stopped, and killed.

use std::time::Duration;

use domain::mapping::Mapping;
use engine::clock::Clock;

use super::poll_limited::PollLimited;
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// The engine's clock starts this far behind the fake vendors' clock and never catches up, so a listing
/// since any engine time contains everything.
const CLOCK_OFFSET: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Service with fake vendors, whose runs are played by the model.
pub struct ModelService {
    /// `None` only while the service is stopped.
    env: Option<TestEnv>,
    pub clock: Clock,
    flags: Vec<(&'static str, String)>,
}

impl ModelService {
    /// Starts the service with these mappings, and with further flags.
    pub async fn start(mappings: Vec<Mapping>, flags: Vec<(&'static str, String)>) -> Self {
        let mut service = Self {
            env: None,
            clock: Clock::manual(Clock::System.now() - CLOCK_OFFSET),
            flags,
        };
        service.env = Some(TestEnv::with_options(service.options(mappings)).await);
        service
    }

    fn options(&self, mappings: Vec<Mapping>) -> TestEnvOptions {
        TestEnvOptions {
            mappings,
            extra_flags: self.flags.clone(),
            engine: EngineMode::Manual(self.clock.clone()),
            fake_runs: true,
            ..TestEnvOptions::default()
        }
    }

    pub fn env(&self) -> &TestEnv {
        self.env.as_ref().unwrap()
    }

    /// Stops the service, and starts it again with the same store and vendors.
    pub async fn restart(&mut self) {
        let stopped = self.env.take().unwrap().stop_service().await;
        self.env = Some(stopped.start_service(self.options(Vec::new())).await);
    }

    /// Kills the service in the middle of a tick, after this many polls of its future. Requests that vendors have
    /// received are still processed.
    pub async fn kill(&mut self, polls: usize) {
        PollLimited::new(polls, self.env().tick()).await;
        self.env().vendors.wait_idle().await;
        self.restart().await;
    }

    /// Stops everything.
    pub async fn stop(mut self) {
        let stopped = self.env.take().unwrap().stop_service().await;
        stopped.vendors.stop_and_kill_runs().await;
    }
}
