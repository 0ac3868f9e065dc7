//! Cookie that carries the admin token of the panel.
//!
//! Scripts cannot read it (`HttpOnly`), and browsers send it with requests of this site only
//! (`SameSite=Strict`). Other origins of the same site remain: another port of the host, or a sibling domain.
//! They cannot set the header [`REQUESTED_WITH`] without a preflight request, which the service does not
//! answer, so a request that changes something needs that header. Their requests that read are refused too, where
//! the browser says who sends them: some are recorded, and some cause requests to vendors.

use warp::http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use warp::http::{Method, Uri};
use warp::reply::Response;

use crate::client_identity;
use crate::error::{AdminApiError, ApiError};
use crate::routing::{FromRequest, Peer, Request};
use domain::secret::Secret;
use engine::admin::sign_in::TOKEN_LIFETIME;
use engine::app::App;

/// Name of the cookie.
const NAME: &str = "agent_implement_session";

/// Maximum number of cookies of that name that are tried. A sibling domain can add cookies, which should not hide
/// the valid one.
const MAX_VALUES: usize = 50;

const REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Returns the values of the cookie that a request carries.
pub(crate) fn values(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(COOKIE).iter();
    let pairs = texts.filter_map(|text| text.to_str().ok());
    pairs
        .flat_map(|pairs| pairs.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='))
        .filter(|value| !value.is_empty())
        .take(MAX_VALUES)
        .map(str::to_owned)
        .collect()
}

/// Whether a request that carries the cookie may be from the panel: a request that changes something must be sent by
/// one of its scripts, and any other must not be sent by another origin.
pub(crate) fn is_from_panel(method: &Method, headers: &HeaderMap) -> bool {
    let all_are_of = |name: &HeaderName, allowed: &[&str]| {
        let mut values = headers.get_all(name).iter();
        values.all(|value| allowed.iter().any(|one| value.as_bytes() == one.as_bytes()))
    };
    match [Method::GET, Method::HEAD].contains(method) {
        // `none`: the address was typed, or is a bookmark.
        true => all_are_of(&FETCH_SITE, &["same-origin", "none"]),
        false => {
            headers.contains_key(REQUESTED_WITH)
                && all_are_of(&REQUESTED_WITH, &["agent-implement"])
                && is_same_origin(headers)
        }
    }
}

/// Whether no other origin sent the request, as far as the browser says.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(FETCH_SITE).iter();
    values.all(|value| value.as_bytes() == b"same-origin")
}

/// Request that no other origin sent. Any page can send a sign-in with a wrong code, which would count as an attempt of
/// the operator.
pub(crate) struct SameOrigin;

impl FromRequest for SameOrigin {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        match is_same_origin(&request.headers) {
            true => Ok(Self),
            false => Err(AdminApiError::CrossSiteRequest.into()),
        }
    }
}

/// Writer of the cookie for the client of one request.
pub(crate) struct CookieWriter {
    is_secure: bool,
}

impl FromRequest for CookieWriter {
    fn from_request(request: &mut Request) -> Result<Self, ApiError> {
        let is_secure = is_https(&request.app, request.peer, &request.headers);
        Ok(Self { is_secure })
    }
}

impl CookieWriter {
    /// Sets the cookie to a token.
    pub(crate) fn set(&self, response: &mut Response, token: &Secret) {
        self.write(response, token.expose(), TOKEN_LIFETIME.as_secs());
    }

    /// Deletes the cookie.
    pub(crate) fn clear(&self, response: &mut Response) {
        self.write(response, "", 0);
    }

    fn write(&self, response: &mut Response, value: &str, max_age: u64) {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text =
            format!("{NAME}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}");
        // Tokens are URL-safe base64, so this cannot fail.
        if let Ok(mut text) = HeaderValue::from_str(&text) {
            text.set_sensitive(true);
            response.headers_mut().append(SET_COOKIE, text);
        }
    }
}

/// Whether the browser uses HTTPS. Otherwise it would drop a cookie with the attribute `Secure`.
fn is_https(app: &App, peer: Peer, headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get_all(name).iter().next_back()?.to_str().ok();
    let origin = text(&ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
    if let Some(scheme) = origin.as_ref().and_then(Uri::scheme_str) {
        return scheme == "https";
    }
    let forwarded = text(&FORWARDED_PROTO).and_then(|hops| hops.rsplit(',').next());
    let is_forwarded = forwarded.is_some_and(|hop| hop.trim().eq_ignore_ascii_case("https"))
        && client_identity::is_trusted_proxy(app, peer);
    let own_address = app.core.config.callback_base_url.as_deref();
    is_forwarded || own_address.is_some_and(|address| address.starts_with("https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_cookies_of_the_name() {
        let rows: [(&[&str], &[&str]); 7] = [
            (&["agent_implement_session=a"], &["a"]),
            (&["x=1; agent_implement_session=a;y=2"], &["a"]),
            (
                &[
                    "agent_implement_session=a; agent_implement_session=b",
                    "agent_implement_session=c",
                ],
                &["a", "b", "c"],
            ),
            (&["agent_implement_session="], &[]),
            (&["agent_implement_session"], &[]),
            (
                &["xagent_implement_session=a; agent_implement_session2=b"],
                &[],
            ),
            (&["AGENT_IMPLEMENT_SESSION=a"], &[]),
        ];
        for (sent, expected) in rows {
            let mut headers = HeaderMap::new();
            for text in sent {
                headers.append(COOKIE, text.parse().unwrap());
            }
            assert_eq!(values(&headers), expected, "{sent:?}");
        }
        let mut headers = HeaderMap::new();
        let many = "agent_implement_session=a; ".repeat(100);
        headers.insert(COOKIE, many.parse().unwrap());
        assert_eq!(values(&headers).len(), MAX_VALUES);
    }

    #[test]
    fn only_scripts_of_the_panel_may_change_something() {
        let own = ("x-requested-with", "agent-implement");
        let rows: [(&[(&'static str, &str)], bool); 8] = [
            (&[], false),
            (&[own], true),
            (&[own, ("sec-fetch-site", "same-origin")], true),
            (&[own, ("sec-fetch-site", "same-site")], false),
            (&[own, ("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("x-requested-with", "XMLHttpRequest")], false),
            (&[own, ("x-requested-with", "other")], false),
        ];
        for (sent, allowed) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(*name, value.parse().unwrap());
            }
            for method in [Method::POST, Method::PATCH, Method::DELETE] {
                assert_eq!(is_from_panel(&method, &headers), allowed, "{sent:?}");
            }
        }
        for (site, allowed) in [
            (None, true),
            (Some("same-origin"), true),
            (Some("none"), true),
            (Some("same-site"), false),
            (Some("cross-site"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(site.map(|site| (FETCH_SITE, HeaderValue::from_static(site))));
            for method in [Method::GET, Method::HEAD] {
                assert_eq!(is_from_panel(&method, &headers), allowed, "{site:?}");
            }
        }
    }
}
