//! Tokens with which runs report.
//!
//! A token is valid for one run, one purpose and a limited time. The store ensures that only one
//! result per run is accepted.

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::report::RunPhase;
use crate::secret::Secret;
use crate::time::Timestamp;

use super::jwt;

/// Purpose of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAudience {
    /// Reporting one result.
    Result,
    /// Reporting progress any number of times, and requesting credentials.
    Progress,
}

impl TokenAudience {
    /// Returns the value of the `aud` claim.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenAudience::Result => "result",
            TokenAudience::Progress => "progress",
        }
    }
}

/// Verified claims of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaims {
    /// Job of the run.
    pub job: JobId,
    /// Phase of the run.
    pub phase: RunPhase,
}

/// Reason why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunTokenError {
    /// The text is not a token of the service.
    #[error("the token is malformed")]
    Malformed,
    /// Wrong signature or algorithm.
    #[error("the signature of the token is invalid")]
    BadSignature,
    /// Expired token.
    #[error("the token has expired")]
    Expired,
    /// Token for another purpose.
    #[error("the token was issued for another purpose")]
    WrongAudience,
}

impl RunTokenError {
    /// Returns the error slug in the API.
    pub fn slug(self) -> &'static str {
        match self {
            RunTokenError::Malformed => "malformed",
            RunTokenError::BadSignature => "bad_signature",
            RunTokenError::Expired => "expired",
            RunTokenError::WrongAudience => "wrong_audience",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    aud: String,
    phase: String,
    iat: u64,
    exp: u64,
}

/// Issuer and verifier of run tokens.
#[derive(Clone)]
pub struct RunTokenIssuer {
    key: hmac::Key,
}

impl RunTokenIssuer {
    /// Creates an issuer with a shared secret.
    pub fn new(secret: &Secret) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()),
        }
    }

    /// Issues a token. Equal arguments give equal tokens, so that a dispatch can be repeated
    /// without storing its tokens.
    pub fn issue(
        &self,
        job: &JobId,
        audience: TokenAudience,
        phase: RunPhase,
        now: Timestamp,
        expires: Timestamp,
    ) -> Secret {
        Secret::new(jwt::sign_hs256(
            &self.key,
            &Claims {
                sub: job.to_string(),
                aud: audience.as_str().to_owned(),
                phase: phase.as_str().to_owned(),
                iat: now.as_secs(),
                exp: expires.as_secs(),
            },
        ))
    }

    /// Returns the nonce of a job's session. It is always the same for a job, so that a machine
    /// whose creation was not recorded has the right nonce. Only its hash is stored.
    pub fn session_nonce(&self, job: &JobId) -> Secret {
        let message = format!("session-nonce:{job}");
        let tag = hmac::sign(&self.key, message.as_bytes());
        Secret::new(data_encoding::HEXLOWER.encode(tag.as_ref()))
    }

    /// Returns the key with which the run of a job signs its [report
    /// artifact](crate::report_artifact). It is always the same for a job, so it is not stored.
    pub fn report_key(&self, job: &JobId) -> Secret {
        let tag = hmac::sign(&self.key, format!("report-artifact:{job}").as_bytes());
        Secret::new(data_encoding::HEXLOWER.encode(tag.as_ref()))
    }

    /// Verifies a token and returns its claims.
    ///
    /// # Errors
    /// The first error that applies, in the order of the variants of [`RunTokenError`]. Claims of
    /// the wrong type under a valid signature are malformed.
    pub fn verify(
        &self,
        token: &str,
        audience: TokenAudience,
        now: Timestamp,
    ) -> Result<RunClaims, RunTokenError> {
        let parts = jwt::UnverifiedJwt::parse(token).ok_or(RunTokenError::Malformed)?;
        if !parts.is_signed_hs256(&self.key) {
            return Err(RunTokenError::BadSignature);
        }
        let claims: Claims = parts.claims().ok_or(RunTokenError::Malformed)?;
        if claims.exp <= now.as_secs() {
            return Err(RunTokenError::Expired);
        }
        if claims.aud != audience.as_str() {
            return Err(RunTokenError::WrongAudience);
        }
        Ok(RunClaims {
            job: JobId::new(claims.sub),
            phase: RunPhase::parse(&claims.phase).ok_or(RunTokenError::Malformed)?,
        })
    }
}

