//! DNS server that knows one name.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Type of a question for an IPv4 address.
const TYPE_A: [u8; 2] = [0, 1];

/// Server on the port of DNS at a random loopback address. Its thread ends with the process.
pub struct NameServer {
    address: IpAddr,
    answered: Arc<AtomicUsize>,
}

impl NameServer {
    /// Starts a server that answers 127.0.0.1 for this name, and for every other name that it does not exist.
    ///
    /// # Panics
    /// If this user may not listen on port 53.
    pub fn start(name: &str) -> Self {
        let address = Ipv4Addr::new(
            127,
            fastrand::u8(1..),
            fastrand::u8(..),
            fastrand::u8(1..255),
        );
        let socket = UdpSocket::bind((address, 53)).unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let (encoded, counter) = (encode(name), answered.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                let Some((reply, found)) = reply(&buffer[..length], &encoded) else {
                    continue;
                };
                counter.fetch_add(usize::from(found), Ordering::Relaxed);
                let _ = socket.send_to(&reply, client);
            }
        });
        Self {
            address: address.into(),
            answered,
        }
    }

    /// Returns the address of the server.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the number of questions for the IPv4 address of the name.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Name as in a question: each label after its length, and an empty one.
fn encode(name: &str) -> Vec<u8> {
    let labels = name.split('.').chain([""]);
    let encode_label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
    labels.flat_map(encode_label).collect()
}

/// Returns the reply to a query, and whether it has an address. `None` if it is not a query.
fn reply(query: &[u8], name: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (header, rest) = query.split_at_checked(12)?;
    let end = rest.iter().position(|byte| *byte == 0)? + 1;
    let (asked, kind) = (rest.get(..end)?, rest.get(end..end + 2)?);
    let question = rest.get(..end + 4)?;
    let known = asked.eq_ignore_ascii_case(name);
    let found = known && kind == TYPE_A;
    let status = if known { 0 } else { 3 };
    let counts = [0, 1, 0, u8::from(found), 0, 0, 0, 0];
    let mut reply = [&header[..2], &[0x81, 0x80 | status], &counts, question].concat();
    if found {
        // The name of the question, type A, class IN, one minute, four bytes.
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some((reply, found))
}
