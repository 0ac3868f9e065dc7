//! The key of the vault, in a file beside the store that only its owner may read.
//!
//! Made once, whole and fsynced before it is in its place, and never written again: whoever loses
//! it loses the secrets, so nothing here may replace it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use domain::secret::Secret;

use super::{Store, StoreError, StoreResult, secrets};

/// The file inside the data directory.
pub const SECRETS_KEY_FILE: &str = "secrets.key";

impl Store {
    /// The text of the key file; `fresh` is put there when there is none. A store in memory keeps
    /// its key in memory, too.
    ///
    /// # Errors
    /// When it cannot be read or written, and when it is missing although secrets were sealed.
    pub fn vault_key(&self, fresh: Secret) -> StoreResult<Secret> {
        let Some(dir) = &self.dir else {
            return Ok(fresh);
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
                    "the key that the stored secrets were sealed with is missing; put the file back, or set SECRETS_KEY to what it held",
                )));
            }
            create(dir, &path, &fresh).map_err(failed)?;
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        Ok(Secret::new(text.trim()))
    }
}

/// Writes the file beside its place and links it there, so that it is never seen half and never
/// takes the place of another.
pub(super) fn create(dir: &Path, path: &Path, key: &Secret) -> io::Result<()> {
    let fresh = dir.join(format!("{SECRETS_KEY_FILE}.{}.new", std::process::id()));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(key.expose().as_bytes())?;
    file.sync_all()?;
    let linked = fs::hard_link(&fresh, path);
    fs::remove_file(&fresh)?;
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
    async fn a_key_is_made_once_for_its_owner_alone_and_missed_when_it_is_needed() {
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
        let told = store.vault_key(Secret::new("third")).unwrap_err();
        assert!(told.to_string().contains("is missing"), "{told}");
        assert!(!path.exists(), "nothing takes its place");
    }
}