impl std::fmt::Debug for RunTokenIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunTokenIssuer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;
    use serde_json::json;

    fn issuer() -> RunTokenIssuer {
        RunTokenIssuer::new(&Secret::new("0123456789abcdef0123456789abcdef"))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn sample_token() -> String {
        let job = JobId::from("01JOB");
        let token = issuer().issue(
            &job,
            TokenAudience::Result,
            RunPhase::Planning,
            at(1000),
            at(2000),
        );
        token.expose().to_owned()
    }

    fn part(value: &serde_json::Value) -> String {
        BASE64URL_NOPAD.encode(value.to_string().as_bytes())
    }

    #[test]
    fn verifies_a_token_until_it_expires() {
        let claims = issuer().verify(&sample_token(), TokenAudience::Result, at(1999));
        assert_eq!(
            claims,
            Ok(RunClaims {
                job: "01JOB".into(),
                phase: RunPhase::Planning
            })
        );
        assert_eq!(sample_token(), sample_token());
    }

    #[test]
    fn returns_the_first_error() {
        let good = sample_token();
        let parts: Vec<&str> = good.split('.').collect();
        let (header, claims, signature) = (parts[0], parts[1], parts[2]);
        let other =
            part(&json!({"sub":"01OTHER","aud":"result","phase":"planning","iat":1,"exp":9999}));
        let none = part(&json!({"alg":"none"}));
        let rs256 = part(&json!({"alg":"RS256"}));
        let text = BASE64URL_NOPAD.encode(b"hello");
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef0123456789abcdef");
        let odd_claims = jwt::sign_hs256(&key, &json!({"sub": 1}));
        let odd_phase = jwt::sign_hs256(
            &key,
            &json!({"sub":"x","aud":"result","phase":"cooking","iat":1,"exp":9999}),
        );
        let old_and_wrong = jwt::sign_hs256(
            &key,
            &json!({"sub":"x","aud":"progress","phase":"planning","iat":1,"exp":2}),
        );
        use RunTokenError::*;
        let rows = [
            (String::new(), Malformed),
            ("a.b".into(), Malformed),
            ("a.b.c".into(), Malformed),
            ("..".into(), Malformed),
            (format!("{good}.more"), Malformed),
            (format!("{header}.{claims}"), Malformed),
            (format!("{text}.{claims}.{signature}"), Malformed),
            (format!("{header}.{text}.{signature}"), Malformed),
            (
                format!("{header}.{claims}.{}", "x".repeat(1 << 20)),
                Malformed,
            ),
            (odd_claims, Malformed),
            (odd_phase, Malformed),
            (format!("{header}.{other}.{signature}"), BadSignature),
            (format!("{header}.{claims}."), BadSignature),
            (format!("{header}.{claims}.!!!"), BadSignature),
            (good[..good.len() - 2].to_owned(), BadSignature),
            (format!("{none}.{claims}."), BadSignature),
            (format!("{none}.{claims}.{signature}"), BadSignature),
            (format!("{rs256}.{claims}.{signature}"), BadSignature),
            (old_and_wrong, Expired),
        ];
        for (token, error) in rows {
            assert_eq!(
                issuer().verify(&token, TokenAudience::Result, at(1000)),
                Err(error),
                "{}",
                &token[..token.len().min(80)]
            );
        }
        assert_eq!(
            issuer().verify(&good, TokenAudience::Result, at(2000)),
            Err(Expired)
        );
        assert_eq!(
            issuer().verify(&good, TokenAudience::Progress, at(1000)),
            Err(WrongAudience)
        );
        let other_issuer = RunTokenIssuer::new(&Secret::new("another secret of thirty-two bytes"));
        assert_eq!(
            other_issuer.verify(&good, TokenAudience::Result, at(1000)),
            Err(BadSignature)
        );
        assert_eq!(WrongAudience.slug(), "wrong_audience");
    }
}
