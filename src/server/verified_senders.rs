//! Clients whose last webhook had a valid signature.
//!
//! A signature can be verified only with the whole body, so any client can send an invalid one and use up
//! the capacity reserved for webhooks. A vendor sends its webhooks from few addresses. After a valid
//! signature, further webhooks from the same client are trusted like a valid token, until one has an
//! invalid signature.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warp::http::StatusCode;

use super::client_identity::ClientIdentity;
use super::connection_limit::{ClientKey, TrustLevel};

/// Maximum number of remembered clients. Vendors use a few dozen addresses.
const MAX_CLIENTS: usize = 256;

/// Bounded set of clients whose last webhook had a valid signature.
#[derive(Default)]
pub(crate) struct VerifiedSenders(Mutex<Senders>);

#[derive(Default)]
struct Senders {
    next_seq: u64,
    /// Sequence number of the last valid webhook by client.
    last_valid: HashMap<ClientKey, u64>,
}

impl VerifiedSenders {
    /// Returns the trust level of a client, raised if its last webhook had a valid signature.
    pub(crate) fn trust_level(&self, client: ClientIdentity) -> TrustLevel {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match client.trust {
            TrustLevel::UnverifiedSignature if senders.last_valid.contains_key(&client.key) => {
                TrustLevel::Authenticated
            }
            other => other,
        }
    }

    /// Records, from the status of its response, whether the signature of a webhook was valid.
    pub(crate) fn record_response(&self, client: ClientKey, status: StatusCode) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = &mut *senders;
        if status.is_client_error() {
            senders.last_valid.remove(&client);
        }
        if !status.is_success() {
            return;
        }
        senders.next_seq += 1;
        senders.last_valid.insert(client, senders.next_seq);
        let oldest = senders.last_valid.iter().min_by_key(|(_, seq)| **seq);
        if let Some(oldest) = oldest.map(|(client, _)| *client)
            && senders.last_valid.len() > MAX_CLIENTS
        {
            senders.last_valid.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(number: u32) -> ClientKey {
        ClientKey::Network(IpAddr::V4(number.into()))
    }

    fn with_signature(number: u32) -> ClientIdentity {
        ClientIdentity {
            trust: TrustLevel::UnverifiedSignature,
            key: client(number),
        }
    }

    #[test]
    fn trusts_a_client_until_an_invalid_signature() {
        let senders = VerifiedSenders::default();
        assert_eq!(
            senders.trust_level(with_signature(1)),
            TrustLevel::UnverifiedSignature
        );
        senders.record_response(client(1), StatusCode::OK);
        assert_eq!(
            senders.trust_level(with_signature(1)),
            TrustLevel::Authenticated
        );
        assert_eq!(
            senders.trust_level(with_signature(2)),
            TrustLevel::UnverifiedSignature
        );
        let anonymous = ClientIdentity {
            trust: TrustLevel::Anonymous,
            ..with_signature(1)
        };
        assert_eq!(senders.trust_level(anonymous), TrustLevel::Anonymous);
        senders.record_response(client(1), StatusCode::UNAUTHORIZED);
        assert_eq!(
            senders.trust_level(with_signature(1)),
            TrustLevel::UnverifiedSignature
        );
    }

    #[test]
    fn forgets_the_least_recent_client() {
        let senders = VerifiedSenders::default();
        let count = u32::try_from(MAX_CLIENTS).unwrap();
        (0..count).for_each(|number| senders.record_response(client(number), StatusCode::OK));
        senders.record_response(client(0), StatusCode::OK);
        senders.record_response(client(count), StatusCode::OK);
        assert_eq!(
            senders.trust_level(with_signature(0)),
            TrustLevel::Authenticated
        );
        assert_eq!(
            senders.trust_level(with_signature(1)),
            TrustLevel::UnverifiedSignature
        );
        assert_eq!(
            senders.trust_level(with_signature(count)),
            TrustLevel::Authenticated
        );
    }
}
