//! The end of what runs print, for people who watch them. Kept in memory: the whole log is the
//! runner's, and a restart costs only what was on the screen.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::ids::JobId;

/// What is kept is in blocks of one size: tails come and go all day, and what one leaves, another must
/// fit into.
const BLOCK: usize = 1 << 10;

/// Most bytes that are kept of one run.
const MAX_BYTES: usize = 64 << 10;

/// Most bytes that all of them take. Beyond it the longest tail gives up its beginning, so that many runs
/// that speak at a time keep a shorter end each, and none loses its own to the others.
const MAX_ALL_BYTES: usize = 2 << 20;

/// Of how many runs is the end kept? The one that was silent the longest goes first.
const MAX_RUNS: usize = 512;

const _: () = assert!(
    MAX_RUNS * 4 * BLOCK <= MAX_ALL_BYTES,
    "each run may keep some lines"
);

/// The ends of the latest logs, the last to speak at the back.
#[derive(Default)]
pub struct LogTails(Mutex<VecDeque<Tail>>);

struct Tail {
    job: JobId,
    /// All but the last are full.
    blocks: VecDeque<Vec<u8>>,
    /// Whether something came before the first block.
    is_cut: bool,
}

impl LogTails {
    /// Adds lines, which are free of secrets already.
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

    /// What a run said last; None when it said nothing, or too long ago.
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

    /// Whole lines; of a single long one, characters.
    fn text(&self) -> String {
        let blocks: Vec<&[u8]> = self.blocks.iter().map(Vec::as_slice).collect();
        let bytes = blocks.concat();
        let line = bytes.iter().position(|byte| *byte == b'\n');
        let line = line.map(|end| end + 1).filter(|at| *at < bytes.len());
        let character = || bytes.iter().position(|byte| !is_inside(*byte));
        let from = match self.is_cut {
            true => line.or_else(character).unwrap_or_default(),
            false => 0,
        };
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    fn give(&mut self) -> Option<Vec<u8>> {
        let mut block = self.blocks.pop_front()?;
        block.clear();
        self.is_cut = true;
        Some(block)
    }
}

/// Whether a byte is the inside of a character in UTF-8.
fn is_inside(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Adds to the last tail.
fn write(tails: &mut VecDeque<Tail>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let last = tails.back_mut().and_then(|tail| tail.blocks.back_mut());
        if let Some(block) = last.filter(|block| block.len() < BLOCK) {
            let room = bytes.len().min(BLOCK - block.len());
            let (now, later) = bytes.split_at(room);
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

/// An empty block for the last tail.
fn free_block(tails: &mut VecDeque<Tail>) -> Vec<u8> {
    let taken: usize = tails.iter().map(|tail| tail.blocks.len()).sum();
    let giver = match tails.back_mut() {
        Some(own) if own.blocks.len() * BLOCK >= MAX_BYTES => Some(own),
        // Of those that are as long, the one that was silent the longest.
        _ if taken * BLOCK >= MAX_ALL_BYTES => {
            let tails = tails.iter_mut().rev();
            tails.max_by_key(|tail| tail.blocks.len())
        }
        _ => None,
    };
    giver
        .and_then(Tail::give)
        .unwrap_or_else(|| Vec::with_capacity(BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_kept_in_whole_lines() {
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
    fn the_run_that_was_silent_the_longest_is_forgotten_first() {
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
    fn many_runs_that_speak_in_turn_keep_an_end_each() {
        let tails = LogTails::default();
        let jobs: Vec<JobId> = (0..200).map(|n| JobId::new(n.to_string())).collect();
        for round in 0..500 {
            for job in &jobs {
                tails.append(job, &format!("{round} {}", "x".repeat(100)));
            }
        }
        let kept: Vec<String> = jobs.iter().filter_map(|job| tails.get(job)).collect();
        let held: usize = kept.iter().map(String::len).sum();
        assert!(held <= MAX_ALL_BYTES && held > MAX_ALL_BYTES / 2, "{held}");
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
