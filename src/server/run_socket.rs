//! Socket of runs: the routes of runs for local containers, in a folder of its own in the data directory. The socket of
//! the proxy is beside it.
//!
//! The folder is mounted read-only into each container. Runs in containers have other uids than the service,
//! so every local user may connect. That gives no access: each route requires a token or nonce of a run, and
//! no other route is offered. Only the service can write to the folder, so nobody else can replace the socket.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use tokio::net::UnixStream;

use super::socket_file::SocketFile;
use domain::run_socket::{FILE, FOLDER};

/// Permissions of the folder: others can only look up names in it.
const FOLDER_MODE: u32 = 0o711;

/// Permissions of the socket: everybody can connect.
const MODE: u32 = 0o666;

/// Listening socket of runs. Its file is removed when it is dropped. Its folder stays, because containers
/// that outlive the service have mounted it.
pub struct RunSocket(SocketFile);

impl RunSocket {
    /// Opens the socket in the data directory. Replaces a socket that a killed service left behind. Only the
    /// service that has locked the store of the directory may call this.
    ///
    /// # Errors
    /// When the socket cannot be created in the directory.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        create(data_dir, FILE).map(Self)
    }

    /// Accepts the next connection.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.0.accept().await
    }
}

/// Creates a socket to which everybody can connect in the folder that containers mount, and the folder.
///
/// # Errors
/// When the socket cannot be created in the directory.
pub(super) fn create(data_dir: &Path, name: &str) -> io::Result<SocketFile> {
    let folder = data_dir.join(FOLDER);
    match DirBuilder::new().mode(FOLDER_MODE).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !fs::symlink_metadata(&folder)?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a folder", folder.display()),
        ));
    }
    // The umask may have removed permissions.
    fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE))?;
    SocketFile::create(&folder, name, MODE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn everybody_may_connect_and_only_the_service_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        let socket = RunSocket::open(dir.path()).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join(FILE))), (0o711, 0o666));
        let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!(names(&folder), 1, "no temporary file stays");
        // A killed service leaves its socket behind.
        std::mem::forget(socket);
        let again = RunSocket::open(dir.path()).unwrap();
        assert!(UnixStream::connect(folder.join(FILE)).await.is_ok());
        drop(again);
        assert_eq!(names(&folder), 0);
    }

    #[tokio::test]
    async fn does_not_follow_a_link_in_place_of_the_folder() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), dir.path().join(FOLDER)).unwrap();
        assert!(RunSocket::open(dir.path()).is_err());
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }
}
