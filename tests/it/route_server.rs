//! HTTP server on loopback for routes of a test.

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use warp::{Filter, Rejection, Reply};

/// Starts a server. Returns its URL, and the task that serves until it is aborted.
pub async fn start<F>(routes: F) -> (String, JoinHandle<()>)
where
    F: Filter + Send + Sync + 'static,
    F::Extract: Reply,
    F::Error: Into<Rejection>,
{
    let routes = routes.boxed();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(warp::service(routes.clone()));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    (url, server)
}
