//! Rate limits and quotas of a vendor, per account.
//!
//! After a rate limit response, no request is sent to the account before the limit ends: rejected requests
//! count against the quota, and some hosts extend the limit because of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;

use super::availability::{RateLimit, continues};
use super::now_millis;

/// Pause after a rate limit response without a reset time. A request may set another one.
pub(super) const DEFAULT_PAUSE: Duration = Duration::from_secs(60);

/// Maximum pause. Vendor limits are hourly; a longer pause indicates a wrong clock.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 60 * 60);

const LONGEST_PAUSE_MS: u64 = LONGEST_PAUSE.as_millis() as u64;

/// Period of the vendors' quotas.
const QUOTA_PERIOD_MS: u64 = 60 * 60 * 1000;

/// Account of the complexity points of a vendor that counts them beside the requests.
const COMPLEXITY: &str = "complexity";

/// Quota of an account, as of the last response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// Account, for vendors with several limits; otherwise empty.
    pub account: String,
    /// Number of requests or points per period.
    pub limit: Option<u64>,
    /// Number of requests or points left in this period.
    pub remaining: Option<u64>,
    /// End of the period, in milliseconds since the epoch.
    pub reset_at: Option<u64>,
    /// End of the rate limit, in milliseconds since the epoch. No request is sent before it.
    pub limited_until: Option<u64>,
    /// Time of the first rejected request since the account last accepted one, in milliseconds since the
    /// epoch.
    pub limited_since: Option<u64>,
}

impl Quota {
    /// Returns whether the account is rate limited at `now`, in milliseconds since the epoch.
    pub fn is_limited(&self, now: u64) -> bool {
        self.limited_until.is_some_and(|until| until > now)
    }

    /// Returns whether more than half of what an even use would have left until the end of the period is left. An
    /// unknown quota is plentiful.
    pub fn is_plentiful(&self, now: u64) -> bool {
        let left = self.reset_at.map(|reset| reset.saturating_sub(now));
        let left = left.unwrap_or(QUOTA_PERIOD_MS).min(QUOTA_PERIOD_MS);
        left == 0 || self.remaining_permille() * QUOTA_PERIOD_MS > 500 * left
    }

    /// Returns the remaining share of the quota in thousandths. An unknown quota counts as full.
    fn remaining_permille(&self) -> u64 {
        match (self.remaining, self.limit) {
            (Some(remaining), Some(limit)) if limit > 0 => {
                let permille = u128::from(remaining) * 1000 / u128::from(limit);
                permille.min(1000) as u64
            }
            _ => 1000,
        }
    }
}

/// Quotas of one client by account.
#[derive(Default)]
pub(super) struct RateLimiter {
    accounts: Mutex<HashMap<String, Quota>>,
}

impl RateLimiter {
    /// Calls `f` with the quota of an account, and creates it if it is new.
    fn with_quota<T>(&self, account: &str, f: impl FnOnce(&mut Quota) -> T) -> T {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let quota = accounts.entry(account.to_owned()).or_insert_with(|| Quota {
            account: account.to_owned(),
            ..Quota::default()
        });
        f(quota)
    }

