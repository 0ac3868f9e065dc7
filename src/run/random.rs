//! Random keys and marks, which nobody can guess.

use ring::rand::{SecureRandom, SystemRandom};

/// Returns 128 random bits in hexadecimal.
pub(crate) fn random_hex() -> String {
    let mut bytes = [0u8; 16];
    // The fallback is theoretical: TLS needs the system's randomness too.
    let filled = SystemRandom::new().fill(&mut bytes).is_ok();
    if filled {
        data_encoding::HEXLOWER.encode(&bytes)
    } else {
        format!("{:032x}", fastrand::u128(..))
    }
}
