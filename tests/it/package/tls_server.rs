//! HTTPS server with a certificate of its own that refuses every request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Server on a free port of 127.0.0.1. Its thread ends with the process.
pub struct TlsServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TlsServer {
    /// Starts a server for this host name. Its certificate is `certificate.pem` in the folder.
    pub fn start(name: &str, folder: &Path) -> Self {
        let config = Arc::new(config(name, folder));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = requests.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                // A client that does not trust the certificate ends the handshake.
                if let Ok(request) = connection.and_then(|stream| refuse(stream, &config)) {
                    record.lock().unwrap().push(request);
                }
            }
        });
        Self { port, requests }
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the head of each request.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn config(name: &str, folder: &Path) -> ServerConfig {
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-subj", &format!("/CN={name}")])
        .args(["-addext", &format!("subjectAltName=DNS:{name}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from_pem_file(&certificate).unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate],
            PrivateKeyDer::from_pem_file(&key).unwrap(),
        )
        .unwrap()
}

/// Reads a request, answers 401, and returns its head.
fn refuse(stream: TcpStream, config: &Arc<ServerConfig>) -> io::Result<String> {
    let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let stream = reader.get_mut();
    stream.write_all(
        b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    )?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(head)
}
