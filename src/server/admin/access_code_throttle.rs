//! How often an address may guess the access code.
//!
//! The guess is judged while the count is held, so that a hundred guesses at once are no way
//! around it. An address that has used up its guesses is told to wait whatever it brings.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::client_identity::client_network;
use domain::time::Timestamp;

/// Wrong codes that an address may send within [`WINDOW`].
const MAX_WRONG: usize = 5;

const WINDOW: Duration = Duration::from_secs(60);

/// How many addresses are remembered? Beyond it, the one that has been quiet the longest is
/// forgotten.
const MAX_ADDRESSES: usize = 4096;

/// Wrong guesses by address.
#[derive(Debug, Default)]
pub struct AccessCodeThrottle(Mutex<HashMap<IpAddr, VecDeque<Timestamp>>>);

/// What becomes of a guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessCodeCheck {
    Correct,
    Wrong,
    RetryAfter(Duration),
}

impl AccessCodeThrottle {
    /// Judges a guess, unless the address has made too many.
    pub fn check(
        &self,
        from: IpAddr,
        now: Timestamp,
        is_right: impl FnOnce() -> bool,
    ) -> AccessCodeCheck {
        let from = client_network(from);
        let mut wrong = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = wrong.get_mut(&from) {
            times.retain(|at| *at + WINDOW > now);
            if let (Some(first), MAX_WRONG..) = (times.front(), times.len()) {
                return AccessCodeCheck::RetryAfter((*first + WINDOW).since(now));
            }
        }
        if is_right() {
            wrong.remove(&from);
            return AccessCodeCheck::Correct;
        }
        if wrong.len() >= MAX_ADDRESSES && !wrong.contains_key(&from) {
            forget_quietest(&mut wrong);
        }
        wrong.entry(from).or_default().push_back(now);
        AccessCodeCheck::Wrong
    }
}

fn forget_quietest(wrong: &mut HashMap<IpAddr, VecDeque<Timestamp>>) {
    let quietest = wrong.iter().min_by_key(|(_, times)| times.back().copied());
    if let Some(address) = quietest.map(|(address, _)| *address) {
        wrong.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_sixth_guess_waits_until_the_first_is_a_minute_old() {
        let throttle = AccessCodeThrottle::default();
        let from = address("192.0.2.1");
        for second in 0..5 {
            let now = NOW + Duration::from_secs(second);
            assert_eq!(throttle.check(from, now, || false), AccessCodeCheck::Wrong);
        }
        let now = NOW + Duration::from_secs(10);
        let wait = AccessCodeCheck::RetryAfter(Duration::from_secs(50));
        assert_eq!(throttle.check(from, now, || true), wait);
        assert_eq!(
            throttle.check(address("192.0.2.2"), now, || true),
            AccessCodeCheck::Correct
        );
        let later = NOW + Duration::from_secs(60);
        assert_eq!(
            throttle.check(from, later, || true),
            AccessCodeCheck::Correct
        );
    }

    #[test]
    fn one_household_is_one_guesser() {
        let throttle = AccessCodeThrottle::default();
        for host in 1..=5 {
            let from = address(&format!("2001:db8::{host}"));
            assert_eq!(throttle.check(from, NOW, || false), AccessCodeCheck::Wrong);
        }
        let sixth = throttle.check(address("2001:db8::6"), NOW, || false);
        assert_eq!(sixth, AccessCodeCheck::RetryAfter(WINDOW));
        let other = throttle.check(address("2001:db8:0:1::6"), NOW, || false);
        assert_eq!(other, AccessCodeCheck::Wrong);
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = AccessCodeThrottle::default();
        for number in 0..(MAX_ADDRESSES as u32 + 50) {
            throttle.check(IpAddr::from(number.to_be_bytes()), NOW, || false);
        }
        assert_eq!(throttle.0.lock().unwrap().len(), MAX_ADDRESSES);
    }
}
