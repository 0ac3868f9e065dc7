//! Listening Unix socket with a file of exact permissions.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// Maximum length of a socket path, in bytes, without the terminating NUL.
const MAX_PATH: usize = 107;

/// Listening socket. Its file is removed when it is dropped.
pub(crate) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
}

impl SocketFile {
    /// Creates a socket with these permissions. Replaces a socket that a killed service left behind. The
    /// socket is created in a temporary directory of mode 0700 and then moved, so that it never has other
    /// permissions.
    ///
    /// # Errors
    /// When the socket cannot be created in the directory.
    pub(crate) fn create(dir: &Path, name: &str, mode: u32) -> io::Result<Self> {
        let temp_dir = dir.join(format!(".{name}.new"));
        remove(&temp_dir)?;
        DirBuilder::new().mode(0o700).create(&temp_dir)?;
        let socket = Self::create_in(&temp_dir, dir, name, mode);
        remove(&temp_dir)?;
        socket
    }

    fn create_in(temp_dir: &Path, dir: &Path, name: &str, mode: u32) -> io::Result<Self> {
        let (address, _dir_handle) = address(temp_dir, name)?;
        let listener = UnixListener::bind(address)?;
        fs::set_permissions(temp_dir.join(name), Permissions::from_mode(mode))?;
        let path = dir.join(name);
        fs::rename(temp_dir.join(name), &path)?;
        Ok(Self { listener, path })
    }

    /// Accepts the next connection.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If this fails, the file is gone already, or the next start replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns a path to a socket in a directory that fits into a socket address. If the full path is too long,
/// the path goes through `/proc/self/fd`; it is valid while the returned file is open.
///
/// # Errors
/// When the directory cannot be opened.
pub(crate) fn address(dir: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    let path = dir.join(name);
    if path.as_os_str().as_bytes().len() <= MAX_PATH {
        return Ok((path, None));
    }
    let dir = File::open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    Ok((short.join(name), Some(dir)))
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
