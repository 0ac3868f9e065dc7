//! What a check of a set-up finds: what it is, why it matters, and how it is mended.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckLevel {
    Ok,
    /// Not set up, and nothing needs it.
    #[serde(rename = "off")]
    NotConfigured,
    /// Works, and not as well as it could; or could not be checked.
    Warning,
    /// Does not work.
    Error,
}

impl CheckLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            CheckLevel::Ok => "ok",
            CheckLevel::NotConfigured => "off",
            CheckLevel::Warning => "warning",
            CheckLevel::Error => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// What was looked at, by a name that scripts can rely on.
    pub check: &'static str,
    /// Of which project, when it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub level: CheckLevel,
    #[serde(rename = "what")]
    pub message: String,
    /// Why it matters. Empty where all is well.
    #[serde(rename = "why")]
    pub impact: String,
    /// One line that says how to mend it.
    pub remedy: String,
}

impl CheckResult {
    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Ok, what)
    }

    pub fn not_configured(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::NotConfigured, what)
    }

    pub fn warning(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Warning, what)
    }

    pub fn error(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Error, what)
    }

    fn new(check: &'static str, level: CheckLevel, what: impl Into<String>) -> Self {
        Self {
            check,
            subject: None,
            level,
            message: what.into(),
            impact: String::new(),
            remedy: String::new(),
        }
    }

    #[must_use]
    pub fn for_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    #[must_use]
    pub fn with_impact(mut self, why: impl Into<String>) -> Self {
        self.impact = why.into();
        self
    }

    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
