//! Key of the stored secrets, in a file that only its owner may read.
//!
//! The file is created once, atomically and durably, and never replaced: without the key, the secrets are
//! lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use domain::secret::Secret;

use super::restore::copy_owner;
use super::{Store, StoreError, StoreResult, secrets};

/// Name of the key file in the data directory.
pub const SECRETS_KEY_FILE: &str = "secrets.key";

impl Store {
    /// Reads the key file. If there is none, creates it with `new_key`. A store in memory returns `new_key`.
    ///
    /// # Errors
    /// If the file cannot be read or written, or if it is missing although there are stored secrets.
    pub fn vault_key(&self, new_key: Secret) -> StoreResult<Secret> {
        let Some(dir) = self.dir() else {
            return Ok(new_key);
        };
        let path = dir.join(SECRETS_KEY_FILE);
        let failed = |cause| StoreError::Open {
            path: path.display().to_string(),
            cause,
        };
        if !path.try_exists().map_err(failed)? {
            if !self.read(secrets::all)?.is_empty() {
                return Err(failed(io::Error::new(
                    io::ErrorKind::NotFound,
                    "the key of the stored secrets is missing; put the file back, or set SECRETS_KEY to its content",
                )));
            }
            create(dir, &path, &new_key).map_err(failed)?;
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        Ok(Secret::new(text.trim()))
    }
}

/// Writes the key to a temporary file and links that to its path, so that the file is never incomplete and
/// never replaces another.
pub(super) fn create(dir: &Path, path: &Path, key: &Secret) -> io::Result<()> {
    let temporary = dir.join(format!("{SECRETS_KEY_FILE}.{}.new", std::process::id()));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(key.expose().as_bytes())?;
    copy_owner(dir, &temporary)?;
    file.sync_all()?;
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::secrets::SealedSecret;
    use domain::session_secrets::{SecretName, SecretScope};
    use domain::time::Timestamp;

    #[tokio::test]
    async fn creates_the_key_once_and_reports_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let first = store.vault_key(Secret::new("first")).unwrap();
        assert_eq!(first.expose(), "first");
        assert_eq!(store.vault_key(Secret::new("second")).unwrap(), first);
        let path = dir.path().join(SECRETS_KEY_FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let name = SecretName::parse(SecretScope::Global, "N").unwrap();
        let sealed = SealedSecret {
            sealed: "x".into(),
            updated_at: Timestamp::EPOCH,
        };
        let put = store.write(move |tx| secrets::put(tx, &name, &sealed));
        put.await.unwrap();
        fs::remove_file(&path).unwrap();
        let error = store.vault_key(Secret::new("third")).unwrap_err();
        assert!(error.to_string().contains("is missing"), "{error}");
        assert!(!path.exists(), "no new key is created");
    }
}
