//! How much a vendor still lets us ask, and the gate that closes when it is nothing.
//!
//! A vendor that said *wait* is not asked again before its time: every refused request counts
//! against us, and on some hosts lengthens the ban.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;

use super::now_millis;

/// How long do we wait when a vendor names no time, unless the request knows better?
pub(super) const DEFAULT_PAUSE: Duration = Duration::from_secs(60);

/// How long may a vendor make us wait? Limits are hourly; more than this is a clock gone wrong.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 60 * 60);

const LONGEST_PAUSE_MS: u64 = LONGEST_PAUSE.as_millis() as u64;

/// What is left of an account's allowance, as the vendor last told us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// Whose it is, where the vendor keeps several; else empty.
    pub account: String,
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    /// When the allowance is renewed, in milliseconds since the epoch.
    pub reset_at: Option<u64>,
    /// While set and in the future, no request leaves.
    pub limited_until: Option<u64>,
}

impl Quota {
    /// Whether requests are held back at `now`, in milliseconds since the epoch.
    pub fn is_limited(&self, now: u64) -> bool {
        self.limited_until.is_some_and(|until| until > now)
    }

    /// Share of the allowance that is left, for finding the scarcest; unknown counts as all.
    fn share_left(&self) -> u64 {
        match (self.remaining, self.limit) {
            (Some(remaining), Some(limit)) if limit > 0 => remaining.saturating_mul(1000) / limit,
            _ => 1000,
        }
    }
}

/// The quotas of one client, by account.
#[derive(Default)]
pub(super) struct RateLimiter {
    accounts: Mutex<HashMap<String, Quota>>,
}

impl RateLimiter {
    fn with<T>(&self, account: &str, f: impl FnOnce(&mut Quota) -> T) -> T {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let quota = accounts.entry(account.to_owned()).or_insert_with(|| Quota {
            account: account.to_owned(),
            ..Quota::default()
        });
        f(quota)
    }

    /// Until when requests of this account are held back, if they are.
    pub fn limited_until(&self, account: &str) -> Option<u64> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts
            .get(account)?
            .limited_until
            .filter(|until| *until > now_millis())
    }

    /// Remembers what an answer said about the allowance.
    pub fn record_headers(&self, account: &str, headers: &HeaderMap) {
        let Some(seen) = Allowance::read(headers) else {
            return;
        };
        self.with(account, |quota| {
            quota.limit = seen.limit.or(quota.limit);
            quota.remaining = Some(seen.remaining);
            quota.reset_at = seen.reset_at.or(quota.reset_at);
        });
    }

    /// Closes the gate after a refusal, and says until when; for `unsaid` if the vendor does not.
    pub fn set_limited(&self, account: &str, headers: &HeaderMap, unsaid: Duration) -> u64 {
        let now = now_millis();
        let until = pause(headers, now, unsaid).clamp(now + 1, now + LONGEST_PAUSE_MS);
        self.with(account, |quota| {
            let later = quota.limited_until.unwrap_or_default().max(until);
            quota.limited_until = Some(later);
            later
        })
    }

    /// The scarcest quota; a closed one before all others.
    pub fn scarcest_quota(&self) -> Quota {
        let now = now_millis();
        self.quotas()
            .into_iter()
            .min_by_key(|quota| (!quota.is_limited(now), quota.share_left()))
            .unwrap_or_default()
    }

    pub fn quotas(&self) -> Vec<Quota> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Quota> = accounts.values().cloned().collect();
        all.sort_by(|a, b| a.account.cmp(&b.account));
        all
    }
}

/// Whether an answer means *too many requests*. A refusal of another kind is none of the gate's
/// business, although hosts use 403 for both.
pub(super) fn is_rate_limit(status: u16, headers: &HeaderMap, body: &[u8]) -> bool {
    match status {
        429 => true,
        403 => {
            headers.contains_key("retry-after")
                || Allowance::read(headers).is_some_and(|seen| seen.remaining == 0)
                || contains(body, b"secondary rate limit")
        }
        400 => contains(body, b"\"RATELIMITED\""),
        _ => false,
    }
}

fn contains(body: &[u8], words: &[u8]) -> bool {
    body.windows(words.len()).any(|window| window == words)
}

/// When the vendor lets us ask again, in milliseconds since the epoch.
fn pause(headers: &HeaderMap, now: u64, unsaid: Duration) -> u64 {
    if let Some(wait) = retry_after_ms(headers, now) {
        return now + wait;
    }
    Allowance::all(headers)
        .into_iter()
        .filter(|seen| seen.remaining == 0)
        .filter_map(|seen| seen.reset_at)
        // The reset is told by the vendor's clock; ours may differ.
        .map(|reset| now.saturating_add(reset.saturating_sub(date_ms(headers).unwrap_or(now))))
        .max()
        .unwrap_or_else(|| now.saturating_add(unsaid.as_millis() as u64))
}

