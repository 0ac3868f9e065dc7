//! Resource usage of the service's process, sampled once a second.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Resource usage at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSample {
    pub at: Instant,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Proportional set size in bytes, or 0 if the system does not report it.
    pub proportional_bytes: u64,
    /// CPU seconds since the start of the process.
    pub cpu_seconds: f64,
    pub descriptors: usize,
}

/// Samples a process until stopped.
pub struct ProcessSampler {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<ProcessSample>>,
}

impl ProcessSampler {
    pub fn start(process: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut samples, started) = (Vec::new(), Instant::now());
            while !stop_flag.load(Ordering::Relaxed) {
                samples.extend(sample(process));
                let next = Duration::from_secs(samples.len() as u64);
                std::thread::sleep(next.saturating_sub(started.elapsed()));
            }
            samples
        });
        Self { stop, thread }
    }

    pub fn stop(self) -> Vec<ProcessSample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Returns `None` once the process has ended.
pub fn sample(process: u32) -> Option<ProcessSample> {
    let dir = format!("/proc/{process}");
    let status = fs::read_to_string(format!("{dir}/status")).ok()?;
    let rollup = fs::read_to_string(format!("{dir}/smaps_rollup")).unwrap_or_default();
    let times = fs::read_to_string(format!("{dir}/stat")).ok()?;
    let fields: Vec<&str> = times.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ProcessSample {
        at: Instant::now(),
        resident_bytes: kilobytes(&status, "VmRSS:")? * 1024,
        proportional_bytes: kilobytes(&rollup, "Pss:").unwrap_or(0) * 1024,
        // Linux reports 100 ticks per second on every architecture.
        cpu_seconds: ticks / 100.0,
        descriptors: fs::read_dir(format!("{dir}/fd")).ok()?.count(),
    })
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Median of the values, or 0 without values.
pub fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
