//! Parsers of the mapping fields of pull requests that land: capacity, dispatch hours, collisions and merging.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::error::{MappingError, MappingErrors, MappingResult};
use super::fields::MappingFields;
use super::landing_error::LandingError;
use crate::collision::CollisionRule;
use crate::dispatch_window::{Day, DispatchWindow, TimeOfDay};
use crate::merge_policy::{DEFAULT_APPROVALS, MergeMethod, MergePolicy};
use crate::path_globs;
use crate::time_zone::TimeZone;

/// Fields of pull requests that land. A field is `None` if it is invalid.
#[derive(Debug, Clone)]
pub(super) struct LandingFields {
    pub max_open_pulls: Option<Option<u32>>,
    pub max_awaiting_review: Option<Option<u32>>,
    pub dispatch_window: Option<Option<DispatchWindow>>,
    pub collisions: Option<CollisionRule>,
    pub collision_ignore: Option<Vec<String>>,
    pub merge: Option<MergePolicy>,
    pub delete_branch: Option<Option<bool>>,
}

impl LandingFields {
    /// Reads the fields of a body.
    pub(super) fn read(fields: &MappingFields, errors: &mut MappingErrors) -> Self {
        Self {
            max_open_pulls: errors.keep(fields.limit("maxOpenPulls", "maxOpenPulls")),
            max_awaiting_review: errors
                .keep(fields.limit("maxAwaitingReview", "maxAwaitingReview")),
            dispatch_window: errors.keep(fields.dispatch_window()),
            collisions: errors.keep(fields.collisions()),
            collision_ignore: errors.keep(fields.globs("collisionIgnore", "collisionIgnore")),
            merge: errors.keep(fields.merge()),
            delete_branch: errors.keep(fields.flag("deleteBranch")),
        }
    }
}

impl MappingFields {
    /// Returns an integer that is at least 1. `path` names the field in errors.
    fn limit(&self, name: &str, path: &'static str) -> MappingResult<Option<u32>> {
        self.count(name, 1, LandingError::Count(path).into())
    }

    /// Returns a list of globs.
    fn globs(&self, name: &str, path: &'static str) -> MappingResult<Vec<String>> {
        let Some(value) = self.get(name) else {
            return Ok(Vec::new());
        };
        let globs = Vec::<String>::deserialize(value).ok();
        let valid = globs.filter(|globs| path_globs::are_valid(globs));
        valid.ok_or(LandingError::Globs(path).into())
    }

    /// Returns the fields of an object that has no other ones.
    fn object(
        &self,
        name: &'static str,
        fields: &'static str,
    ) -> MappingResult<Option<MappingFields>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let is_known = |field: &String| fields.split(", ").any(|known| known == field);
        match value {
            Value::Object(object) if object.keys().all(is_known) => {
                Ok(Some(MappingFields(object.clone())))
            }
            _ => Err(LandingError::Object { name, fields }.into()),
        }
    }

    fn collisions(&self) -> MappingResult<CollisionRule> {
        let rule = self.get("collisions").map(CollisionRule::deserialize);
        let rule = rule.unwrap_or(Ok(CollisionRule::default()));
        rule.map_err(|_| LandingError::Collisions.into())
    }

    fn dispatch_window(&self) -> MappingResult<Option<DispatchWindow>> {
        let fields = self.object("dispatchWindow", "days, from, to, timeZone")?;
        let Some(fields) = fields else {
            return Ok(None);
        };
        let (days, from, to) = (
            fields.days()?,
            fields.time("from", "dispatchWindow.from")?,
            fields.time("to", "dispatchWindow.to")?,
        );
        if from == to {
            return Err(LandingError::EmptyWindow.into());
        }
        let name = fields
            .text("timeZone")
            .filter(|name| TimeZone::is_name(name));
        let name = name.ok_or(MappingError::from(LandingError::TimeZone))?;
        Ok(Some(DispatchWindow {
            days,
            from,
            to,
            time_zone: name.to_owned(),
        }))
    }

    /// Returns the days, in the order of the week.
    fn days(&self) -> MappingResult<Vec<Day>> {
        let days = self.get("days").map(Vec::<Day>::deserialize);
        let days = days.and_then(Result::ok).unwrap_or_default();
        let different: BTreeSet<Day> = days.iter().copied().collect();
        match !days.is_empty() && different.len() == days.len() {
            true => Ok(different.into_iter().collect()),
            false => Err(LandingError::Days.into()),
        }
    }

    fn time(&self, name: &str, path: &'static str) -> MappingResult<TimeOfDay> {
        let time = self.text(name).and_then(TimeOfDay::parse);
        time.ok_or(LandingError::Time(path).into())
    }

    fn merge(&self) -> MappingResult<MergePolicy> {
        let fields = "mode, method, requireApprovals, maxFiles, maxLines, forbidPaths";
        let Some(fields) = self.object("merge", fields)? else {
            return Ok(MergePolicy::default());
        };
        let mode = fields
            .get("mode")
            .and_then(|mode| Deserialize::deserialize(mode).ok());
        let method = fields.get("method").map(MergeMethod::deserialize);
        let approvals = fields.limit("requireApprovals", "merge.requireApprovals");
        Ok(MergePolicy {
            mode: mode.ok_or(MappingError::from(LandingError::MergeMode))?,
            method: method
                .unwrap_or(Ok(MergeMethod::default()))
                .map_err(|_| MappingError::from(LandingError::MergeMethod))?,
            require_approvals: approvals?.unwrap_or(DEFAULT_APPROVALS),
            max_files: fields.limit("maxFiles", "merge.maxFiles")?,
            max_lines: fields.limit("maxLines", "merge.maxLines")?,
            forbid_paths: fields.globs("forbidPaths", "merge.forbidPaths")?,
        })
    }
}
