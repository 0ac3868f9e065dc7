//! Way out of a run in a container without a network: a proxy on a loopback port that passes connections on to the proxy
//! of the service.
//!
//! It adds the nonce of the session, so that children need none, and turns requests for plain HTTP into tunnels, which
//! are all that the service offers. While the service restarts, new connections wait.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use domain::secret::Secret;
use vendors::http::read_head;

/// Maximum number of concurrent connections. That of the service is lower.
const MAX_CONNECTIONS: usize = 256;

/// Maximum length of the head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;

/// Maximum duration of receiving a head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time to wait for a service that does not accept connections. Longer than a restart takes.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two attempts to connect to the service.
const SERVICE_RETRY_DELAY: Duration = Duration::from_millis(250);

/// Hosts that children reach without the proxy.
const DIRECT_HOSTS: &str = "localhost,127.0.0.1,::1";

/// Proxy of the service.
struct ServiceProxy {
    socket: PathBuf,
    nonce: Secret,
}

/// Opens the relay. It runs until the process ends. Returns its address.
///
/// # Errors
/// If no port can be opened.
pub(crate) fn open(socket: &Path, nonce: Secret) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let listener = TcpListener::from_std(listener)?;
    let service = Arc::new(ServiceProxy {
        socket: socket.to_owned(),
        nonce,
    });
    tasks::spawn(async move {
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(slot) = Arc::clone(&free).acquire_owned().await {
            // Errors are of the client or pass.
            let Ok((client, _)) = listener.accept().await else {
                sleep(SERVICE_RETRY_DELAY).await;
                continue;
            };
            let service = Arc::clone(&service);
            tasks::spawn(async move {
                // Both ends see the end of a connection.
                let _ = service.relay(client).await;
                drop(slot);
            });
        }
    });
    Ok(address)
}

/// Sets the variables that make programs use the relay. Other options of Java stay in force.
pub(crate) fn set_variables(variables: &mut HashMap<String, String>, relay: SocketAddr) {
    let (address, port) = (format!("http://{relay}"), relay.port());
    let of_java =
        |scheme: &str| format!("-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}");
    let java = format!("{} {}", of_java("http"), of_java("https"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        variables.insert(name.to_owned(), address.clone());
    }
    for name in ["NO_PROXY", "no_proxy"] {
        variables.insert(name.to_owned(), DIRECT_HOSTS.to_owned());
    }
    variables.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    // Of two equal options, Java uses the last one.
    let of_project = variables.entry("JAVA_TOOL_OPTIONS".to_owned()).or_default();
    *of_project = format!("{of_project} {java}").trim_start().to_owned();
}

/// Parses the head of a request, for fuzzing.
pub fn fuzz_proxy_request(head: &str) {
    let _ = ProxyRequest::parse(head);
}

impl ServiceProxy {
    async fn relay(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let (head, rest) = timeout(HEAD_TIMEOUT, read_head(&mut client, MAX_HEAD)).await??;
        let Some(request) = ProxyRequest::parse(&head) else {
            return client
                .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                .await;
        };
        let mut service = self.connect().await?;
        let connect = format!(
            "CONNECT {} HTTP/1.1\r\nProxy-Authorization: Bearer {}\r\n\r\n",
            request.destination,
            self.nonce.expose()
        );
        service.write_all(connect.as_bytes()).await?;
        if let Some(forwarded) = request.forwarded {
            let (response, begun) = read_head(&mut service, MAX_HEAD).await?;
            if !response.starts_with("HTTP/1.1 200 ") {
                client.write_all(response.as_bytes()).await?;
                client.write_all(&begun).await?;
                return copy_bidirectional(&mut client, &mut service)
                    .await
                    .map(drop);
            }
            service.write_all(forwarded.as_bytes()).await?;
        }
        service.write_all(&rest).await?;
        copy_bidirectional(&mut client, &mut service)
            .await
            .map(drop)
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let give_up_at = Instant::now() + SERVICE_TIMEOUT;
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(_) if Instant::now() < give_up_at => sleep(SERVICE_RETRY_DELAY).await,
                connected => return connected,
            }
        }
    }
}

/// Request to a proxy.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    /// Host and port.
    destination: String,
    /// Head to send to the host; `None` for a tunnel.
    forwarded: Option<String>,
}

