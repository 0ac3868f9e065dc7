//! Last lines of each run's output, shown in the panel. Kept in memory only: the runner keeps the
//! whole log, and a restart loses only what the panel showed.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::ids::JobId;

/// Block size, in bytes. All tails use blocks of one size, so that a freed block fits into any
/// other tail and memory does not fragment.
const BLOCK: usize = 1 << 10;

/// Maximum size of one run's tail, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Maximum size of all tails together, in bytes. Above it the longest tail loses its oldest block,
/// so that many concurrent runs keep a shorter tail each and none is lost entirely.
const MAX_ALL_BYTES: usize = 2 << 20;

/// Maximum number of runs with a tail. The run that has been silent the longest is removed first.
const MAX_RUNS: usize = 512;

const _: () = assert!(
    MAX_RUNS * 4 * BLOCK <= MAX_ALL_BYTES,
    "each run can keep a few lines"
);

/// Log tails of the latest runs, ordered by their last output.
#[derive(Default)]
pub struct LogTails(Mutex<VecDeque<Tail>>);

struct Tail {
    job: JobId,
    /// All blocks except the last are full.
    blocks: VecDeque<Vec<u8>>,
    /// Whether older output was dropped.
    is_cut: bool,
}

impl LogTails {
    /// Appends lines to the tail of a job. Secrets must already be redacted.
    pub fn append(&self, job: &JobId, lines: &str) {
        if lines.is_empty() {
            return;
        }
        let mut tails = self.lock();
        let known = tails.iter().position(|tail| tail.job == *job);
        let tail = known.and_then(|at| tails.remove(at));
        tails.push_back(tail.unwrap_or_else(|| Tail::new(job)));
        let surplus = tails.len().saturating_sub(MAX_RUNS);
        tails.drain(..surplus);
        write(&mut tails, lines.as_bytes());
        if !lines.ends_with('\n') {
            write(&mut tails, b"\n");
        }
    }

    /// Tail of a job's output; `None` if there was no output, or if its tail was removed.
    pub fn get(&self, job: &JobId) -> Option<String> {
        let tails = self.lock();
        tails.iter().find(|tail| tail.job == *job).map(Tail::text)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Tail>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    fn new(job: &JobId) -> Self {
        Self {
            job: job.clone(),
            blocks: VecDeque::new(),
            is_cut: false,
        }
    }

    /// Returns the tail in whole lines; a single long line starts at a character boundary.
    fn text(&self) -> String {
        let blocks: Vec<&[u8]> = self.blocks.iter().map(Vec::as_slice).collect();
        let bytes = blocks.concat();
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let line = line.map(|end| end + 1).filter(|at| *at < bytes.len());
        let character = || bytes.iter().position(|byte| !is_continuation_byte(*byte));
        let from = match self.is_cut {
            true => line.or_else(character).unwrap_or_default(),
            false => 0,
        };
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    /// Removes the oldest block and returns it empty.
    fn take_oldest_block(&mut self) -> Option<Vec<u8>> {
        let mut block = self.blocks.pop_front()?;
        block.clear();
        self.is_cut = true;
        Some(block)
    }
}

/// Whether a byte is a UTF-8 continuation byte.
fn is_continuation_byte(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Appends to the last tail.
fn write(tails: &mut VecDeque<Tail>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let last = tails.back_mut().and_then(|tail| tail.blocks.back_mut());
        if let Some(block) = last.filter(|block| block.len() < BLOCK) {
            let len = bytes.len().min(BLOCK - block.len());
            let (now, later) = bytes.split_at(len);
            block.extend_from_slice(now);
            bytes = later;
        } else {
            let block = free_block(tails);
            let Some(tail) = tails.back_mut() else {
                return;
            };
            tail.blocks.push_back(block);
        }
    }
}

/// Provides an empty block for the last tail, taken from another tail if a limit is reached.
fn free_block(tails: &mut VecDeque<Tail>) -> Vec<u8> {
    let block_count: usize = tails.iter().map(|tail| tail.blocks.len()).sum();
    let donor = match tails.back_mut() {
        Some(own) if own.blocks.len() * BLOCK >= MAX_BYTES => Some(own),
        // Among tails of equal length, the one that has been silent the longest.
        _ if block_count * BLOCK >= MAX_ALL_BYTES => {
            let tails = tails.iter_mut().rev();
            tails.max_by_key(|tail| tail.blocks.len())
        }
        _ => None,
    };
    donor
        .and_then(Tail::take_oldest_block)
        .unwrap_or_else(|| Vec::with_capacity(BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_of_a_log_in_whole_lines() {
        let tails = LogTails::default();
        let job = JobId::from("j");
        assert_eq!(tails.get(&job), None);
        tails.append(&job, "");
        assert_eq!(tails.get(&job), None);
        tails.append(&job, "first\nlast\n");
        assert_eq!(tails.get(&job).as_deref(), Some("first\nlast\n"));
        for n in 0..10_000 {
            tails.append(&job, &format!("line {n} ä"));
        }
        let kept = tails.get(&job).unwrap();
        assert!(kept.len() <= MAX_BYTES && kept.len() > MAX_BYTES / 2);
        assert!(kept.starts_with("line ") && kept.ends_with("line 9999 ä\n"));
        tails.append(&job, &"ä".repeat(MAX_BYTES));
        let long = tails.get(&job).unwrap();
        assert!(long.len() <= MAX_BYTES && long.starts_with('ä'));
    }

    #[test]
    fn removes_the_run_that_has_been_silent_the_longest() {
        let tails = LogTails::default();
        for n in 0..MAX_RUNS {
            tails.append(&JobId::new(n.to_string()), "x");
        }
        tails.append(&JobId::from("0"), "y");
        tails.append(&JobId::from("new"), "z");
        assert_eq!(tails.get(&JobId::from("0")).as_deref(), Some("x\ny\n"));
        assert_eq!(tails.get(&JobId::from("1")), None);
    }

    #[test]
    fn many_concurrent_runs_keep_a_tail_each() {
        let tails = LogTails::default();
        let jobs: Vec<JobId> = (0..200).map(|n| JobId::new(n.to_string())).collect();
        for round in 0..500 {
            for job in &jobs {
                tails.append(job, &format!("{round} {}", "x".repeat(100)));
            }
        }
        let kept: Vec<String> = jobs.iter().filter_map(|job| tails.get(job)).collect();
        let total: usize = kept.iter().map(String::len).sum();
        assert!(
            total <= MAX_ALL_BYTES && total > MAX_ALL_BYTES / 2,
            "{total}"
        );
        for tail in &kept {
            assert!(tail.lines().count() >= 50, "{tail}");
            assert!(
                tail.lines()
                    .last()
                    .is_some_and(|line| line.starts_with("499 "))
            );
        }
        assert_eq!(kept.len(), jobs.len());
    }
}
