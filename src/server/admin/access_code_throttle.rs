//! Rate limit for access codes, per client address.
//!
//! A code is checked while the counter is locked, so that parallel attempts cannot bypass the limit. An
//! address that has reached the limit must wait, even if its next code is correct.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::client_identity::client_network;
use domain::time::Timestamp;

/// Maximum number of wrong codes per address within [`WINDOW`].
const MAX_WRONG: usize = 5;

/// Time for which a wrong code counts.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of tracked addresses. Above it, the address with the oldest attempt is dropped.
const MAX_ADDRESSES: usize = 4096;

/// Recent wrong codes by address.
#[derive(Debug, Default)]
pub(super) struct AccessCodeThrottle(Mutex<HashMap<IpAddr, VecDeque<Timestamp>>>);

/// Result of checking an access code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessCodeCheck {
    /// The code is correct.
    Correct,
    /// The code is wrong.
    Wrong,
    /// The address must wait; the code was not checked.
    RetryAfter(Duration),
}

impl AccessCodeThrottle {
    /// Checks a code, unless the address has sent too many wrong ones.
    pub(super) fn check(
        &self,
        from: IpAddr,
        now: Timestamp,
        is_correct: impl FnOnce() -> bool,
    ) -> AccessCodeCheck {
        let from = client_network(from);
        let mut wrong = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = wrong.get_mut(&from) {
            times.retain(|at| *at + WINDOW > now);
            if let (Some(first), MAX_WRONG..) = (times.front(), times.len()) {
                return AccessCodeCheck::RetryAfter((*first + WINDOW).since(now));
            }
        }
        if is_correct() {
            wrong.remove(&from);
            return AccessCodeCheck::Correct;
        }
        if wrong.len() >= MAX_ADDRESSES && !wrong.contains_key(&from) {
            drop_oldest(&mut wrong);
        }
        wrong.entry(from).or_default().push_back(now);
        AccessCodeCheck::Wrong
    }
}

fn drop_oldest(wrong: &mut HashMap<IpAddr, VecDeque<Timestamp>>) {
    let oldest = wrong.iter().min_by_key(|(_, times)| times.back().copied());
    if let Some(address) = oldest.map(|(address, _)| *address) {
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
    fn delays_the_sixth_code_until_the_first_is_a_minute_old() {
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
    fn counts_an_ipv6_network_as_one_client() {
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
    fn bounds_the_number_of_addresses() {
        let throttle = AccessCodeThrottle::default();
        for number in 0..(MAX_ADDRESSES as u32 + 50) {
            throttle.check(IpAddr::from(number.to_be_bytes()), NOW, || false);
        }
        assert_eq!(throttle.0.lock().unwrap().len(), MAX_ADDRESSES);
    }
}
