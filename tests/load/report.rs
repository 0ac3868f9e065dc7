//! Results of a load test: printed in a quotable form, and checked against the limits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::load_env::{LoadEnv, program};
use crate::measurements::RequestKind;
use crate::process_stats::{ProcessSample, median};
use crate::{ACTIVE_RUNS, LoadPlan, MAX_P99, MAX_PANEL_P99};

pub const MIB: f64 = (1 << 20) as f64;

/// All measurements. Times are seconds since measuring began.
pub struct LoadReport {
    pub plan: LoadPlan,
    pub requests: Vec<RequestStats>,
    pub windows: Vec<WindowStats>,
    pub memory: Vec<MemorySample>,
    /// Fraction of one CPU that the service used.
    busy: f64,
    descriptors: (usize, usize),
    from_metrics: Vec<(&'static str, String)>,
    notes: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
}

/// Latencies of one kind of request.
pub struct RequestStats {
    pub kind: RequestKind,
    pub count: u64,
    pub p50: Duration,
    pub p99: Duration,
    pub max: Duration,
}

/// Latencies of all callbacks of one window.
pub struct WindowStats {
    pub at: f64,
    pub p50: Duration,
    pub p99: Duration,
}

pub struct MemorySample {
    pub at: f64,
    pub resident_bytes: u64,
    pub proportional_bytes: u64,
}

impl LoadReport {
    pub fn collect(
        env: &LoadEnv,
        samples: Vec<ProcessSample>,
        (from, until): (Instant, Instant),
        metrics: &str,
    ) -> Self {
        let kinds = RequestKind::ALL.map(|kind| {
            let seen = env.recorder.histogram(kind);
            RequestStats {
                kind,
                count: seen.count(),
                p50: seen.quantile(0.5),
                p99: seen.quantile(0.99),
                max: seen.max(),
            }
        });
        let window = env.recorder.window_length().as_secs_f64();
        let windows = env.recorder.windows().into_iter().enumerate();
        let measured = |sample: &&ProcessSample| sample.at >= from && sample.at <= until;
        let measured_samples: Vec<&ProcessSample> = samples.iter().filter(measured).collect();
        let (first, last) = (
            measured_samples[0],
            measured_samples[measured_samples.len() - 1],
        );
        let descriptors = measured_samples.iter().map(|sample| sample.descriptors);
        Self {
            plan: env.plan.clone(),
            requests: kinds.into_iter().filter(|row| row.count > 0).collect(),
            windows: windows
                .map(|(at, seen)| WindowStats {
                    at: (at as f64 + 0.5) * window,
                    p50: seen.quantile(0.5),
                    p99: seen.quantile(0.99),
                })
                .filter(|window| window.at < env.plan.duration.as_secs_f64())
                .collect(),
            memory: measured_samples
                .iter()
                .map(|sample| MemorySample {
                    at: (sample.at - from).as_secs_f64(),
                    resident_bytes: sample.resident_bytes,
                    proportional_bytes: sample.proportional_bytes,
                })
                .collect(),
            busy: (last.cpu_seconds - first.cpu_seconds) / (last.at - first.at).as_secs_f64(),
            descriptors: (
                descriptors.clone().min().unwrap_or(0),
                descriptors.max().unwrap_or(0),
            ),
            from_metrics: from_metrics(metrics),
            notes: env.recorder.counters(),
            errors: env.recorder.errors(),
        }
    }

    /// Maximum resident memory in bytes.
    pub fn max_resident(&self) -> u64 {
        let resident = self.memory.iter().map(|memory| memory.resident_bytes);
        resident.max().unwrap_or(0)
    }

    /// Median resident memory of the second and of the last quarter, in bytes.
    pub fn quarter_medians(&self) -> (u64, u64) {
        let span = self.plan.duration.as_secs_f64();
        let quarter = |number: f64| {
            let (from, until) = (span * (number - 1.0) / 4.0, span * number / 4.0);
            let within = self
                .memory
                .iter()
                .filter(move |memory| memory.at >= from && memory.at <= until);
            median(within.map(|memory| memory.resident_bytes))
        };
        (quarter(2.0), quarter(4.0))
    }

