//! Tar archive of regular files, as the engine takes a build context.
//!
//! Rightly ours: one header format for two files with short names. The crate `tar` writes to blocking
//! writers and brings extraction, links and extended attributes along.

/// Size of a header, and unit of the length of content.
const BLOCK: usize = 512;

/// End of an archive.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Returns the header of a regular file that belongs to root. `name` has at most 99 bytes, `size` at most
/// 11 octal digits.
pub(super) fn header(name: &str, mode: u32, size: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    put(&mut header, 0, name.as_bytes());
    put(&mut header, 100, format!("{mode:07o}").as_bytes());
    put(&mut header, 108, b"0000000");
    put(&mut header, 116, b"0000000");
    put(&mut header, 124, format!("{size:011o}").as_bytes());
    // A constant time of change keeps the engine's cache of unchanged layers.
    put(&mut header, 136, b"00000000000");
    put(&mut header, 148, b"        ");
    put(&mut header, 156, b"0");
    put(&mut header, 257, b"ustar\0");
    put(&mut header, 263, b"00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Returns the zeroes after content of this size.
pub(super) fn padding(size: u64) -> Vec<u8> {
    let used = usize::try_from(size % BLOCK as u64).unwrap_or_default();
    vec![0; (BLOCK - used) % BLOCK]
}

fn put(header: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}
