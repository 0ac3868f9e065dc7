//! Authentication and permissions.
//!
//! There are four kinds of credentials: a personal token with every permission that was not denied; a JWT of the App, for
//! App routes only; installation tokens, limited to repositories and permissions; job tokens, which
//! expire with their run.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use ring::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::GitHubInner;
use super::ci::workflow::Workflow;
use super::model::{IssuedToken, RunRecord};
use super::rest::{RestError, rest_error};
use crate::clock;
use crate::http::HttpRequest;

const HOUR_MS: i64 = 3_600_000;

/// Login of the personal token.
pub(super) const PERSONAL_LOGIN: &str = "sandbox-owner";

/// Default permissions of an installation of the App.
const APP_PERMISSIONS: &[(&str, &str)] = &[
    ("actions", "write"),
    ("checks", "read"),
    ("contents", "write"),
    ("issues", "write"),
    ("metadata", "read"),
    ("pull_requests", "write"),
    ("statuses", "read"),
    ("workflows", "write"),
];

/// The App, and the personal token.
pub(crate) struct GitHubApp {
    pub id: u64,
    pub slug: String,
    pub personal_token: String,
    public_key: Option<Vec<u8>>,
    /// Private key in PEM format, which GitHub returns once.
    pub private_key: Option<String>,
}

pub(crate) enum Caller {
    App,
    Token(IssuedToken),
}

impl GitHubApp {
    pub(crate) fn new(
        id: u64,
        slug: String,
        static_token: String,
        pem: Option<&str>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            id,
            slug,
            personal_token: static_token,
            public_key: pem.map(public_key).transpose()?,
            private_key: pem.map(|pem| pem.replace("\\n", "\n")),
        })
    }

    pub(crate) fn installation_token(
        &self,
        owner: &str,
        repos: Option<Vec<String>>,
        permissions: BTreeMap<String, String>,
    ) -> IssuedToken {
        IssuedToken {
            login: format!("{}[bot]", self.slug),
            repos,
            owner: Some(owner.to_owned()),
            permissions: Some(permissions),
            expires_at: Some(clock::now_ms() + HOUR_MS),
            run_id: None,
        }
    }

    /// Verifies a JWT of the App. The error is GitHub's message.
    fn check_jwt(&self, jwt: &str) -> Result<(), &'static str> {
        const UNREADABLE: &str = "A JSON web token could not be decoded";
        let mut parts = jwt.split('.');
        let (Some(head), Some(body), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(UNREADABLE);
        };
        let decode = |part: &str| {
            BASE64URL_NOPAD
                .decode(part.as_bytes())
                .map_err(|_| UNREADABLE)
        };
        let json =
            |part: &str| serde_json::from_slice::<Value>(&decode(part)?).map_err(|_| UNREADABLE);
        let key = self.public_key.as_ref().ok_or("Integration not found")?;
        if json(head)?["alg"] != "RS256" {
            return Err(UNREADABLE);
        }
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(format!("{head}.{body}").as_bytes(), &decode(signature)?)
            .map_err(|_| UNREADABLE)?;
        let claims = json(body)?;
        let now = clock::now_ms() / 1_000;
        let (iat, exp) = (claims["iat"].as_i64(), claims["exp"].as_i64());
        let issuer = super::ci::workflow::plain_text(&claims["iss"]);
        match exp {
            _ if issuer != self.id.to_string() => {
                Err("'Issuer' claim ('iss') must be the App's ID")
            }
            None => Err("'Expiration time' claim ('exp') must be a numeric value"),
            Some(exp) if exp < now => Err(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            ),
            Some(exp) if exp > now + 600 => {
                Err("'Expiration time' claim ('exp') is too far in the future")
            }
            Some(_) if iat.is_none_or(|iat| iat > now + 30) => Err(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
            ),
            Some(_) => Ok(()),
        }
    }
}

