//! Classification of hosts in addresses: remote or local.

use super::plausibility::contains;

/// Returns whether a host is remote. A host without a dot is usually another service in the same compose
/// file.
pub(super) fn is_remote(host: &[u8]) -> bool {
    host.contains(&b'.') && !is_local(host)
}

/// Returns whether a host is the local machine, the host of a container, or a documentation example.
pub(super) fn is_local(host: &[u8]) -> bool {
    let host = host.to_ascii_lowercase();
    let local: [&[u8]; 15] = [
        b"localhost",
        b".local",
        b".localhost",
        b".localdomain",
        b".test",
        b".example",
        b".invalid",
        b"docker.internal",
        b"google.internal",
        b"example.com",
        b"example.org",
        b"example.net",
        b"example.internal",
        b"domain.com",
        b"domain.tld",
    ];
    // A name in a company's network, such as `sql01.corp.local`, is a remote machine.
    let is_corporate = |ending: &&[u8]| {
        *ending == b".local" && host.iter().filter(|byte| **byte == b'.').count() >= 2
    };
    let is_local = local
        .iter()
        .any(|ending| host.ends_with(ending) && !is_corporate(ending));
    let is_placeholder = [&b"host"[..], b"server", b"hostname", b"your", b"my"]
        .iter()
        .any(|word| host.starts_with(word) && contains(&host, b"."))
        && host.iter().filter(|byte| **byte == b'.').count() == 1;
    let is_loopback = host.starts_with(b"127.") || host.starts_with(b"0.");
    is_local || is_loopback || is_placeholder
}
