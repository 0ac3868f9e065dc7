//! Numbers as JSON has them.

use serde_json::Value;

/// The largest number that every sender and reader of JSON can write exactly. (RFC 7493)
const EXACT: u64 = 9_007_199_254_740_991;

/// A whole number that is not negative. `3.0` is one, as it is in the language of most who send it.
pub fn non_negative_integer(value: &Value) -> Option<u64> {
    let exact = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=EXACT as f64).contains(&number);
        is_whole.then_some(number as u64)
    });
    exact.filter(|number| *number <= EXACT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let rows = [
            (json!(0), Some(0)),
            (json!(3.0), Some(3)),
            (json!(1e3), Some(1000)),
            (json!(EXACT), Some(EXACT)),
            (json!(EXACT + 1), None),
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
