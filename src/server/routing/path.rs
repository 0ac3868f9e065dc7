//! Path patterns and their parameters.

use std::str::FromStr;

/// Path pattern of a route, for example `/api/jobs/:jobId/steps`.
///
/// A segment that begins with a colon is a parameter. A final `*` matches the rest of a path, even if it is
/// empty. A trailing slash of the path is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathPattern(&'static str);

impl PathPattern {
    pub(crate) const fn new(pattern: &'static str) -> Self {
        Self(pattern)
    }

    /// Whether a path has this pattern. Its parameters may still be malformed.
    pub(crate) fn matches(self, path: &str) -> bool {
        self.raw_params(path).is_some()
    }

    /// Returns the decoded parameters of a path, or the rest of the path; `None` if the path does not match.
    pub(crate) fn params(self, path: &str) -> Option<Vec<PathSegment>> {
        let raw = self.raw_params(path)?.into_iter();
        match self.prefix_of_rest() {
            Some(_) => Some(raw.map(|rest| PathSegment(rest.to_owned())).collect()),
            None => raw.map(|segment| segment.parse().ok()).collect(),
        }
    }

    fn raw_params(self, path: &str) -> Option<Vec<&str>> {
        if let Some(prefix) = self.prefix_of_rest() {
            let rest = path.strip_prefix(prefix)?;
            let is_below = rest.is_empty() || rest.starts_with('/');
            return is_below.then(|| vec![rest.strip_prefix('/').unwrap_or(rest)]);
        }
        let (mut patterns, mut segments) = (segments(self.0), segments(path));
        let mut params = Vec::new();
        loop {
            match (patterns.next(), segments.next()) {
                (None, None) => return Some(params),
                (Some(pattern), Some(segment)) if pattern == segment => {}
                (Some(pattern), Some(segment))
                    if pattern.starts_with(':') && !segment.is_empty() =>
                {
                    params.push(segment);
                }
                _ => return None,
            }
        }
    }

    fn prefix_of_rest(self) -> Option<&'static str> {
        self.0.strip_suffix("/*")
    }

    /// Returns the pattern as a metric label.
    pub(crate) fn label(self) -> &'static str {
        self.prefix_of_rest().unwrap_or(self.0)
    }
}

fn segments(path: &str) -> std::str::Split<'_, char> {
    path.strip_suffix('/').unwrap_or(path).split('/')
}

/// Percent-decoded path segment. Empty segments and control characters are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathSegment(pub String);

impl FromStr for PathSegment {
    type Err = ();

    fn from_str(raw: &str) -> Result<Self, ()> {
        let decoded = percent_decoded(raw.as_bytes()).ok_or(())?;
        let text = String::from_utf8(decoded).map_err(|_| ())?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(());
        }
        Ok(Self(text))
    }
}

fn percent_decoded(raw: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        decoded.extend(data_encoding::HEXLOWER_PERMISSIVE.decode(digits).ok()?);
        rest = after;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_or_rejects_path_segments() {
        let parse = |raw: &str| raw.parse().ok().map(|PathSegment(text)| text);
        assert_eq!(parse("ENG"), Some("ENG".to_owned()));
        assert_eq!(parse("EN%47%2d4"), Some("ENG-4".to_owned()));
        assert_eq!(parse("a%2Fb%C3%A4"), Some("a/bä".to_owned()));
        for bad in ["%", "%4", "%zz", "%ff", "a%00", "%0a"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn returns_the_parameters_of_a_path_that_matches() {
        for (pattern, path, params) in [
            ("/", "/", Some(vec![])),
            ("/", "//", None),
            ("/", "*", None),
            ("/metrics", "/metrics", Some(vec![])),
            ("/metrics", "/metrics/", Some(vec![])),
            ("/metrics", "/metrics//", None),
            ("/metrics", "/metrics/x", None),
            ("/metrics", "metrics", None),
            ("/api/why/:issue", "/api/why/ENG%2D1", Some(vec!["ENG-1"])),
            ("/api/why/:issue", "/api/why/", None),
            ("/api/why/:issue", "/api/why//", None),
            ("/a/:x/b/:y", "/a/1/b/2", Some(vec!["1", "2"])),
            ("/a/:x/b/:y", "/a/1/c/2", None),
            ("/admin/*", "/admin", Some(vec![""])),
            ("/admin/*", "/admin/", Some(vec![""])),
            (
                "/admin/*",
                "/admin/assets/a%20b",
                Some(vec!["assets/a%20b"]),
            ),
            ("/admin/*", "/administrator", None),
        ] {
            let found = PathPattern(pattern).params(path);
            let found = found.map(|all| all.into_iter().map(|PathSegment(one)| one).collect());
            let expected = params.map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(found, expected, "{pattern} {path}");
        }
        let malformed = PathPattern("/api/why/:issue");
        assert!(malformed.matches("/api/why/%00"));
        assert_eq!(malformed.params("/api/why/%00"), None);
    }

    #[test]
    fn has_a_metric_label() {
        let pattern = PathPattern("/api/outbox/:id/retry");
        assert_eq!(pattern.label(), "/api/outbox/:id/retry");
        assert_eq!(PathPattern("/admin/*").label(), "/admin");
    }
}