    /// Returns the end of the account's rate limit, or `None` if it is not limited.
    pub(super) fn limited_until(&self, account: &str) -> Option<u64> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts
            .get(account)?
            .limited_until
            .filter(|until| *until > now_millis())
    }

    /// Records the quotas from response headers.
    pub(super) fn record_headers(&self, account: &str, headers: &HeaderMap) {
        self.record(account, QuotaHeaders::requests(headers));
        self.record(COMPLEXITY, QuotaHeaders::group(headers, "complexity-"));
    }

    fn record(&self, account: &str, current: Option<QuotaHeaders>) {
        let Some(current) = current else {
            return;
        };
        self.with_quota(account, |quota| {
            quota.limit = current.limit.or(quota.limit);
            quota.remaining = Some(current.remaining);
            quota.reset_at = current.reset_at.or(quota.reset_at);
        });
    }

    /// Records a rate limit after a rejected request, and returns its end. `default_pause` applies if the
    /// headers contain no reset time.
    pub(super) fn set_limited(
        &self,
        account: &str,
        headers: &HeaderMap,
        default_pause: Duration,
    ) -> u64 {
        let now = now_millis();
        let until = limit_end(headers, now, default_pause).clamp(now + 1, now + LONGEST_PAUSE_MS);
        self.with_quota(account, |quota| {
            let before = quota.limited_until.unwrap_or_default();
            let ongoing = quota.limited_since.filter(|_| continues(before, now));
            quota.limited_since = ongoing.or(Some(now));
            let later = before.max(until);
            quota.limited_until = Some(later);
            later
        })
    }

    /// Records that the account accepted a request. A limit that is in force stays: the request may have been
    /// sent before it.
    pub(super) fn record_accepted(&self, account: &str) {
        let now = now_millis();
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(quota) = accounts
            .get_mut(account)
            .filter(|quota| !quota.is_limited(now))
        {
            quota.limited_since = None;
        }
    }

    /// Returns the limits that are in force.
    pub(super) fn limits(&self) -> Vec<RateLimit> {
        let now = now_millis();
        let limit = |quota: Quota| {
            let until = quota.limited_until.filter(|until| *until > now)?;
            Some(RateLimit {
                account: quota.account,
                since: quota.limited_since.unwrap_or(now),
                until,
            })
        };
        self.quotas().into_iter().filter_map(limit).collect()
    }

    /// Returns the quota with the smallest share left. A limited account comes before all others.
    pub(super) fn scarcest_quota(&self) -> Quota {
        let now = now_millis();
        self.quotas()
            .into_iter()
            .min_by_key(|quota| (!quota.is_limited(now), quota.remaining_permille()))
            .unwrap_or_default()
    }

    /// Returns the quotas of all accounts, sorted by account.
    pub(super) fn quotas(&self) -> Vec<Quota> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Quota> = accounts.values().cloned().collect();
        all.sort_by(|a, b| a.account.cmp(&b.account));
        all
    }
}

