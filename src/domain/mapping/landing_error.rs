//! Errors of the mapping fields of pull requests that land: capacity, dispatch hours, collisions and merging.

/// Reason why such a field is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LandingError {
    /// This count is not a positive integer.
    #[error("{0} must be a whole number of at least 1")]
    Count(&'static str),
    /// This list of globs is invalid.
    #[error("{0} must be a list of at most 50 globs, each at most 255 bytes")]
    Globs(&'static str),
    /// This object is not one, or has a field that is not known.
    #[error("{name} must be an object with the fields {fields}")]
    Object {
        /// Name of the field.
        name: &'static str,
        /// Names of the fields of the object.
        fields: &'static str,
    },
    /// The days are invalid.
    #[error(
        "dispatchWindow.days must be a list of different days: mon, tue, wed, thu, fri, sat, sun"
    )]
    Days,
    /// This time is invalid.
    #[error("{0} must be a time from 00:00 to 23:59, such as 08:00")]
    Time(&'static str),
    /// The window ends when it begins.
    #[error("dispatchWindow.to must be another time than dispatchWindow.from")]
    EmptyWindow,
    /// The time zone has no valid name.
    #[error("dispatchWindow.timeZone must be the name of a time zone, such as Europe/Berlin")]
    TimeZone,
    /// This machine has no data of the time zone.
    #[error(
        "dispatchWindow.timeZone: this machine has no time zone {0}. Check the name, as in Europe/Berlin, and that the time zone data is installed (Debian: apt install tzdata). UTC needs none"
    )]
    NoTimeZoneData(String),
    /// The rule for collisions is unknown.
    #[error("collisions must be wait or allow")]
    Collisions,
    /// The way of merging is missing or unknown.
    #[error("merge.mode must be never, auto or queue")]
    MergeMode,
    /// The kind of the merge commit is unknown.
    #[error("merge.method must be squash, merge or rebase")]
    MergeMethod,
}

impl LandingError {
    /// Returns the name of the mapping's field.
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::Count(name) | Self::Globs(name) | Self::Object { name, .. } => {
                name.split_once('.').map_or(*name, |(field, _)| field)
            }
            Self::Days
            | Self::Time(_)
            | Self::EmptyWindow
            | Self::TimeZone
            | Self::NoTimeZoneData(_) => "dispatchWindow",
            Self::Collisions => "collisions",
            Self::MergeMode | Self::MergeMethod => "merge",
        }
    }

    /// Returns the rule in the words of the panel, after the label of the field.
    pub(super) fn rule(&self) -> String {
        match self {
            Self::Count("merge.requireApprovals") => "must need at least 1 approval".to_owned(),
            Self::Count("merge.maxFiles") => "must allow at least 1 file".to_owned(),
            Self::Count("merge.maxLines") => "must allow at least 1 line".to_owned(),
            Self::Count(_) => "must be a whole number of at least 1".to_owned(),
            Self::Globs(_) => "must have at most 50 valid patterns of paths".to_owned(),
            Self::Object { fields, .. } => format!("must have the fields {fields}"),
            Self::Days => "must name different days, such as mon, tue".to_owned(),
            Self::Time(_) => "must be from and to a time such as 08:00".to_owned(),
            Self::EmptyWindow => "must begin and end at different times".to_owned(),
            Self::TimeZone => "must be in a time zone such as Europe/Berlin".to_owned(),
            Self::NoTimeZoneData(name) => format!(
                "cannot be in {name}: this machine has no such time zone. Check the name, and that its package tzdata is installed"
            ),
            Self::Collisions => "must be wait or allow".to_owned(),
            Self::MergeMode => "must be never, auto or queue".to_owned(),
            Self::MergeMethod => "must be by squash, merge or rebase".to_owned(),
        }
    }
}
