//! Timestamps and identifiers in the vendors' formats.

use jiff::Timestamp;

pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Formats milliseconds since the epoch as `2026-11-20T23:36:11.093Z`.
pub(crate) fn iso(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
        .to_string()
}

/// Formats milliseconds since the epoch as `2026-11-20T23:36:11Z`, GitHub's format.
pub(crate) fn iso_seconds(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// Parses a full timestamp or a bare date (its midnight, UTC) to milliseconds since the epoch.
pub(crate) fn parse(text: &str) -> Option<i64> {
    text.parse::<Timestamp>()
        .or_else(|_| format!("{text}T00:00:00Z").parse())
        .ok()
        .map(Timestamp::as_millisecond)
}

/// Returns a random version 4 UUID.
pub(crate) fn uuid() -> String {
    let mut bytes = [0u8; 16];
    fastrand::fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
