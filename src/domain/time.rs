//! Timestamps, formatted as RFC 3339 in UTC with milliseconds.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time_zone::TimeZone;

/// Point in time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// Creates a timestamp from milliseconds since the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the whole seconds since the epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// Begin of the second. Times of vendors that count whole seconds compare with it.
    pub const fn whole_second(self) -> Self {
        Self(self.0 - self.0 % 1000)
    }

    /// Returns the time from `earlier` to `self`. Zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Parses an RFC 3339 time, with or without fractional seconds.
    pub fn parse(text: &str) -> Option<Self> {
        let moment: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(moment.as_millisecond()).ok().map(Self)
    }
}

impl Timestamp {
    /// Parses the `Date` header of an HTTP response.
    pub fn parse_http(text: &str) -> Option<Self> {
        let moment = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        u64::try_from(moment.as_millisecond()).ok().map(Self)
    }
}

impl Timestamp {
    /// Returns the time as people read it on the same day: `03:34 UTC`. On another day than `now` with the
    /// date, in another year with the year: `24 Nov 2025 03:34 UTC`.
    pub fn clock_text(self, now: Self) -> String {
        let is_same = |format| self.formatted(format) == now.formatted(format);
        let format = match (is_same("%F"), is_same("%Y")) {
            (true, _) => "%H:%M UTC",
            (false, true) => DAY_AND_TIME,
            (false, false) => "%-d %b %Y %H:%M UTC",
        };
        self.formatted(format)
    }

    /// Returns the time as people read it on any day: `24 Nov 03:34 UTC`. For texts that are stored or posted.
    pub fn date_text(self) -> String {
        self.formatted(DAY_AND_TIME)
    }

    /// Returns the local time in a zone. `None` after the last year of the calendar.
    pub(crate) fn in_zone(self, zone: &TimeZone) -> Option<jiff::Zoned> {
        let millis = i64::try_from(self.0).ok()?;
        let moment = jiff::Timestamp::from_millisecond(millis).ok()?;
        Some(moment.to_zoned(zone.rules().clone()))
    }

    fn formatted(self, format: &str) -> String {
        self.moment().strftime(format).to_string()
    }

    fn moment(self) -> jiff::Timestamp {
        i64::try_from(self.0)
            .ok()
            .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
            .unwrap_or(jiff::Timestamp::MAX)
    }
}

/// Format of a day of this year and a time of day.
const DAY_AND_TIME: &str = "%-d %b %H:%M UTC";

/// Returns a duration as people read it, such as `44 min`. Rounded up to minutes, above a day to hours.
pub fn duration_text(duration: Duration) -> String {
    let minutes = duration.as_secs().div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours @ 1..24, 0) => format!("{hours} h"),
        (hours @ 1..24, minutes) => format!("{hours} h {minutes} min"),
        (hours, _) => match (hours / 24, hours % 24) {
            (days, 0) => format!("{days} d"),
            (days, hours) => format!("{days} d {hours} h"),
        },
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.moment())
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "RFC 3339 timestamp in UTC with milliseconds.",
            "type": "string",
            "format": "date-time",
            "examples": ["2026-01-31T09:30:00.000Z"],
        })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("not an RFC 3339 time: {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_parses_utc_with_milliseconds() {
        let moment = Timestamp::from_millis(1_795_222_800_007);
        assert_eq!(moment.to_string(), "2026-11-21T01:00:00.007Z");
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        assert_eq!(
            Timestamp::parse("2026-11-21T01:00:00Z"),
            Some(Timestamp::from_millis(1_795_222_800_000))
        );
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(
            Timestamp::parse_http("Sat, 21 Nov 2026 01:00:00 GMT"),
            Some(Timestamp::from_millis(1_795_222_800_000))
        );
        assert_eq!(Timestamp::parse_http("yesterday"), None);
    }

    #[test]
    fn texts_for_people_leave_out_what_is_clear() {
        let now = Timestamp::parse("2026-11-23T20:15:59.999Z").unwrap();
        let later = now + Duration::from_secs(44 * 60);
        assert_eq!(later.clock_text(now), "20:59 UTC");
        let tomorrow = now + Duration::from_secs(4 * 60 * 60);
        assert_eq!(tomorrow.clock_text(now), "24 Nov 00:15 UTC");
        let last_year = Timestamp::parse("2025-11-03T20:15:59.999Z").unwrap();
        assert_eq!(last_year.clock_text(now), "3 Nov 2025 20:15 UTC");
        assert_eq!(later.date_text(), "23 Nov 20:59 UTC");
        assert_eq!(
            Timestamp::from_millis(u64::MAX).date_text(),
            "30 Dec 22:00 UTC"
        );
        for (seconds, text) in [
            (0, "0 min"),
            (1, "1 min"),
            (44 * 60, "44 min"),
            (60 * 60, "1 h"),
            (61 * 60, "1 h 1 min"),
            (24 * 60 * 60, "1 d"),
            (50 * 60 * 60 + 1, "2 d 2 h"),
        ] {
            assert_eq!(duration_text(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn durations_never_go_below_zero() {
        let early = Timestamp::from_millis(5);
        assert_eq!(early.since(Timestamp::from_millis(9)), Duration::ZERO);
        assert_eq!(early - Duration::from_secs(1), Timestamp::EPOCH);
    }
}
