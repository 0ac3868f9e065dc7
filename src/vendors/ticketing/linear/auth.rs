//! Who we are to Linear: a personal key, or an application with tokens that expire.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::http::{Client, Method, Request, VendorError};
use domain::secret::Secret;

/// How long before its end is a token no longer used? A request may take that long to arrive.
const MARGIN: Duration = Duration::from_secs(60);

/// How we prove who we are.
#[derive(Clone)]
pub enum LinearCredentials {
    /// A personal API key, which stands in the header as it is.
    ApiKey(Secret),
    /// An OAuth application that acts as itself.
    OAuthClient { id: String, secret: Secret },
}

/// Makes the Authorization header. Clones share the token.
#[derive(Clone)]
pub(super) struct Auth {
    wire: Client,
    token_url: String,
    credentials: LinearCredentials,
    token: Arc<Mutex<Option<Token>>>,
}

#[derive(Clone)]
struct Token {
    header: Secret,
    good_until: Instant,
}

impl Auth {
    pub(super) fn new(wire: Client, api_url: &str, credentials: LinearCredentials) -> Self {
        Self {
            wire,
            token_url: format!("{api_url}/oauth/token"),
            credentials,
            token: Arc::default(),
        }
    }

    /// The value of the Authorization header. Two that miss a token at once fetch one each; both
    /// are good.
    pub(super) async fn authorization_header(&self) -> Result<Secret, VendorError> {
        let (id, secret) = match &self.credentials {
            LinearCredentials::ApiKey(key) => return Ok(key.clone()),
            LinearCredentials::OAuthClient { id, secret } => (id, secret),
        };
        if let Some(header) = self.kept() {
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
        let granted: Granted = self.wire.send(&request).await?.json()?;
        let life = Duration::from_secs(granted.expires_in).saturating_sub(MARGIN);
        let token = Token {
            header: Secret::new(format!("Bearer {}", granted.access_token)),
            good_until: Instant::now() + life,
        };
        let header = token.header.clone();
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(header)
    }

    /// Drops a token that was refused. Whether another can be had.
    pub(super) fn invalidate(&self, refused: &Secret) -> bool {
        if matches!(self.credentials, LinearCredentials::ApiKey(_)) {
            return false;
        }
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if token.as_ref().is_some_and(|token| token.header == *refused) {
            *token = None;
        }
        true
    }

    fn kept(&self) -> Option<Secret> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let good = token.as_ref()?;
        (Instant::now() < good.good_until).then(|| good.header.clone())
    }
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Seconds; a token without an end is asked for again after a day.
    #[serde(default = "a_day")]
    expires_in: u64,
}

fn a_day() -> u64 {
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
    async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
        let server = TestServer::start(|asked, before| {
            if asked.path == "/oauth/token" {
                assert!(asked.body.contains("grant_type=client_credentials"));
                assert!(asked.body.contains("client_secret=s%26t"), "{}", asked.body);
                let token = format!("t{before}");
                return StubReply::json(200, &json!({"access_token": token, "expires_in": 3600}));
            }
            match asked.header("authorization") {
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
        let linear = Linear::new(test_client("linear"), &server.url, credentials);
        for _ in 0..3 {
            assert_eq!(linear.probe().await.unwrap(), "us in Acme");
        }
        let paths: Vec<String> = server
            .requests()
            .into_iter()
            .map(|asked| asked.path)
            .collect();
        let (token, graph) = ("/oauth/token", "/graphql");
        assert_eq!(paths, [token, graph, graph, graph, token, graph]);
    }
}
