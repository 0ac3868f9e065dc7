//! The control socket: `control.sock` in the data directory, for whoever owns that directory.
//!
//! The authority is the file's: mode 0600, made inside of a folder of mode 0700 and moved to its place,
//! so that there is no instant at which anybody else could open it; and the kernel is asked who has.
//! That a connection came in here is noted beside its requests, by the listener. Nothing that a request
//! carries, on any connection, can say the same.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// The socket inside the data directory.
const NAME: &str = "control.sock";

/// The folder that it is made in.
const NURSERY: &str = ".control.new";

/// Longest path that the address of a socket holds, in bytes, without the zero at its end.
const MAX_PATH: usize = 107;

/// The open socket; its file is removed when it is dropped.
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Opens the socket in the data directory, in the place of one that a service left behind which
    /// was killed. Only the service that holds the directory's store may call this.
    ///
    /// # Errors
    /// When the directory is no place for sockets.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let nursery = dir.join(NURSERY);
        remove(&nursery)?;
        DirBuilder::new().mode(0o700).create(&nursery)?;
        let made = Self::make(dir, &nursery);
        remove(&nursery)?;
        made
    }

    fn make(dir: &Path, nursery: &Path) -> io::Result<Self> {
        let (address, _held) = control_socket_path(nursery)?;
        let listener = UnixListener::bind(address)?;
        fs::set_permissions(nursery.join(NAME), Permissions::from_mode(0o600))?;
        let path = dir.join(NAME);
        fs::rename(nursery.join(NAME), &path)?;
        Ok(Self { listener, path })
    }

    /// The next connection; none when whoever made it has no business here.
    pub(super) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let uid = stream.peer_cred()?.uid();
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            return Ok(Some(stream));
        }
        tracing::warn!(uid, "A stranger was sent away from the control socket.");
        Ok(None)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Gone already, or left to be replaced.
        let _ = fs::remove_file(&self.path);
    }
}

/// The control socket of a folder, by a path that is short enough for an address: where the whole one
/// is too long, the folder's own descriptor stands for it. The path leads there as long as the file
/// beside it is held.
///
/// # Errors
/// When the folder cannot be opened.
pub fn control_socket_path(folder: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = folder.join(NAME);
    if path.as_os_str().as_bytes().len() <= MAX_PATH {
        return Ok((path, None));
    }
    let folder = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    Ok((short.join(NAME), Some(folder)))
}

fn remove(nursery: &Path) -> io::Result<()> {
    match fs::remove_dir_all(nursery) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
