//! Configuration of the program that CI runs fetch.

use super::validator::Validator;

/// Number of hexadecimal digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

/// Release of the program at an address of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerProgramConfig {
    /// Address of the program file.
    pub url: String,
    /// SHA-256 in lower-case hexadecimal; `None` for the program of the service.
    pub sha256: Option<String>,
}

impl Validator {
    pub(super) fn runner_program(
        &mut self,
        url: Option<String>,
        sha256: Option<String>,
    ) -> Option<RunnerProgramConfig> {
        let non_blank = |text: Option<String>| {
            let text = text.map(|text| text.trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let (url, sha256) = (non_blank(url), non_blank(sha256));
        let sha256 = sha256.map(|text| text.to_ascii_lowercase());
        self.require(url.is_some() || sha256.is_none(), || {
            "RUNNER_PROGRAM_SHA256 has no effect without RUNNER_PROGRAM_URL".to_owned()
        });
        if let Some(sha256) = &sha256 {
            let is_hash = sha256.len() == SHA256_DIGITS
                && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            self.require(is_hash, || {
                "RUNNER_PROGRAM_SHA256 must be 64 hexadecimal digits".to_owned()
            });
        }
        let url = url?;
        self.require(is_program_address(&url), || {
            "RUNNER_PROGRAM_URL must be an https address without a user and blanks; runs print it"
                .to_owned()
        });
        Some(RunnerProgramConfig { url, sha256 })
    }
}

/// Whether workflows can fetch from this address. It is printed in their logs, so it holds no credential.
fn is_program_address(text: &str) -> bool {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    let Ok(url) = reqwest::Url::parse(text) else {
        return false;
    };
    let has_user = !url.username().is_empty() || url.password().is_some();
    is_plain && url.scheme() == "https" && url.has_host() && !has_user
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_addresses_that_may_be_printed() {
        for (text, expected) in [
            ("https://example.com/v1/agent-implement", true),
            ("https://example.com:8443/a?b=c%20d", true),
            ("http://example.com/agent-implement", false),
            ("https://user:word@example.com/a", false),
            ("https://example.com/a b", false),
            ("https://example.com/\"x", false),
            ("ftp://example.com/a", false),
            ("agent-implement", false),
        ] {
            assert_eq!(is_program_address(text), expected, "{text}");
        }
    }
}
