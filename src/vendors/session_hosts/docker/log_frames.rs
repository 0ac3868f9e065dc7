//! Frames of a container's log.

use domain::sanitize::log_tail;

/// Removes the frame headers of a multiplexed log: eight bytes (stream, three zeroes, length) before each
/// chunk. A log without frames, of a container with a terminal, is returned unchanged.
pub(super) fn strip_log_frames(log: &[u8]) -> String {
    let mut text = Vec::with_capacity(log.len());
    let mut rest = log;
    while let Some((head, tail)) = rest.split_first_chunk::<8>() {
        let [stream, 0, 0, 0, length @ ..] = *head else {
            break;
        };
        if stream > 2 {
            break;
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (piece, after) = tail.split_at(length.min(tail.len()));
        text.extend_from_slice(piece);
        rest = after;
    }
    if rest.len() == log.len() {
        text.extend_from_slice(rest);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Fuzzing entry point: returns the log tail of a raw log of the engine.
pub fn container_log_tail(log: &[u8]) -> String {
    log_tail(strip_log_frames(log).lines())
}