impl ProxyRequest {
    /// Parses the head of a request: for a tunnel, or for a plain HTTP address.
    fn parse(head: &str) -> Option<Self> {
        let (line, headers) = head.split_once("\r\n")?;
        let (method, rest) = line.split_once(' ')?;
        let (target, version) = rest.rsplit_once(' ')?;
        if method == "CONNECT" {
            return Some(Self {
                destination: target.to_owned(),
                forwarded: None,
            });
        }
        let address = target.strip_prefix("http://")?;
        let path_at = address.find(['/', '?']).unwrap_or(address.len());
        let (authority, path) = address.split_at(path_at);
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.chars().all(|c| c.is_ascii_digit()));
        let slash = if path.starts_with('/') { "" } else { "/" };
        // The client would send its next request about another host on the same connection.
        let mut forwarded = format!("{method} {slash}{path} {version}\r\nConnection: close\r\n");
        let is_kept = |line: &&str| {
            let name = line
                .split(':')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase();
            !name.starts_with("proxy-") && name != "connection" && name != "keep-alive"
        };
        for line in headers
            .split("\r\n")
            .filter(is_kept)
            .filter(|line| !line.is_empty())
        {
            forwarded += line;
            forwarded += "\r\n";
        }
        forwarded += "\r\n";
        Some(Self {
            destination: match has_port {
                true => host.to_owned(),
                false => format!("{host}:80"),
            },
            forwarded: Some(forwarded),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    #[test]
    fn parses_requests() {
        let parse =
            |head: &str| ProxyRequest::parse(head).map(|one| (one.destination, one.forwarded));
        let tunnel = parse("CONNECT x.dev:443 HTTP/1.1\r\nHost: x.dev\r\n\r\n");
        assert_eq!(tunnel, Some(("x.dev:443".to_owned(), None)));
        let (to, forwarded) = parse(
            "GET http://x.dev/a?b=http://y HTTP/1.1\r\nHost: x.dev\r\nProxy-Authorization: z\r\n\
             Connection: keep-alive\r\nAccept: */*\r\n\r\n",
        )
        .unwrap();
        assert_eq!(to, "x.dev:80");
        let expected =
            "GET /a?b=http://y HTTP/1.1\r\nConnection: close\r\nHost: x.dev\r\nAccept: */*\r\n\r\n";
        assert_eq!(forwarded.as_deref(), Some(expected));
        let (to, forwarded) = parse("POST http://u:p@[::1]:8080 HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(to, "[::1]:8080");
        assert!(forwarded.unwrap().starts_with("POST / HTTP/1.1\r\n"));
        for head in [
            "",
            "GET / HTTP/1.1\r\n\r\n",
            "GET https://x/ HTTP/1.1\r\n\r\n",
            "x\r\n\r\n",
        ] {
            assert_eq!(parse(head), None, "{head}");
        }
    }

    /// Sends a request to a relay whose service answers each tunnel with `answer`. Returns what the service got and what
    /// the client got.
    async fn exchange(request: &str, answer: &'static str) -> (String, String) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let relay = open(&socket, Secret::new("n1")).unwrap();
        let mut client = TcpStream::connect(relay).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        // The service is not there yet.
        sleep(Duration::from_millis(50)).await;
        let service = UnixListener::bind(&socket).unwrap();
        let (mut tunnel, _) = service.accept().await.unwrap();
        let (head, _) = read_head(&mut tunnel, MAX_HEAD).await.unwrap();
        tunnel.write_all(answer.as_bytes()).await.unwrap();
        let mut got = head;
        if answer.contains(" 200 ") {
            let (forwarded, body) = read_head(&mut tunnel, MAX_HEAD).await.unwrap();
            got += &forwarded;
            got += &String::from_utf8(body).unwrap();
            tunnel
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
        }
        drop(tunnel);
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        (got, response)
    }

    #[tokio::test]
    async fn passes_plain_requests_through_a_tunnel() {
        let request = "GET http://x.dev/a HTTP/1.1\r\nHost: x.dev\r\n\r\nbody";
        let established = "HTTP/1.1 200 Connection established\r\n\r\n";
        let (got, response) = exchange(request, established).await;
        let head = "CONNECT x.dev:80 HTTP/1.1\r\nProxy-Authorization: Bearer n1\r\n\r\n";
        assert_eq!(
            got,
            format!("{head}GET /a HTTP/1.1\r\nConnection: close\r\nHost: x.dev\r\n\r\nbody")
        );
        assert_eq!(response, "HTTP/1.1 204 No Content\r\n\r\n");
    }

    #[tokio::test]
    async fn passes_a_refusal_on() {
        let refused = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        for request in [
            "GET http://x.dev/a HTTP/1.1\r\nHost: x.dev\r\n\r\n",
            "CONNECT x.dev:443 HTTP/1.1\r\n\r\n",
        ] {
            let (_, response) = exchange(request, refused).await;
            assert_eq!(response, refused, "{request}");
        }
    }
}
