//! Numbers in JSON.

use serde_json::Value;

/// Largest integer that all JSON implementations represent exactly (RFC 7493).
const MAX_EXACT: u64 = 9_007_199_254_740_991;

/// Returns a non-negative integer. `3.0` is accepted, because many senders do not distinguish it
/// from `3`.
pub fn non_negative_integer(value: &Value) -> Option<u64> {
    let exact = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=MAX_EXACT as f64).contains(&number);
        is_whole.then_some(number as u64)
    });
    exact.filter(|number| *number <= MAX_EXACT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepts_integers_with_a_decimal_point() {
        let rows = [
            (json!(0), Some(0)),
            (json!(3.0), Some(3)),
            (json!(1e3), Some(1000)),
            (json!(MAX_EXACT), Some(MAX_EXACT)),
            (json!(MAX_EXACT + 1), None),
            (json!(u64::MAX), None),
            (json!(1.5), None),
            (json!(-1), None),
            (json!(-1.0), None),
            (json!(1e300), None),
            (json!("3"), None),
            (json!(null), None),
        ];
        for (value, number) in rows {
            assert_eq!(non_negative_integer(&value), number, "{value}");
        }
    }
}
