//! Clients whose last webhook had a good signature.
//!
//! Whether a signature is good depends on the whole body, so anybody can claim one and occupy what is reserved
//! for webhooks. A host sends its webhooks from few addresses: once one of them was good, the next
//! ones from there are as good as a token until one is not.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warp::http::StatusCode;

use super::client_identity::ClientIdentity;
use super::connection_limit::{ClientKey, TrustLevel};

/// How many clients are remembered. Hosts have a few dozen addresses.
const REMEMBERED: usize = 256;

#[derive(Default)]
pub struct VerifiedSenders(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    next: u64,
    /// When each was good last.
    owners: HashMap<ClientKey, u64>,
}

impl VerifiedSenders {
    /// The standing of a request that claims a signature.
    pub fn trust_level(&self, guest: ClientIdentity) -> TrustLevel {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match guest.trust {
            TrustLevel::UnverifiedSignature if remembered.owners.contains_key(&guest.key) => {
                TrustLevel::Authenticated
            }
            other => other,
        }
    }

    /// Notes from its answer whether the signature that a request claimed was good.
    pub fn record_response(&self, owner: ClientKey, answer: StatusCode) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = &mut *remembered;
        if answer.is_client_error() {
            remembered.owners.remove(&owner);
        }
        if !answer.is_success() {
            return;
        }
        remembered.next += 1;
        remembered.owners.insert(owner, remembered.next);
        let oldest = remembered.owners.iter().min_by_key(|(_, at)| **at);
        if let Some(oldest) = oldest.map(|(owner, _)| *owner)
            && remembered.owners.len() > REMEMBERED
        {
            remembered.owners.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn owner(number: u32) -> ClientKey {
        ClientKey::Network(IpAddr::V4(number.into()))
    }

    fn signed(number: u32) -> ClientIdentity {
        ClientIdentity {
            trust: TrustLevel::UnverifiedSignature,
            key: owner(number),
        }
    }

    #[test]
    fn a_good_signature_counts_until_a_bad_one() {
        let signers = VerifiedSenders::default();
        assert_eq!(
            signers.trust_level(signed(1)),
            TrustLevel::UnverifiedSignature
        );
        signers.record_response(owner(1), StatusCode::OK);
        assert_eq!(signers.trust_level(signed(1)), TrustLevel::Authenticated);
        assert_eq!(
            signers.trust_level(signed(2)),
            TrustLevel::UnverifiedSignature
        );
        let stranger = ClientIdentity {
            trust: TrustLevel::Anonymous,
            ..signed(1)
        };
        assert_eq!(signers.trust_level(stranger), TrustLevel::Anonymous);
        signers.record_response(owner(1), StatusCode::UNAUTHORIZED);
        assert_eq!(
            signers.trust_level(signed(1)),
            TrustLevel::UnverifiedSignature
        );
    }

    #[test]
    fn the_least_recent_one_is_forgotten() {
        let signers = VerifiedSenders::default();
        let count = u32::try_from(REMEMBERED).unwrap();
        (0..count).for_each(|number| signers.record_response(owner(number), StatusCode::OK));
        signers.record_response(owner(0), StatusCode::OK);
        signers.record_response(owner(count), StatusCode::OK);
        assert_eq!(signers.trust_level(signed(0)), TrustLevel::Authenticated);
        assert_eq!(
            signers.trust_level(signed(1)),
            TrustLevel::UnverifiedSignature
        );
        assert_eq!(
            signers.trust_level(signed(count)),
            TrustLevel::Authenticated
        );
    }
}
