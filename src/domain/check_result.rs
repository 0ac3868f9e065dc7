//! Results of configuration checks.

use serde::Serialize;

/// Level of a check result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckLevel {
    /// Works.
    Ok,
    /// Not configured, and not required.
    #[serde(rename = "off")]
    NotConfigured,
    /// Works with limitations, or could not be checked.
    Warning,
    /// Does not work.
    Error,
}

impl CheckLevel {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            CheckLevel::Ok => "ok",
            CheckLevel::NotConfigured => "off",
            CheckLevel::Warning => "warning",
            CheckLevel::Error => "error",
        }
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    /// Name of the check. Stable, for use in scripts.
    pub check: &'static str,
    /// Project that was checked, if the check is per project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Level.
    pub level: CheckLevel,
    /// Result, as a sentence.
    #[serde(rename = "what")]
    pub message: String,
    /// Consequence of the problem. Empty if there is none.
    #[serde(rename = "why")]
    pub impact: String,
    /// Instruction to fix the problem, in one line.
    pub remedy: String,
}

impl CheckResult {
    /// Creates a result of level `Ok`.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Ok, message)
    }

    /// Creates a result of level `NotConfigured`.
    pub fn not_configured(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::NotConfigured, message)
    }

    /// Creates a result of level `Warning`.
    pub fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Warning, message)
    }

    /// Creates a result of level `Error`.
    pub fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckLevel::Error, message)
    }

    fn new(check: &'static str, level: CheckLevel, message: impl Into<String>) -> Self {
        Self {
            check,
            subject: None,
            level,
            message: message.into(),
            impact: String::new(),
            remedy: String::new(),
        }
    }

    /// Sets the project.
    #[must_use]
    pub fn for_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the consequence.
    #[must_use]
    pub fn with_impact(mut self, impact: impl Into<String>) -> Self {
        self.impact = impact.into();
        self
    }

    /// Sets the instruction.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
