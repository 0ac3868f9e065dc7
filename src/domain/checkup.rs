//! What a check of a set-up finds: what it is, why it matters, and how it is mended.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Ok,
    /// Not set up, and nothing needs it.
    Off,
    /// Works, and not as well as it could; or could not be checked.
    Warning,
    /// Does not work.
    Error,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Off => "off",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, by a name that scripts can rely on.
    pub check: &'static str,
    /// Of which project, when it is of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub level: Level,
    pub what: String,
    /// Why it matters. Empty where all is well.
    pub why: String,
    /// One line that says how to mend it.
    pub remedy: String,
}

impl Finding {
    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Ok, what)
    }

    pub fn off(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Off, what)
    }

    pub fn warning(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Warning, what)
    }

    pub fn error(check: &'static str, what: impl Into<String>) -> Self {
        Self::new(check, Level::Error, what)
    }

    fn new(check: &'static str, level: Level, what: impl Into<String>) -> Self {
        Self {
            check,
            subject: None,
            level,
            what: what.into(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    #[must_use]
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    #[must_use]
    pub fn mend(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}
