//! Parts of the time around the agent, from the store of the service, the steps of the run and the clock of the
//! agent.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::ids::IssueId;
use domain::report::StepRecord;
use domain::time::Timestamp;
use fake_vendors::FakeVendors;
use store::{Store, jobs, steps};

use crate::MeasuredTicket;
use crate::support::table::millis;

/// File that the scripted agent writes its clock into.
pub const CLOCK_FILE: &str = "clock.txt";

/// Durations of one run in milliseconds, by name, in order.
pub struct RunParts(Vec<(&'static str, f64)>);

impl RunParts {
    /// Row of the time before the agent.
    pub const BEFORE: &'static str = "before: flag to the agent's first output";
    /// Row of the time after the agent.
    pub const AFTER: &'static str = "after: agent's end to the open pull request";
    /// Row of the clone step.
    pub const CLONE: &'static str = "  clone";

    /// Reads the parts of a run that has ended.
    pub fn read(store: &Store, vendors: &FakeVendors, ticket: &MeasuredTicket) -> Result<Self> {
        let snapshot = ticket.issue.snapshot().context("no ticket")?;
        let issue = IssueId::new(snapshot.id);
        let mut all = store.read(|tx| jobs::of_issue(tx, &issue))?;
        ensure!(all.len() == 1, "{} jobs instead of one", all.len());
        let job = all.remove(0);
        let steps = store.read(|tx| steps::of_job(tx, &job.id))?;
        let steps: BTreeMap<&str, &StepRecord> =
            steps.iter().map(|step| (step.id.as_str(), step)).collect();
        let step = |id: &str| {
            steps
                .get(id)
                .copied()
                .with_context(|| format!("no step {id}"))
        };
        let began = |id: &str| parse(&step(id)?.started_at);
        let ended = |id: &str| parse(step(id)?.ended_at.as_deref().unwrap_or_default());
        let part = |id: &str, name: &str| -> Result<f64> {
            let outputs = step(id)?.outputs.as_ref().context("no outputs")?;
            let value = outputs["milliseconds"][name].as_f64();
            value.with_context(|| format!("step {id} has no time of {name}"))
        };
        let repo = vendors.github().repo("acme", "shop");
        let clock = repo
            .read_file(&ticket.branch, CLOCK_FILE)
            .context("no clock")?;
        let mut clock = clock.lines().map(|line| -> Result<Timestamp> {
            Ok(Timestamp::EPOCH + Duration::from_nanos(line.trim().parse()?))
        });
        let first_output = clock.next().context("the clock is empty")??;
        let last_output = clock.next().context("the clock has one time")??;
        let dispatched = job.dispatched_at.context("not dispatched")?;
        // The program may begin before the response to its start is stored.
        let accepted = dispatched.min(began("clone")?);
        let between = |from: Timestamp, to: Timestamp| millis(to.since(from));
        let staging = between(last_output, ended("implement.1")?);
        Ok(Self(vec![
            (Self::BEFORE, between(ticket.flagged_at, first_output)),
            ("  queue", between(ticket.flagged_at, job.reserved_at)),
            ("  start", between(job.reserved_at, accepted)),
            ("  program", between(accepted, began("clone")?)),
            (Self::CLONE, between(began("clone")?, ended("clone")?)),
            ("    access, mirror, ticket", part("clone", "access")?),
            ("    fetch", part("clone", "fetch")?),
            ("    checkout", part("clone", "checkout")?),
            ("    copy for the agent", part("clone", "copy")?),
            (
                "  install, setup",
                between(ended("clone")?, ended("setup")?),
            ),
            ("  agent start", between(ended("setup")?, first_output)),
            (
                "between: review",
                between(ended("implement.1")?, ended("review.1")?),
            ),
            (
                Self::AFTER,
                staging + between(ended("review.1")?, ticket.opened_at),
            ),
            ("  staging", staging),
            (
                "  guard, commit",
                between(ended("review.1")?, began("push")?) + part("push", "guard")?,
            ),
            ("  push", part("push", "push")?),
            ("  pull request", part("push", "pullRequest")?),
        ]))
    }

    /// Returns the parts with their names.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        self.0.clone()
    }
}

fn parse(text: &str) -> Result<Timestamp> {
    Timestamp::parse(text).with_context(|| format!("no time: {text:?}"))
}
