//! Head of a message on a connection that is not parsed by an HTTP library, such as one to a proxy.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// End of a head.
const END: &[u8] = b"\r\n\r\n";

/// Reads the head of a message, of at most `limit` bytes. Returns it with the bytes that follow it.
///
/// # Errors
/// `InvalidData` if the head is too long or no text, `UnexpectedEof` if it is cut off.
pub async fn read_head(
    from: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<(String, Vec<u8>)> {
    let mut received = Vec::with_capacity(1024);
    loop {
        let searched = received.len().saturating_sub(END.len() - 1);
        if from.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut ends = received[searched..].windows(END.len());
        if let Some(end) = ends.position(|four| four == END) {
            let rest = received.split_off(searched + end + END.len());
            let head = String::from_utf8(received);
            return Ok((head.map_err(|_| io::ErrorKind::InvalidData)?, rest));
        }
        if received.len() > limit {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
