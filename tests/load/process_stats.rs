//! What the system says of the service's process, once a second.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The process at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSample {
    pub at: Instant,
    /// Bytes that are in memory.
    pub resident_bytes: u64,
    /// The same, of what is shared with others its share; 0 where the system does not tell.
    pub proportional_bytes: u64,
    /// Seconds on a processor since it began.
    pub cpu_seconds: f64,
    pub descriptors: usize,
}

/// Looks on until it is told to stop.
pub struct ProcessSampler {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<ProcessSample>>,
}

impl ProcessSampler {
    pub fn start(process: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut samples, began) = (Vec::new(), Instant::now());
            while !told.load(Ordering::Relaxed) {
                samples.extend(sample(process));
                let next = Duration::from_secs(samples.len() as u64);
                std::thread::sleep(next.saturating_sub(began.elapsed()));
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

/// None once it has ended.
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
        // Linux counts a hundred ticks a second for everybody.
        cpu_seconds: ticks / 100.0,
        descriptors: fs::read_dir(format!("{dir}/fd")).ok()?.count(),
    })
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The middle of them; 0 of none.
pub fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
