//! Control socket: `control.sock` in the data directory, for the owner of that directory.
//!
//! Access is controlled by file permissions: the socket has mode 0600. It is created in a directory of
//! mode 0700 and then moved, so that it is never accessible to other users. In addition, the uid of each
//! peer is checked. The listener marks requests from this socket as
//! [`Peer::ControlSocket`](super::routing::Peer); no request can set this mark itself.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// File name of the socket in the data directory.
const NAME: &str = "control.sock";

/// Name of the temporary directory in which the socket is created.
const TEMP_DIR: &str = ".control.new";

/// Maximum length of a socket path, in bytes, without the terminating NUL.
const MAX_PATH: usize = 107;

/// Listening control socket. Its file is removed when it is dropped.
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Opens the socket in the data directory. Replaces a socket that a killed service left behind. Only the
    /// service that has locked the store of the directory may call this.
    ///
    /// # Errors
    /// When the socket cannot be created in the directory.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let temp_dir = dir.join(TEMP_DIR);
        remove(&temp_dir)?;
        DirBuilder::new().mode(0o700).create(&temp_dir)?;
        let socket = Self::create(dir, &temp_dir);
        remove(&temp_dir)?;
        socket
    }

    fn create(dir: &Path, temp_dir: &Path) -> io::Result<Self> {
        let (address, _dir_handle) = control_socket_path(temp_dir)?;
        let listener = UnixListener::bind(address)?;
        fs::set_permissions(temp_dir.join(NAME), Permissions::from_mode(0o600))?;
        let path = dir.join(NAME);
        fs::rename(temp_dir.join(NAME), &path)?;
        Ok(Self { listener, path })
    }

    /// Accepts the next connection. Returns `None` if the uid of the peer is neither root nor our own.
    pub(super) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            return Ok(Some(stream));
        }
        tracing::warn!(uid, "Rejected control-socket connection: uid mismatch.");
        Ok(None)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // If this fails, the file is gone already, or the next start replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns a path to the control socket of a directory that fits into a socket address. If the full path
/// is too long, the path goes through `/proc/self/fd`; it is valid while the returned file is open.
///
/// # Errors
/// When the directory cannot be opened.
pub fn control_socket_path(dir: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = dir.join(NAME);
    if path.as_os_str().as_bytes().len() <= MAX_PATH {
        return Ok((path, None));
    }
    let dir = File::open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    Ok((short.join(NAME), Some(dir)))
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