/// Extracts the public key of a private key.
fn public_key(pem: &str) -> anyhow::Result<Vec<u8>> {
    let pem = pem.replace("\\n", "\n");
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .map(str::trim)
        .collect();
    let der = BASE64
        .decode(body.as_bytes())
        .context("Cannot decode the App's private key")?;
    let pair = if pem.contains("BEGIN RSA PRIVATE KEY") {
        RsaKeyPair::from_der(&der)
    } else {
        RsaKeyPair::from_pkcs8(&der)
    };
    let pair = pair.map_err(|error| anyhow!("Cannot parse the App's private key: {error}"))?;
    Ok(pair.public_key().as_ref().to_vec())
}

/// Returns a random token in GitHub's format since 2026: long, with dots and underscores.
pub(crate) fn opaque_token(app: u64) -> String {
    let random =
        |length: usize| -> String { (0..length).map(|_| fastrand::alphanumeric()).collect() };
    format!("ghs_{app}_{}.{}.{}", random(36), random(130), random(342))
}

impl GitHubInner {
    pub(crate) fn authenticate(&self, request: &HttpRequest) -> Result<Caller, RestError> {
        let header = request.header("authorization").unwrap_or_default();
        let (scheme, rest) = header.split_once(' ').unwrap_or_default();
        let credential = match scheme.to_ascii_lowercase().as_str() {
            "bearer" | "token" => rest.trim().to_owned(),
            "basic" => {
                let pair = BASE64.decode(rest.trim().as_bytes()).unwrap_or_default();
                let pair = String::from_utf8_lossy(&pair).into_owned();
                pair.split_once(':')
                    .map(|(_, token)| token.to_owned())
                    .unwrap_or_default()
            }
            _ => return Err(rest_error(401, "Requires authentication")),
        };
        if credential.starts_with("eyJ") {
            let checked = self.app.check_jwt(&credential);
            return checked
                .map(|()| Caller::App)
                .map_err(|message| rest_error(401, message));
        }
        self.find_token(&credential)
            .map(Caller::Token)
            .ok_or_else(|| rest_error(401, "Bad credentials"))
    }

    pub(crate) fn find_token(&self, text: &str) -> Option<IssuedToken> {
        if text == self.app.personal_token {
            return Some(IssuedToken {
                login: PERSONAL_LOGIN.into(),
                repos: None,
                owner: None,
                permissions: self.personal_permissions(),
                expires_at: None,
                run_id: None,
            });
        }
        let token = self.model.read(|model| model.tokens.get(text).cloned())?;
        token
            .expires_at
            .is_none_or(|at| at > clock::now_ms())
            .then_some(token)
    }

    /// Returns the permissions of the personal token; `None` if it has all.
    fn personal_permissions(&self) -> Option<BTreeMap<String, String>> {
        let denied = self
            .model
            .read(|model| model.denied_token_permissions.clone());
        (!denied.is_empty()).then(|| granted_permissions(&denied))
    }

    /// Returns the permissions of an installation of the App.
    pub(crate) fn app_permissions(&self) -> BTreeMap<String, String> {
        granted_permissions(&self.model.read(|model| model.denied_permissions.clone()))
    }

    /// Handles `POST /app/installations/{id}/access_tokens`.
    pub(crate) fn create_installation_token(
        &self,
        installation: u64,
        body: &Value,
    ) -> Result<Value, RestError> {
        let unprocessable = |what: &str| rest_error(422, what);
        let owner = self
            .model
            .read(|model| model.installation_owner(installation).map(str::to_owned))
            .ok_or_else(|| rest_error(404, "Not Found"))?;
        let repos = match body["repositories"].as_array() {
            None => None,
            Some(names) => {
                let names = names
                    .iter()
                    .map(|name| format!("{owner}/{}", name.as_str().unwrap_or_default()));
                let names: Vec<String> = names.collect();
                let missing = |full: &String| {
                    let (owner, name) = full.split_once('/').unwrap_or_default();
                    self.model
                        .read(|model| model.find_repo(owner, name).is_none())
                };
                if names.iter().any(missing) {
                    return Err(unprocessable(
                        "There is at least one repository that does not exist or is not accessible to the parent installation.",
                    ));
                }
                Some(names)
            }
        };
        let allowed = self.app_permissions();
        let permissions = match body["permissions"].as_object() {
            None => allowed,
            Some(requested) => {
                let requested: BTreeMap<String, String> = requested
                    .iter()
                    .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
                    .collect();
                let exceeds_allowed = |(name, level): (&String, &String)| {
                    allowed
                        .get(name)
                        .is_none_or(|granted| permission_rank(granted) < permission_rank(level))
                };
                if requested.iter().any(exceeds_allowed) {
                    return Err(unprocessable(
                        "The permissions requested are not granted to this installation.",
                    ));
                }
                let metadata = [("metadata".to_owned(), "read".to_owned())];
                requested.into_iter().chain(metadata).collect()
            }
        };
        let token = self
            .app
            .installation_token(&owner, repos.clone(), permissions.clone());
        let text = opaque_token(self.app.id);
        let expires = clock::iso_seconds(token.expires_at.unwrap_or(0));
        self.model.update(|model| {
            let now = clock::now_ms();
            model
                .tokens
                .retain(|_, token| token.expires_at.is_none_or(|at| at > now));
            model.tokens.insert(text.clone(), token);
        });
        let selection = if repos.is_some() { "selected" } else { "all" };
        Ok(
            json!({"token": text, "expires_at": expires, "permissions": permissions, "repository_selection": selection}),
        )
    }

