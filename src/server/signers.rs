//! Clients whose last webhook had a good signature.
//!
//! Whether a signature is good depends on the whole body, so anybody can claim one and occupy what is reserved
//! for webhooks. A host sends its webhooks from few addresses: once one of them was good, the next
//! ones from there are as good as a token until one is not.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warp::http::StatusCode;

use super::client::Guest;
use super::crowd::{Owner, Standing};

/// How many clients are remembered. Hosts have a few dozen addresses.
const REMEMBERED: usize = 256;

#[derive(Default)]
pub struct Signers(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    next: u64,
    /// When each was good last.
    owners: HashMap<Owner, u64>,
}

impl Signers {
    /// The standing of a request that claims a signature.
    pub fn standing(&self, guest: Guest) -> Standing {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match guest.standing {
            Standing::Signed if remembered.owners.contains_key(&guest.owner) => Standing::Known,
            other => other,
        }
    }

    /// Notes from its answer whether the signature that a request claimed was good.
    pub fn note(&self, owner: Owner, answer: StatusCode) {
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

    fn owner(number: u32) -> Owner {
        Owner::Network(IpAddr::V4(number.into()))
    }

    fn signed(number: u32) -> Guest {
        Guest {
            standing: Standing::Signed,
            owner: owner(number),
        }
    }

    #[test]
    fn a_good_signature_counts_until_a_bad_one() {
        let signers = Signers::default();
        assert_eq!(signers.standing(signed(1)), Standing::Signed);
        signers.note(owner(1), StatusCode::OK);
        assert_eq!(signers.standing(signed(1)), Standing::Known);
        assert_eq!(signers.standing(signed(2)), Standing::Signed);
        let stranger = Guest {
            standing: Standing::Stranger,
            ..signed(1)
        };
        assert_eq!(signers.standing(stranger), Standing::Stranger);
        signers.note(owner(1), StatusCode::UNAUTHORIZED);
        assert_eq!(signers.standing(signed(1)), Standing::Signed);
    }

    #[test]
    fn the_least_recent_one_is_forgotten() {
        let signers = Signers::default();
        let count = u32::try_from(REMEMBERED).unwrap();
        (0..count).for_each(|number| signers.note(owner(number), StatusCode::OK));
        signers.note(owner(0), StatusCode::OK);
        signers.note(owner(count), StatusCode::OK);
        assert_eq!(signers.standing(signed(0)), Standing::Known);
        assert_eq!(signers.standing(signed(1)), Standing::Signed);
        assert_eq!(signers.standing(signed(count)), Standing::Known);
    }
}
