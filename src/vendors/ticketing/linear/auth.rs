//! Authentication with Linear: a personal API key, or an OAuth application with tokens that expire.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::http::{Client, Method, Request, VendorError};
use domain::secret::Secret;

/// Time before its expiry from which a token is no longer used. Covers the duration of a request.
const MARGIN: Duration = Duration::from_secs(60);

/// Credentials for Linear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinearCredentials {
    /// Personal API key, sent unchanged in the Authorization header.
    ApiKey(Secret),
    /// OAuth application with the client credentials grant.
    OAuthClient {
        /// Client id.
        id: String,
        /// Client secret.
        secret: Secret,
    },
}

/// Source of the Authorization header. Clones share the token.
#[derive(Clone)]
pub(super) struct Auth {
    client: Client,
    token_url: String,
    credentials: LinearCredentials,
    token: Arc<Mutex<Option<Token>>>,
}

#[derive(Clone)]
struct Token {
    header: Secret,
    valid_until: Instant,
}

impl Auth {
    pub(super) fn new(client: Client, api_url: &str, credentials: LinearCredentials) -> Self {
        Self {
            client,
            token_url: format!("{api_url}/oauth/token"),
            credentials,
            token: Arc::default(),
        }
    }

    /// Returns the value of the Authorization header. Concurrent calls without a cached token request one
    /// token each; all of them are valid.
    pub(super) async fn authorization_header(&self) -> Result<Secret, VendorError> {
        let (id, secret) = match &self.credentials {
            LinearCredentials::ApiKey(key) => return Ok(key.clone()),
            LinearCredentials::OAuthClient { id, secret } => (id, secret),
        };
        if let Some(header) = self.cached_header() {
            return Ok(header);
        }
        let request = Request::new("signing in to Linear", Method::POST, &self.token_url)
            .form(&[
                ("grant_type", "client_credentials"),
                ("scope", "read,write"),
                ("client_id", id),
                ("client_secret", secret.expose()),
            ])
            .safe();
        let response: TokenResponse = self.client.send(&request).await?.json()?;
        let lifetime = Duration::from_secs(response.expires_in).saturating_sub(MARGIN);
        let token = Token {
            header: Secret::new(format!("Bearer {}", response.access_token)),
            valid_until: Instant::now() + lifetime,
        };
        let header = token.header.clone();
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(header)
    }

    /// Discards a token that was rejected. Returns whether a new one can be requested.
    pub(super) fn invalidate(&self, rejected: &Secret) -> bool {
        if matches!(self.credentials, LinearCredentials::ApiKey(_)) {
            return false;
        }
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if token
            .as_ref()
            .is_some_and(|token| token.header == *rejected)
        {
            *token = None;
        }
        true
    }

    fn cached_header(&self) -> Option<Secret> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = token.as_ref()?;
        (Instant::now() < cached.valid_until).then(|| cached.header.clone())
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// Lifetime in seconds, default one day.
    #[serde(default = "one_day")]
    expires_in: u64,
}

fn one_day() -> u64 {
    24 * 60 * 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::test_client;
    use crate::ticketing::Linear;
    use serde_json::json;
    use test_support::{StubReply, TestServer};

    #[tokio::test]
    async fn requests_a_token_once_and_again_after_a_401() {
        let server = TestServer::start(|request, before| {
            if request.path == "/oauth/token" {
                assert!(request.body.contains("grant_type=client_credentials"));
                assert!(
                    request.body.contains("client_secret=s%26t"),
                    "{}",
                    request.body
                );
                let token = format!("t{before}");
                return StubReply::json(200, &json!({"access_token": token, "expires_in": 3600}));
            }
            match request.header("authorization") {
                Some("Bearer t0") if before > 2 => StubReply::json(401, &json!({"errors": []})),
                Some("Bearer t0" | "Bearer t4") => StubReply::json(
                    200,
                    &json!({"data": {"viewer": {"name": "us"}, "organization": {"name": "Acme"}}}),
                ),
                other => panic!("{other:?}"),
            }
        })
        .await;
        let credentials = LinearCredentials::OAuthClient {
            id: "us".into(),
            secret: Secret::new("s&t"),
        };
        let linear = Linear::new(test_client("Linear"), &server.url, credentials);
        for _ in 0..3 {
            assert_eq!(linear.probe().await.unwrap(), "us in Acme");
        }
        let paths: Vec<String> = server
            .requests()
            .into_iter()
            .map(|request| request.path)
            .collect();
        let (token, graph) = ("/oauth/token", "/graphql");
        assert_eq!(paths, [token, graph, graph, graph, token, graph]);
    }
}