    /// Creates a job token: permissions of the workflow without `workflows`, for one repository.
    pub(crate) fn create_job_token(
        &self,
        owner: &str,
        name: &str,
        run: &RunRecord,
        workflow: &Workflow,
    ) -> String {
        let requested = workflow.permissions.as_ref();
        let requested = workflow
            .jobs
            .iter()
            .find_map(|job| job.permissions.as_ref())
            .or(requested);
        let mut permissions: BTreeMap<String, String> = match requested {
            Some(Value::Object(map)) => map
                .iter()
                .map(|(k, v)| (k.replace('-', "_"), v.as_str().unwrap_or("none").to_owned()))
                .collect(),
            Some(Value::String(all)) if all == "read-all" => APP_PERMISSIONS
                .iter()
                .map(|(k, _)| ((*k).into(), "read".into()))
                .collect(),
            _ => APP_PERMISSIONS
                .iter()
                .map(|(k, _)| ((*k).into(), "write".into()))
                .collect(),
        };
        permissions.remove("workflows");
        permissions.insert("metadata".into(), "read".into());
        let token = IssuedToken {
            login: "github-actions[bot]".into(),
            repos: Some(vec![format!("{owner}/{name}")]),
            owner: Some(owner.to_owned()),
            permissions: Some(permissions),
            expires_at: Some(clock::now_ms() + 24 * HOUR_MS),
            run_id: Some(run.id),
        };
        let text = opaque_token(15_368);
        self.model
            .update(|model| model.tokens.insert(text.clone(), token));
        text
    }
}

/// Returns all permissions but those that are denied.
fn granted_permissions(denied: &BTreeSet<String>) -> BTreeMap<String, String> {
    let granted = APP_PERMISSIONS.iter();
    granted
        .filter(|(name, _)| !denied.contains(*name))
        .map(|(name, level)| ((*name).into(), (*level).into()))
        .collect()
}

fn permission_rank(level: &str) -> u8 {
    match level {
        "read" => 1,
        "write" => 2,
        "admin" => 3,
        _ => 0,
    }
}

impl IssuedToken {
    /// Whether the token belongs to a person.
    pub(crate) fn is_personal(&self) -> bool {
        self.owner.is_none()
    }

    pub(crate) fn can_access_repo(&self, owner: &str, name: &str) -> bool {
        let full = format!("{owner}/{name}");
        let of_owner = self
            .owner
            .as_ref()
            .is_none_or(|own| own.eq_ignore_ascii_case(owner));
        of_owner
            && self
                .repos
                .as_ref()
                .is_none_or(|repos| repos.iter().any(|repo| repo.eq_ignore_ascii_case(&full)))
    }

    pub(crate) fn has_permission(&self, permission: &str, level: &str) -> bool {
        self.permissions.as_ref().is_none_or(|permissions| {
            permissions
                .get(permission)
                .is_some_and(|has| permission_rank(has) >= permission_rank(level))
        })
    }
}
