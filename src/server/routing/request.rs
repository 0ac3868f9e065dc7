//! Requests, and the arguments that handlers take from them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use warp::http::header::AUTHORIZATION;
use warp::http::{HeaderMap, Method};

use super::ApiResult;
use super::access::AdminCredential;
use super::path::PathSegment;
use crate::body::{self, BodyStream};
use crate::client_identity::{ClientIdentity, client_ip};
use crate::error::{ApiError, RunnerApiError};
use domain::audit::Actor;
use domain::crypto::run_token::RunClaims;
use engine::app::App;

/// Remote end of a connection. Set by the listener; no request can set it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Network client, which must authenticate.
    Network(SocketAddr),
    /// Client of the control socket: the user of the service, or root.
    ControlSocket,
    /// Client of the socket of runs: any user of this machine or of a container, who must authenticate.
    RunSocket,
}

/// Request of a route.
pub(crate) struct Request {
    pub app: App,
    pub peer: Peer,
    pub client: ClientIdentity,
    pub method: Method,
    pub headers: HeaderMap,
    /// Query string without the question mark, still encoded.
    pub query: String,
    /// Parameters of the path that no argument has taken yet.
    pub params: std::vec::IntoIter<PathSegment>,
    /// Claims of the run token, if the route requires one.
    pub claims: Option<RunClaims>,
    /// Body, if the route has one and it has been read.
    pub body: Bytes,
    /// Kept until the response is ready, because hyper may close a connection whose body is dropped.
    pub unread_body: BodyStream,
}

impl Request {
    /// Returns a header; `None` if it is missing or not text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the Authorization header; `None` if it is missing or not text.
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.header(AUTHORIZATION.as_str())
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When it is larger than `limit` bytes, arrives too slowly, is cut off, or gets no memory.
    pub(crate) async fn read_body(&mut self, limit: usize) -> Result<(), ApiError> {
        self.body = body::read(&mut self.unread_body, limit, self.client).await?;
        Ok(())
    }
}

/// Argument of a handler.
pub(crate) trait FromRequest: Sized {
    /// Takes the argument from a request.
    ///
    /// # Errors
    /// When the route does not provide it.
    fn from_request(request: &mut Request) -> Result<Self, ApiError>;
}

/// Application state.
impl FromRequest for App {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(request.app.clone())
    }
}

/// Next parameter of the path.
impl FromRequest for PathSegment {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        request.params.next().ok_or_else(ApiError::not_found)
    }
}

/// Whole body.
impl FromRequest for Bytes {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(std::mem::take(&mut request.body))
    }
}

impl FromRequest for HeaderMap {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(std::mem::take(&mut request.headers))
    }
}

impl FromRequest for Peer {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(request.peer)
    }
}

/// Claims of the run token that the route requires.
impl FromRequest for RunClaims {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        let claims = request.claims.take();
        claims.ok_or_else(|| RunnerApiError::MissingBearer.into())
    }
}

impl FromRequest for AdminCredential {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(AdminCredential::of(request.peer, &request.headers))
    }
}

/// Text of the Authorization header.
pub(crate) struct Authorization(pub Option<String>);

impl FromRequest for Authorization {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(Self(request.authorization().map(str::to_owned)))
    }
}

/// Address of the client; unspecified for a socket.
impl FromRequest for IpAddr {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(client_ip(&request.app, request.peer, &request.headers))
    }
}

/// Actor for the audit log.
impl FromRequest for Actor {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(match request.peer {
            Peer::ControlSocket => Actor::owner(),
            Peer::Network(_) | Peer::RunSocket => Actor::admin(IpAddr::from_request(request)?),
        })
    }
}

/// Query string, still encoded.
pub(crate) struct RawQuery(pub String);

impl FromRequest for RawQuery {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(Self(std::mem::take(&mut request.query)))
    }
}

/// Query parameters in their order, duplicate names included.
pub(crate) type QueryPairs = Vec<(String, String)>;

impl FromRequest for QueryPairs {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        let pairs = form_urlencoded::parse(request.query.as_bytes());
        Ok(pairs.into_owned().collect())
    }
}

/// Query parameters by name. The last of duplicate names counts.
pub(crate) type QueryParams = BTreeMap<String, String>;

impl FromRequest for QueryParams {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        Ok(QueryPairs::from_request(request)?.into_iter().collect())
    }
}

/// Function of up to five arguments that each implement [`FromRequest`].
pub(crate) trait Handler<Args>: Send + Sync + 'static {
    /// Takes the arguments from the request and calls the function.
    ///
    /// # Errors
    /// When the route does not provide an argument.
    fn call(&self, request: &mut Request) -> Result<BoxFuture<'static, ApiResult>, ApiError>;
}

macro_rules! impl_handler {
    ($($Arg:ident)*) => {
        impl<F, Answer, $($Arg),*> Handler<($($Arg,)*)> for F
        where
            F: Fn($($Arg),*) -> Answer + Send + Sync + 'static,
            Answer: Future<Output = ApiResult> + Send + 'static,
            $($Arg: FromRequest,)*
        {
            fn call(&self, _request: &mut Request) -> Result<BoxFuture<'static, ApiResult>, ApiError> {
                Ok(Box::pin(self($($Arg::from_request(_request)?),*)))
            }
        }
    };
}

impl_handler!();
impl_handler!(A);
impl_handler!(A B);
impl_handler!(A B C);
impl_handler!(A B C D);
impl_handler!(A B C D E);

/// Parses a body as JSON; `None` if it is invalid.
pub(crate) fn parse_json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}
