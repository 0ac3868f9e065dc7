//! Encrypted values in the store: secrets of sessions, decrypted only for the environment of a session, and
//! credentials of vendors, decrypted for their clients.

use std::collections::BTreeMap;

use domain::connection::{CredentialField, CredentialValues};
use domain::crypto::sealing::{SealError, SealingKey};
use domain::ids::TeamKey;
use domain::secret::Secret;
use domain::session_secrets::{SecretName, SecretScope, variable_from_stored_name};
use domain::time::Timestamp;
use store::secrets::{self, SealedSecret, SealedSecretRow};
use store::{ReadableTx, Store, StoreError, connections};

/// Error of the vault. No variant contains a secret value.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The sealing key is invalid or could not be generated.
    #[error("the key of the stored secrets: {0}")]
    Key(SealError),
    /// A stored secret could not be decrypted with the configured key.
    #[error(
        "the stored secret {0} cannot be opened: {1}. Start with the key that it was sealed with, in SECRETS_KEY or in the file secrets.key of the data directory"
    )]
    Locked(String, SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sealing key of the stored secrets.
pub struct Vault {
    key: SealingKey,
}

impl Vault {
    /// Opens the vault with the configured key, else with the key file in the data directory, which
    /// is created at the first start.
    ///
    /// # Errors
    /// Fails if there is no key, or if it does not decrypt every stored secret: continuing would
    /// lose them.
    pub fn open(configured: Option<&Secret>, store: &Store) -> Result<Self, VaultError> {
        let text = match configured {
            Some(text) => text.clone(),
            None => store.vault_key(SealingKey::generate().map_err(VaultError::Key)?)?,
        };
        let key = SealingKey::parse(&text).map_err(VaultError::Key)?;
        let vault = Self { key };
        for row in store.read(secrets::all)? {
            vault.value(&row)?;
        }
        Ok(vault)
    }

    /// Whether a key decrypts all of these secrets.
    pub fn can_open(key: &Secret, rows: &[SealedSecretRow]) -> bool {
        let Ok(key) = SealingKey::parse(key) else {
            return false;
        };
        let vault = Self { key };
        rows.iter().all(|row| vault.value(row).is_ok())
    }

    /// Derives the secret that signs run tokens if none is configured.
    ///
    /// # Errors
    /// See [`SealingKey::derive`].
    pub(super) fn run_token_secret(&self) -> Result<Secret, SealError> {
        self.key.derive("run tokens")
    }

    /// Encrypts a value, bound to its name.
    ///
    /// # Errors
    /// Fails if the operating system provides no random bytes.
    pub fn seal(
        &self,
        name: &SecretName,
        value: &Secret,
        now: Timestamp,
    ) -> Result<SealedSecret, SealError> {
        let associated = associated_data(&name.scope().owner(), &name.stored_name());
        Ok(SealedSecret {
            sealed: self.key.seal(&associated, value)?,
            updated_at: now,
        })
    }

    /// Encrypts a credential of a vendor, bound to its name.
    ///
    /// # Errors
    /// Fails if the operating system provides no random bytes.
    pub(crate) fn seal_credential(
        &self,
        field: CredentialField,
        value: &Secret,
        now: Timestamp,
    ) -> Result<SealedSecret, SealError> {
        let owner = connections::owner(field.set().connection());
        let associated = associated_data(&owner, field.variable());
        Ok(SealedSecret {
            sealed: self.key.seal(&associated, value)?,
            updated_at: now,
        })
    }

    /// Decrypts all stored credentials of vendors.
    ///
    /// # Errors
    /// Fails if the store cannot be read or a row was altered.
    pub(crate) fn credentials(&self, tx: &impl ReadableTx) -> Result<CredentialValues, VaultError> {
        let rows = connections::all(tx)?.into_iter();
        let opened = rows.map(|(field, row)| Ok((field, self.value(&row)?)));
        opened.collect()
    }

    /// Decrypts the secrets for a session of this team, by variable: the global secrets and those
    /// of the team, which take precedence.
    ///
    /// # Errors
    /// Fails if the store cannot be read or a row was altered.
    pub fn session_secrets(
        &self,
        tx: &impl ReadableTx,
        team: &TeamKey,
    ) -> Result<BTreeMap<String, Secret>, VaultError> {
        let mut environment = BTreeMap::new();
        for scope in [SecretScope::Global, SecretScope::Team(team.clone())] {
            for row in secrets::of_scope(tx, &scope)? {
                if let Some(variable) = variable_from_stored_name(&scope, &row.stored_name) {
                    environment.insert(variable.to_owned(), self.value(&row)?);
                }
            }
        }
        Ok(environment)
    }

    fn value(&self, row: &SealedSecretRow) -> Result<Secret, VaultError> {
        let associated = associated_data(&row.owner, &row.stored_name);
        let opened = self.key.open(&associated, &row.secret.sealed);
        opened.map_err(|why| VaultError::Locked(row.stored_name.clone(), why))
    }
}

/// Associated data of a sealed value. Neither half contains a slash.
fn associated_data(owner: &str, stored: &str) -> String {
    format!("{owner}/{stored}")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn put(vault: &Vault, store: &Store, scope: SecretScope, name: &str, value: &str) {
        let name = SecretName::parse(scope, name).unwrap();
        let sealed = vault.seal(&name, &Secret::new(value), Timestamp::EPOCH);
        let sealed = sealed.unwrap();
        let put = store.write(move |tx| secrets::put(tx, &name, &sealed));
        put.await.unwrap();
    }

    fn session(vault: &Vault, store: &Store, team: &str) -> Vec<String> {
        let opened = store.read(|tx| Ok(vault.session_secrets(tx, &team.into())));
        let opened = opened.unwrap().unwrap();
        let show = |(name, value): (&String, &Secret)| format!("{name}={}", value.expose());
        opened.iter().map(show).collect()
    }

    #[tokio::test]
    async fn a_session_gets_the_secrets_of_its_team_and_the_global_ones() {
        let store = Store::in_memory().unwrap();
        let vault = Vault::open(None, &store).unwrap();
        let team = |key: &str| SecretScope::Team(key.into());
        put(&vault, &store, SecretScope::Global, "TOKEN", "global").await;
        put(&vault, &store, SecretScope::Global, "SHARED", "all").await;
        put(&vault, &store, team("ENG"), "TOKEN", "eng").await;
        put(&vault, &store, team("ENG2"), "TOKEN", "eng2").await;
        put(&vault, &store, team("ENG_X"), "TOKEN", "eng-x").await;
        put(
            &vault,
            &store,
            team("ENG"),
            "X_TOKEN",
            "looks like the other's",
        )
        .await;
        assert_eq!(
            session(&vault, &store, "ENG"),
            ["SHARED=all", "TOKEN=eng", "X_TOKEN=looks like the other's"]
        );
        assert_eq!(
            session(&vault, &store, "ENG2"),
            ["SHARED=all", "TOKEN=eng2"]
        );
        assert_eq!(
            session(&vault, &store, "ENG_X"),
            ["SHARED=all", "TOKEN=eng-x"]
        );
        assert_eq!(
            session(&vault, &store, "EN"),
            ["SHARED=all", "TOKEN=global"]
        );
    }

    #[tokio::test]
    async fn open_fails_with_the_wrong_key() {
        let store = Store::in_memory().unwrap();
        let right = SealingKey::generate().unwrap();
        let vault = Vault::open(Some(&right), &store).unwrap();
        put(&vault, &store, SecretScope::Global, "TOKEN", "value").await;
        assert!(Vault::open(Some(&right), &store).is_ok());
        let wrong = SealingKey::generate().unwrap();
        let error = Vault::open(Some(&wrong), &store).err().unwrap().to_string();
        assert!(error.contains("TOKEN cannot be opened"), "{error}");
    }
}
