//! Servers with their own certificate authority, which ask for a client certificate.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{Client, Proxies};
use crate::http::{Redactor, Request, VendorErrorKind};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this machine, and its key.
fn issued(by: &Authority) -> (rcgen::Certificate, KeyPair) {
    let names = vec!["127.0.0.1".to_owned()];
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(names).unwrap();
    (params.signed_by(&key, by).unwrap(), key)
}

/// Starts a server that answers every request of a client with a certificate of the authority.
async fn start(authority: &Authority) -> String {
    let (certificate, key) = issued(authority);
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(authority.der().to_vec()))
        .unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
        .build()
        .unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    let config = config
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client without a certificate is refused.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 1_024]).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

fn client(authority: Option<&str>, identity: Option<&str>) -> Result<Client, String> {
    test_support::install_tls();
    Client::with_certificates(
        &Proxies::default(),
        "Kubernetes",
        Redactor::default(),
        authority,
        identity,
    )
}

#[tokio::test]
async fn trusts_the_given_authority_only_and_presents_the_certificate() {
    test_support::install_tls();
    let (ours, other) = (authority(), authority());
    let address = start(&ours).await;
    let (certificate, key) = issued(&ours);
    let identity = format!("{}\n{}", certificate.pem(), key.serialize_pem());
    let request = Request::new("testing", crate::http::Method::GET, &address);

    let trusting = client(Some(&ours.pem()), Some(&identity)).unwrap();
    assert_eq!(trusting.send(&request).await.unwrap().text(), "ok");
    let anonymous = client(Some(&ours.pem()), None).unwrap();
    assert!(anonymous.send(&request).await.is_err());
    for distrusting in [
        client(Some(&other.pem()), Some(&identity)),
        client(None, Some(&identity)),
    ] {
        let error = distrusting.unwrap().send(&request).await.err().unwrap();
        assert!(matches!(error.kind, VendorErrorKind::Connect(_)), "{error}");
    }
}

#[test]
fn an_invalid_certificate_is_an_error_at_the_start() {
    let rows = [
        (
            Some("no PEM"),
            None,
            "the certificate authority of Kubernetes has no certificate",
        ),
        (
            None,
            Some("no PEM"),
            "the client certificate of Kubernetes: ",
        ),
    ];
    for (authority, identity, expected) in rows {
        let error = client(authority, identity).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}
