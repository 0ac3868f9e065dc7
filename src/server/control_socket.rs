//! Control socket: `control.sock` in the data directory, for the owner of that directory.
//!
//! Access is controlled by file permissions: the socket has mode 0600. In addition, the uid of each peer is
//! checked. The listener marks requests from this socket as
//! [`Peer::ControlSocket`](super::routing::Peer); no request can set this mark itself.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::socket_file::{self, SocketFile};

/// File name of the socket in the data directory.
const NAME: &str = "control.sock";

/// Permissions of the socket.
const MODE: u32 = 0o600;

/// Listening control socket. Its file is removed when it is dropped.
pub struct ControlSocket(SocketFile);

impl ControlSocket {
    /// Opens the socket in the data directory. Replaces a socket that a killed service left behind. Only the
    /// service that has locked the store of the directory may call this.
    ///
    /// # Errors
    /// When the socket cannot be created in the directory.
    pub fn open(dir: &Path) -> io::Result<Self> {
        SocketFile::create(dir, NAME, MODE).map(Self)
    }

    /// Accepts the next connection. Returns `None` if the uid of the peer is neither root nor our own.
    pub(super) async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let stream = self.0.accept().await?;
        let uid = stream.peer_cred()?.uid();
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            return Ok(Some(stream));
        }
        tracing::warn!(uid, "Rejected control-socket connection: uid mismatch.");
        Ok(None)
    }
}

/// Returns a path to the control socket of a directory that fits into a socket address. If the full path
/// is too long, the path goes through `/proc/self/fd`; it is valid while the returned file is open.
///
/// # Errors
/// When the directory cannot be opened.
pub fn control_socket_path(dir: &Path) -> io::Result<(PathBuf, Option<File>)> {
    socket_file::address(dir, NAME)
}