/// Returns whether a response reports a rate limit. Some hosts use 403 for rate limits and for missing
/// permissions.
pub(super) fn is_rate_limit(status: u16, headers: &HeaderMap, body: &[u8]) -> bool {
    match status {
        429 => true,
        403 => {
            headers.contains_key("retry-after")
                || QuotaHeaders::requests(headers).is_some_and(|quota| quota.remaining == 0)
                || contains(body, b"secondary rate limit")
        }
        400 => contains(body, b"\"RATELIMITED\""),
        _ => false,
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// Returns the end of a rate limit in milliseconds since the epoch.
fn limit_end(headers: &HeaderMap, now: u64, default_pause: Duration) -> u64 {
    if let Some(wait) = retry_after_ms(headers, now) {
        return now + wait;
    }
    QuotaHeaders::all(headers)
        .into_iter()
        .filter(|quota| quota.remaining == 0)
        .filter_map(|quota| quota.reset_at)
        // The reset time is from the vendor's clock, which may differ from ours.
        .map(|reset| now.saturating_add(reset.saturating_sub(date_ms(headers).unwrap_or(now))))
        .max()
        .unwrap_or_else(|| now.saturating_add(default_pause.as_millis() as u64))
}

/// Returns the `Retry-After` delay in milliseconds, at most [`LONGEST_PAUSE`]. The header contains seconds or
/// a date.
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

/// Values of one `X-RateLimit-…` group of headers.
struct QuotaHeaders {
    limit: Option<u64>,
    remaining: u64,
    reset_at: Option<u64>,
}

impl QuotaHeaders {
    /// Reads the quota of requests.
    fn requests(headers: &HeaderMap) -> Option<Self> {
        Self::group(headers, "requests-").or_else(|| Self::group(headers, ""))
    }

    /// Reads all groups.
    fn all(headers: &HeaderMap) -> Vec<Self> {
        ["requests-", "complexity-", "endpoint-requests-", ""]
            .into_iter()
            .filter_map(|group| Self::group(headers, group))
            .collect()
    }

    /// Reads one group, or returns `None` if its `remaining` header is missing or invalid.
    fn group(headers: &HeaderMap, group: &str) -> Option<Self> {
        let read = |part: &str| text(headers, &format!("x-ratelimit-{group}{part}"));
        Some(Self {
            limit: read("limit").and_then(|text| text.parse().ok()),
            remaining: read("remaining")?.parse().ok()?,
            reset_at: read("reset").and_then(parse_time),
        })
    }
}

/// Parses a time as epoch seconds, epoch milliseconds or ISO 8601. Returns milliseconds since the epoch.
fn parse_time(text: &str) -> Option<u64> {
    /// First value that is read as milliseconds. As seconds it is after the year 5000, as milliseconds it is
    /// in 1973.
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
    fn separates_rate_limits_from_other_rejections() {
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
    fn computes_the_limit_end_by_the_vendors_clock() {
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
                limit_end(&headers(pairs), now, DEFAULT_PAUSE),
                now + wait,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_repeated_limit_counts_from_its_first_rejection() {
        let limiter = RateLimiter::default();
        let short = headers(&[("retry-after", "0.001")]);
        limiter.set_limited("a", &short, DEFAULT_PAUSE);
        let since = limiter.quotas()[0].limited_since.unwrap();
        while limiter.limited_until("a").is_some() || now_millis() == since {
            std::thread::yield_now();
        }
        assert_eq!(limiter.limits(), []);
        limiter.set_limited("a", &headers(&[]), DEFAULT_PAUSE);
        assert_eq!(limiter.limits()[0].since, since);
        // An answer to a request that was sent before the limit does not end it.
        limiter.record_accepted("a");
        assert_eq!(limiter.limits()[0].since, since);

        limiter.set_limited("b", &short, DEFAULT_PAUSE);
        let before = limiter.quotas()[1].limited_since.unwrap();
        while limiter.limited_until("b").is_some() || now_millis() == before {
            std::thread::yield_now();
        }
        limiter.record_accepted("b");
        limiter.set_limited("b", &headers(&[]), DEFAULT_PAUSE);
        assert!(limiter.limits()[1].since > before);
    }

    #[test]
    fn a_quota_is_plentiful_while_half_of_an_even_use_is_left() {
        const MINUTE: u64 = 60_000;
        let now = 1_800_000_000_000;
        let rows = [
            (Some(3_000_000), Some(60), true),
            (Some(1_510_000), Some(60), true),
            (Some(1_490_000), Some(60), false),
            (Some(1_490_000), Some(50), true),
            (Some(100_000), Some(10), false),
            (Some(300_000), Some(10), true),
            (Some(0), Some(1), false),
            // Of a period that has ended, of one that is too long for an hour, and without an end.
            (Some(0), Some(0), true),
            (Some(1_510_000), Some(300), true),
            (Some(1_490_000), None, false),
            (None, None, true),
        ];
        for (remaining, minutes, expected) in rows {
            let quota = Quota {
                limit: Some(3_000_000),
                remaining,
                reset_at: minutes.map(|minutes| now + minutes * MINUTE),
                ..Quota::default()
            };
            assert_eq!(quota.is_plentiful(now), expected, "{quota:?}");
        }
    }

    #[test]
    fn records_requests_and_points_as_two_accounts() {
        let limiter = RateLimiter::default();
        let pairs = [
            ("x-ratelimit-requests-limit", "5000"),
            ("x-ratelimit-requests-remaining", "4900"),
            ("x-ratelimit-complexity-limit", "3000000"),
            ("x-ratelimit-complexity-remaining", "12000"),
            ("x-ratelimit-complexity-reset", "1800000045000"),
        ];
        limiter.record_headers("", &headers(&pairs));
        let quotas = limiter.quotas().into_iter();
        let left: Vec<_> = quotas.map(|one| (one.account, one.remaining)).collect();
        let expected = [("", Some(4900)), (COMPLEXITY, Some(12_000))];
        assert_eq!(left, expected.map(|(name, left)| (name.to_owned(), left)));
        assert_eq!(limiter.scarcest_quota().account, COMPLEXITY);
    }

    #[test]
    fn ends_a_limit_by_itself_and_returns_the_scarcest_quota() {
        let limiter = RateLimiter::default();
        let quota = headers(&[
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", "4000"),
            ("x-ratelimit-reset", "1800000030"),
        ]);
        limiter.record_headers("a", &quota);
        assert_eq!(limiter.scarcest_quota().remaining, Some(4000));
        let until =
            limiter.set_limited("b", &headers(&[("retry-after", "9999999")]), DEFAULT_PAUSE);
        assert!(until <= now_millis() + LONGEST_PAUSE_MS);
        assert_eq!(limiter.limited_until("b"), Some(until));
        assert_eq!(limiter.limited_until("a"), None);
        assert_eq!(limiter.scarcest_quota().account, "b");
        limiter.set_limited("c", &headers(&[("retry-after", "0")]), DEFAULT_PAUSE);
        let began = std::time::Instant::now();
        while limiter.limited_until("c").is_some() {
            assert!(began.elapsed() < DEFAULT_PAUSE, "the limit has no end");
            std::thread::yield_now();
        }
    }
}
