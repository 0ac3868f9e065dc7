//! Parsers of the mapping fields of questions and approvals.

use serde::Deserialize;

use super::error::{MappingError, MappingResult};
use super::fields::MappingFields;
use crate::plan_approval::{PlanApproval, PlanAutoApprove};

/// Field of the bounds of plans that need no person.
const AUTO_APPROVE: &str = "planAutoApprove";

/// Maximum time for an answer, in hours: one year.
const MAX_QUESTION_TIMEOUT_HOURS: u32 = 365 * 24;

/// Maximum number of people who may approve plans.
const MAX_APPROVERS: usize = 50;

/// Maximum length of an email address or account id, in bytes.
const MAX_APPROVER: usize = 255;

impl MappingFields {
    /// Returns the hours after which the work goes on without an answer.
    pub(super) fn question_timeout_hours(&self) -> MappingResult<Option<u32>> {
        let hours = self.count("questionTimeoutHours", 1, MappingError::QuestionTimeout)?;
        match hours {
            Some(hours) if hours > MAX_QUESTION_TIMEOUT_HOURS => Err(MappingError::QuestionTimeout),
            hours => Ok(hours),
        }
    }

    /// Returns whether plans wait for an approval.
    pub(super) fn plan_approval(&self) -> MappingResult<PlanApproval> {
        let Some(value) = self.get("planApproval") else {
            return Ok(PlanApproval::None);
        };
        let rule = PlanApproval::deserialize(value).map_err(|_| MappingError::PlanApproval)?;
        match rule {
            PlanApproval::Auto if self.get(AUTO_APPROVE).is_none() => {
                Err(MappingError::MissingAutoApprove)
            }
            rule => Ok(rule),
        }
    }

    /// Returns the bounds of plans that need no person.
    pub(super) fn plan_auto_approve(&self) -> MappingResult<Option<PlanAutoApprove>> {
        let Some(value) = self.get(AUTO_APPROVE) else {
            return Ok(None);
        };
        let bounds = PlanAutoApprove::deserialize(value);
        let bounds = bounds.map_err(|_| MappingError::PlanAutoApprove)?;
        match bounds.is_valid() {
            true => Ok(Some(bounds)),
            false => Err(MappingError::PlanAutoApprove),
        }
    }

    /// Returns the people who may approve plans.
    pub(super) fn approvers(&self) -> MappingResult<Vec<String>> {
        let Some(value) = self.get("approvers") else {
            return Ok(Vec::new());
        };
        let names = Vec::<String>::deserialize(value).map_err(|_| MappingError::Approvers)?;
        let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
        let is_valid = |name: &String| {
            !name.is_empty() && name.len() <= MAX_APPROVER && !name.contains(char::is_control)
        };
        match names.len() <= MAX_APPROVERS && names.iter().all(is_valid) {
            true => Ok(names),
            false => Err(MappingError::Approvers),
        }
    }
}
