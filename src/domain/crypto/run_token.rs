//! The tokens a run reports with.
//!
//! A token names its run, what it may be used for and until when; it is good for that one thing.
//! That a result counts once is the store's business.

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::report::RunPhase;
use crate::secret::Secret;
use crate::time::Timestamp;

use super::jwt;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAudience {
    /// The one result.
    Result,
    /// Any number of progress reports, and the credentials a run asks for.
    Progress,
}

impl TokenAudience {
    pub fn as_str(self) -> &'static str {
        match self {
            TokenAudience::Result => "result",
            TokenAudience::Progress => "progress",
        }
    }
}

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunClaims {
    pub job: JobId,
    pub phase: RunPhase,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunTokenError {
    #[error("the token is malformed")]
    Malformed,
    #[error("the token's signature is not ours")]
    BadSignature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is for another purpose")]
    WrongAudience,
}

impl RunTokenError {
    /// The word for programs.
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

/// Issues and checks run tokens.
#[derive(Clone)]
pub struct RunTokenIssuer {
    key: hmac::Key,
}

impl RunTokenIssuer {
    pub fn new(secret: &Secret) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()),
        }
    }

    /// A token for one run and purpose. The same arguments make the same token, so that a
    /// dispatch can be repeated without storing it.
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

    /// The nonce that a session shows for its job. It is the same whenever it is asked for, so that a
    /// machine whose making was not noted has the right one; only its hash is stored.
    pub fn session_nonce(&self, job: &JobId) -> Secret {
        let words = format!("session-nonce:{job}");
        let tag = hmac::sign(&self.key, words.as_bytes());
        Secret::new(data_encoding::HEXLOWER.encode(tag.as_ref()))
    }

    /// Checks a token that a run showed, and says whose it is.
    ///
    /// # Errors
    /// The first that applies, in the order of [`TokenError`]'s variants. Claims of the wrong
    /// type under a good signature are malformed.
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
        f.write_str("RunTokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;
    use serde_json::json;

    fn tokens() -> RunTokenIssuer {
        RunTokenIssuer::new(&Secret::new("0123456789abcdef0123456789abcdef"))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn issued() -> String {
        let job = JobId::from("01JOB");
        let token = tokens().issue(
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
    fn a_token_names_its_run_until_it_expires() {
        let claims = tokens().verify(&issued(), TokenAudience::Result, at(1999));
        assert_eq!(
            claims,
            Ok(RunClaims {
                job: "01JOB".into(),
                phase: RunPhase::Planning
            })
        );
        assert_eq!(issued(), issued());
    }

    #[test]
    fn each_fault_is_told_apart_in_order() {
        let good = issued();
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
        for (token, fault) in rows {
            assert_eq!(
                tokens().verify(&token, TokenAudience::Result, at(1000)),
                Err(fault),
                "{}",
                &token[..token.len().min(80)]
            );
        }
        assert_eq!(
            tokens().verify(&good, TokenAudience::Result, at(2000)),
            Err(Expired)
        );
        assert_eq!(
            tokens().verify(&good, TokenAudience::Progress, at(1000)),
            Err(WrongAudience)
        );
        let stranger = RunTokenIssuer::new(&Secret::new("another secret of thirty-two bytes"));
        assert_eq!(
            stranger.verify(&good, TokenAudience::Result, at(1000)),
            Err(BadSignature)
        );
        assert_eq!(WrongAudience.slug(), "wrong_audience");
    }
}
