//! Hosts in addresses: whose password matters.

use super::plausibility::contains;

/// A host that others can reach; one without a dot is a neighbour in a compose file.
pub(super) fn is_remote(host: &[u8]) -> bool {
    host.contains(&b'.') && !is_local(host)
}

/// This machine, a container's host, or a name of manuals.
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
    // A name in a company's network, such as `sql01.corp.local`, is another machine's.
    let is_neighbour = |ending: &&[u8]| {
        *ending == b".local" && host.iter().filter(|byte| **byte == b'.').count() >= 2
    };
    let is_local = local
        .iter()
        .any(|ending| host.ends_with(ending) && !is_neighbour(ending));
    let stands_for_one = [&b"host"[..], b"server", b"hostname", b"your", b"my"]
        .iter()
        .any(|word| host.starts_with(word) && contains(&host, b"."))
        && host.iter().filter(|byte| **byte == b'.').count() == 1;
    let is_loopback = host.starts_with(b"127.") || host.starts_with(b"0.");
    is_local || is_loopback || stands_for_one
}