/// `Retry-After` in milliseconds from now, at most the longest pause; it may be seconds or a date.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: u64) -> Option<u64> {
    let text = text(headers, "retry-after")?;
    let wait = match text.parse::<f64>() {
        Ok(seconds) => (seconds.max(0.0) * 1000.0) as u64,
        Err(_) => {
            let reference = date_ms(headers).unwrap_or(now);
            http_date_ms(text)?.saturating_sub(reference)
        }
    };
    Some(wait.min(LONGEST_PAUSE_MS))
}

fn date_ms(headers: &HeaderMap) -> Option<u64> {
    http_date_ms(text(headers, "date")?)
}

fn http_date_ms(text: &str) -> Option<u64> {
    let moment = jiff::fmt::rfc2822::parse(text).ok()?;
    u64::try_from(moment.timestamp().as_millisecond()).ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// One `X-RateLimit-…` group of headers.
struct Allowance {
    limit: Option<u64>,
    remaining: u64,
    reset_at: Option<u64>,
}

impl Allowance {
    /// The allowance of requests.
    fn read(headers: &HeaderMap) -> Option<Self> {
        Self::group(headers, "requests-").or_else(|| Self::group(headers, ""))
    }

    fn all(headers: &HeaderMap) -> Vec<Self> {
        ["requests-", "complexity-", "endpoint-requests-", ""]
            .into_iter()
            .filter_map(|group| Self::group(headers, group))
            .collect()
    }

    fn group(headers: &HeaderMap, group: &str) -> Option<Self> {
        let read = |part: &str| text(headers, &format!("x-ratelimit-{group}{part}"));
        Some(Self {
            limit: read("limit").and_then(|text| text.parse().ok()),
            remaining: read("remaining")?.parse().ok()?,
            reset_at: read("reset").and_then(moment),
        })
    }
}

/// Vendors write a moment as epoch seconds, epoch milliseconds or ISO 8601.
fn moment(text: &str) -> Option<u64> {
    /// Seconds have not as many digits before the year 5000, milliseconds had them in 1973.
    const SECONDS_END: u64 = 100_000_000_000;
    match text.parse::<u64>() {
        Ok(seconds) if seconds < SECONDS_END => Some(seconds * 1000),
        Ok(millis) => Some(millis),
        Err(_) => {
            let moment: jiff::Timestamp = text.parse().ok()?;
            u64::try_from(moment.as_millisecond()).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn a_refusal_counts_as_a_limit_only_when_it_is_one() {
        let none = headers(&[]);
        assert!(is_rate_limit(429, &none, b""));
        assert!(!is_rate_limit(403, &none, b"Resource not accessible"));
        assert!(is_rate_limit(403, &headers(&[("retry-after", "5")]), b""));
        assert!(is_rate_limit(
            403,
            &headers(&[("x-ratelimit-remaining", "0")]),
            b""
        ));
        assert!(!is_rate_limit(
            403,
            &headers(&[("x-ratelimit-remaining", "7")]),
            b""
        ));
        assert!(is_rate_limit(
            403,
            &none,
            b"You have exceeded a secondary rate limit"
        ));
        assert!(is_rate_limit(
            400,
            &none,
            br#"{"errors":[{"extensions":{"code":"RATELIMITED"}}]}"#
        ));
        assert!(!is_rate_limit(400, &none, b"{}"));
    }

    #[test]
    fn the_pause_is_what_the_vendor_says_by_its_own_clock() {
        let now = 1_800_000_000_000;
        let rows: [(&[(&'static str, &str)], u64); 6] = [
            (&[("retry-after", "7")], 7_000),
            (
                &[
                    ("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT"),
                    ("date", "Fri, 15 Jan 2027 08:00:10 GMT"),
                ],
                20_000,
            ),
            (
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1800000030"),
                ],
                30_000,
            ),
            (
                &[
                    ("x-ratelimit-requests-remaining", "10"),
                    ("x-ratelimit-requests-reset", "1800000900000"),
                    ("x-ratelimit-complexity-remaining", "0"),
                    ("x-ratelimit-complexity-reset", "1800000045000"),
                ],
                45_000,
            ),
            (
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "2027-01-15T08:00:20Z"),
                ],
                20_000,
            ),
            (&[], 60_000),
        ];
        for (pairs, wait) in rows {
            assert_eq!(
                pause(&headers(pairs), now, DEFAULT_PAUSE),
                now + wait,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_closed_gate_opens_by_itself_and_the_scarcest_account_is_shown() {
        let gate = RateLimiter::default();
        let told = headers(&[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4000"),
            ("x-ratelimit-reset", "1800000030"),
        ]);
        gate.record_headers("a", &told);
        assert_eq!(gate.scarcest_quota().remaining, Some(4000));
        let until = gate.set_limited("b", &headers(&[("retry-after", "9999999")]), DEFAULT_PAUSE);
        assert!(until <= now_millis() + LONGEST_PAUSE_MS);
        assert_eq!(gate.limited_until("b"), Some(until));
        assert_eq!(gate.limited_until("a"), None);
        assert_eq!(gate.scarcest_quota().account, "b");
        gate.set_limited("c", &headers(&[("retry-after", "0")]), DEFAULT_PAUSE);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(gate.limited_until("c"), None);
    }
}
