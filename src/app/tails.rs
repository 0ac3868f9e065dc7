//! The end of what runs print, for people who watch them. Kept in memory: the whole log is the
//! runner's, and a restart costs only what was on the screen.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::ids::JobId;

/// Most bytes that are kept of one run.
const MAX_BYTES: usize = 64 << 10;

/// Most bytes that all of them take. Beyond it the longest tail is cut in half, so that many runs that
/// speak at a time keep a shorter end each, and none loses its own to the others.
const MAX_ALL_BYTES: usize = 2 << 20;

/// By how much does a tail grow or shrink? Tails come and go all day: what one leaves, another must
/// fit into.
const STEP: usize = 4 << 10;

/// Of how many runs is the end kept? The one that was silent the longest goes first.
const MAX_RUNS: usize = 512;

const _: () = assert!(MAX_RUNS * STEP <= MAX_ALL_BYTES, "each run may keep a step");

/// The ends of the latest logs, the last to speak at the back.
#[derive(Default)]
pub struct Tails(Mutex<VecDeque<(JobId, String)>>);

impl Tails {
    /// Adds lines, which are free of secrets already.
    pub fn add(&self, job: &JobId, lines: &str) {
        let mut tails = self.lock();
        let known = tails.iter().position(|(id, _)| id == job);
        let mut tail = known
            .and_then(|at| tails.remove(at))
            .map_or_else(String::new, |(_, tail)| tail);
        // Growing by itself it would take twice what it holds.
        let wanted = (tail.len() + lines.len() + 1).next_multiple_of(STEP);
        tail.reserve_exact(wanted - tail.len());
        tail.push_str(lines);
        if !tail.ends_with('\n') {
            tail.push('\n');
        }
        shorten(&mut tail, MAX_BYTES);
        tails.push_back((job.clone(), tail));
        let surplus = tails.len().saturating_sub(MAX_RUNS);
        tails.drain(..surplus);
        make_room(&mut tails);
    }

    /// What a run said last; None when it said nothing, or too long ago.
    pub fn of(&self, job: &JobId) -> Option<String> {
        let tails = self.lock();
        tails
            .iter()
            .find(|(id, _)| id == job)
            .map(|(_, tail)| tail.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(JobId, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_room(tails: &mut VecDeque<(JobId, String)>) {
    let mut taken: usize = tails.iter().map(|(_, tail)| tail.capacity()).sum();
    while taken > MAX_ALL_BYTES {
        let longest = tails.iter_mut().max_by_key(|(_, tail)| tail.capacity());
        let Some((_, tail)) = longest else {
            return;
        };
        let before = tail.capacity();
        shorten(tail, before / 2);
        tail.shrink_to(tail.len().next_multiple_of(STEP));
        taken -= before - tail.capacity();
    }
}

/// Cuts whole lines off the beginning, down to so many bytes; of a single long one, characters.
fn shorten(tail: &mut String, most: usize) {
    let surplus = tail.len().saturating_sub(most);
    if surplus == 0 {
        return;
    }
    let from = (surplus..=tail.len())
        .find(|at| tail.is_char_boundary(*at))
        .unwrap_or(tail.len());
    let line = tail[from..].find('\n').map(|end| from + end + 1);
    let cut = line.filter(|at| *at < tail.len()).unwrap_or(from);
    tail.drain(..cut);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_kept_in_whole_lines() {
        let tails = Tails::default();
        let job = JobId::from("j");
        assert_eq!(tails.of(&job), None);
        for n in 0..10_000 {
            tails.add(&job, &format!("line {n} ä"));
        }
        let kept = tails.of(&job).unwrap();
        assert!(kept.len() <= MAX_BYTES && kept.len() > MAX_BYTES / 2);
        assert!(kept.starts_with("line ") && kept.ends_with("line 9999 ä\n"));
        tails.add(&job, &"ä".repeat(MAX_BYTES));
        let long = tails.of(&job).unwrap();
        assert!(long.len() <= MAX_BYTES && long.starts_with('ä'));
    }

    #[test]
    fn the_run_that_was_silent_the_longest_is_forgotten_first() {
        let tails = Tails::default();
        for n in 0..MAX_RUNS {
            tails.add(&JobId::new(n.to_string()), "x");
        }
        tails.add(&JobId::from("0"), "y");
        tails.add(&JobId::from("new"), "z");
        assert_eq!(tails.of(&JobId::from("0")).as_deref(), Some("x\ny\n"));
        assert_eq!(tails.of(&JobId::from("1")), None);
    }

    #[test]
    fn many_runs_that_speak_in_turn_keep_an_end_each() {
        let tails = Tails::default();
        let jobs: Vec<JobId> = (0..200).map(|n| JobId::new(n.to_string())).collect();
        for round in 0..500 {
            for job in &jobs {
                tails.add(job, &format!("{round} {}", "x".repeat(100)));
            }
        }
        let kept: Vec<String> = jobs.iter().filter_map(|job| tails.of(job)).collect();
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
