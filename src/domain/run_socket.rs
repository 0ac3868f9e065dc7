//! Socket through which runs in local containers reach the service.
//!
//! The folder of the socket is mounted, not the socket itself: a restart of the service creates a new
//! socket in the same folder, which the container then sees.

use std::path::Path;

/// Name of the folder in the data directory.
pub const FOLDER: &str = "run-socket";

/// Name of the socket in its folder.
pub const FILE: &str = "service.sock";

/// Name of the socket of the proxy to other hosts, in the same folder.
pub const PROXY_FILE: &str = "egress.sock";

/// Variable with the path of the socket of the proxy, for a run in a container without a network.
pub const PROXY_VARIABLE: &str = "EGRESS_PROXY";

/// Folder of the container at which the folder of the socket is mounted.
pub const MOUNT_POINT: &str = "/run/agent-implement";

/// Scheme of the callback URL of a socket.
const SCHEME: &str = "unix:";

/// Returns the callback URL of a run in a container.
pub fn callback_url() -> String {
    format!("{SCHEME}{MOUNT_POINT}/{FILE}")
}

/// Returns the path of the socket of the proxy in a container.
pub fn proxy_path() -> String {
    format!("{MOUNT_POINT}/{PROXY_FILE}")
}

/// Returns the path of the socket that a callback URL names; `None` for the URL of a network address.
pub fn socket_path(callback_url: &str) -> Option<&Path> {
    callback_url.strip_prefix(SCHEME).map(Path::new)
}