    pub fn memory_growth(&self) -> f64 {
        let (second, last) = self.quarter_medians();
        last as f64 / second as f64
    }

    pub fn print(&self) {
        println!(
            "\nload: {} s, {}, seed {}",
            self.plan.duration.as_secs(),
            program().display(),
            self.plan.seed
        );
        println!(
            "{ACTIVE_RUNS} runs report each second, {} webhooks a second, a poll every {} s\n",
            self.plan.webhooks_per_second,
            self.plan.poll_interval.as_secs()
        );
        println!(
            "| {:<20} | {:>8} | {:>9} | {:>9} | {:>9} |",
            "answered", "count", "p50", "p99", "max"
        );
        println!("|{0:-<22}|{0:-<9}:|{0:-<10}:|{0:-<10}:|{0:-<10}:|", "");
        for row in &self.requests {
            let millis = |span: Duration| format!("{:.1} ms", span.as_secs_f64() * 1e3);
            println!(
                "| {:<20} | {:>8} | {:>9} | {:>9} | {:>9} |",
                row.kind.name(),
                row.count,
                millis(row.p50),
                millis(row.p99),
                millis(row.max)
            );
        }
        let (second, last) = self.quarter_medians();
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB);
        let proportional = self.memory.iter().map(|memory| memory.proportional_bytes);
        println!(
            "\nresident: most {}, second quarter {}, last quarter {} ({:+.1} %); proportional: median {}",
            mib(self.max_resident()),
            mib(second),
            mib(last),
            (self.memory_growth() - 1.0) * 100.0,
            mib(median(proportional))
        );
        println!(
            "processor: {:.1} % of one; descriptors: {} to {}",
            self.busy * 100.0,
            self.descriptors.0,
            self.descriptors.1
        );
        for (what, value) in &self.from_metrics {
            println!("{what}: {value}");
        }
        for (what, count) in &self.notes {
            println!("{what}: {count}");
        }
        println!("errors: {:?}", self.errors);
    }

    /// Checks the published limits.
    pub fn assert_limits(&self) {
        assert!(self.errors.is_empty(), "errors: {:#?}", self.errors);
        assert_eq!(
            self.notes.get("backups"),
            Some(&1),
            "one backup was created"
        );
        let windows = self.plan.duration.as_secs() / self.plan.window.as_secs();
        assert!(
            self.windows.len() as u64 >= windows,
            "callbacks in every window"
        );
        let max = self.max_resident();
        assert!(max <= self.plan.max_resident_bytes, "{max} bytes resident");
        let growth = self.memory_growth();
        assert!(growth <= self.plan.max_growth, "memory grew {growth} times");
        // Latencies are meaningful in a release build only.
        if cfg!(debug_assertions) {
            return;
        }
        for row in &self.requests {
            let limit = match row.kind.is_callback() {
                true => MAX_P99,
                false => MAX_PANEL_P99,
            };
            let (name, p99) = (row.kind.name(), row.p99);
            assert!(p99 <= limit, "{name}: p99 is {p99:?}");
        }
    }
}

/// Values that only the service's metrics contain.
fn from_metrics(metrics: &str) -> Vec<(&'static str, String)> {
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    let polls = value("agent_implement_poll_duration_seconds_count");
    let commits = value("agent_implement_store_commit_seconds_count");
    let mean = |sum: &str, count: f64| value(sum) / count.max(1.0);
    let poll = mean("agent_implement_poll_duration_seconds_sum", polls);
    let commit = mean("agent_implement_store_commit_seconds_sum", commits);
    let shared = mean("agent_implement_store_commit_writes_sum", commits);
    vec![
        ("polls", format!("{polls:.0}, on average {poll:.2} s")),
        (
            "commits to the disk",
            format!(
                "{commits:.0}, on average {:.2} ms, shared by {shared:.2} writes",
                commit * 1e3
            ),
        ),
        (
            "store",
            format!("{:.1} MiB", value("agent_implement_store_bytes") / MIB),
        ),
    ]
}
