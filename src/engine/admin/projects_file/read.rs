//! Reading of a projects file. All problems are found at once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use domain::edit_distance::closest_name;
use domain::ids::TeamKey;
use domain::mapping::{MappingDraft, find_overlapping_key, mapping_fields, ticketing_fields};
use domain::runner_mode::RunnerMode;
use store::settings::OperatorSetting;

use crate::admin::settings::SettingChange;

/// Fields of a file.
const FIELDS: [&str; 3] = [MAPPINGS, SETTINGS, RUNNER_MODE];
pub(super) const MAPPINGS: &str = "mappings";
pub(super) const SETTINGS: &str = "settings";
pub(super) const RUNNER_MODE: &str = "runnerMode";

/// Maximum number of projects in a file. Each is compared with all others.
const MAX_PROJECTS: usize = 1_000;

/// Maximum number of problems that are reported.
const MAX_PROBLEMS: usize = 100;

/// Problem of a projects file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileProblem {
    /// Where it is, for example `mappings.ENG.maxTurns`. Empty for the whole file.
    pub place: String,
    /// Sentence for operators.
    pub message: String,
}

impl FileProblem {
    pub(super) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

/// Valid projects file.
#[derive(Debug, Default)]
pub struct ProjectsFile {
    /// Projects, each valid by itself.
    pub(super) mappings: BTreeMap<TeamKey, MappingDraft>,
    pub(super) settings: Vec<SettingChange>,
    pub(super) runner_mode: Option<RunnerMode>,
}

impl ProjectsFile {
    /// Reads a file.
    ///
    /// # Errors
    /// All problems, in the order of the file; at most [`MAX_PROBLEMS`].
    pub fn read(body: Value) -> Result<Self, Vec<FileProblem>> {
        let mut reader = Reader::default();
        match body {
            // An empty file.
            Value::Null => {}
            Value::Object(fields) => reader.read_fields(fields),
            _ => reader.reject(
                "",
                "must be an object with mappings, settings and runnerMode",
            ),
        }
        reader.problems.truncate(MAX_PROBLEMS);
        match reader.problems.is_empty() {
            true => Ok(reader.file),
            false => Err(reader.problems),
        }
    }
}

#[derive(Default)]
struct Reader {
    file: ProjectsFile,
    problems: Vec<FileProblem>,
}

impl Reader {
    fn reject(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.problems.push(FileProblem::new(place, message));
    }

    fn read_fields(&mut self, fields: Map<String, Value>) {
        self.reject_unknown("", fields.keys(), &FIELDS);
        for (name, value) in fields {
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                (MAPPINGS, Value::Object(mappings)) => self.read_mappings(mappings),
                (SETTINGS, Value::Object(settings)) => self.read_settings(&settings),
                (RUNNER_MODE, value) => self.read_runner_mode(&value),
                (MAPPINGS, _) => self.reject(MAPPINGS, "must be an object of projects by key"),
                (SETTINGS, _) => self.reject(SETTINGS, "must be an object"),
                _ => {}
            }
        }
    }

    /// Rejects names that are not known, with the closest one that is.
    fn reject_unknown<'n>(
        &mut self,
        place: &str,
        names: impl Iterator<Item = &'n String>,
        known: &[&str],
    ) {
        let left = MAX_PROBLEMS.saturating_sub(self.problems.len());
        let unknown = names.filter(|name| !known.contains(&name.as_str()));
        for name in unknown.take(left) {
            let suggestion = closest_name(name, known.iter().copied());
            let suggestion = suggestion.map(|known| format!("; did you mean {known}?"));
            let message = format!("unknown field{}", suggestion.unwrap_or_default());
            self.reject(format!("{place}{name}"), message);
        }
    }

    fn read_mappings(&mut self, mappings: Map<String, Value>) {
        if mappings.len() > MAX_PROJECTS {
            let message = format!("must be at most {MAX_PROJECTS} projects");
            return self.reject(MAPPINGS, message);
        }
        for (key, fields) in mappings {
            let place = format!("{MAPPINGS}.{key}");
            let Value::Object(mut fields) = fields else {
                self.reject(place, "must be an object");
                continue;
            };
            let given = fields.insert("teamKey".to_owned(), key.clone().into());
            if given.is_some_and(|given| given.as_str() != Some(&key)) {
                self.reject(format!("{place}.teamKey"), "must be the key of the project");
            }
            let draft = self.check_mapping(&place, fields);
            let key = TeamKey::new(key);
            if let Some(other) = find_overlapping_key(&key, self.file.mappings.keys()) {
                let message = format!(
                    "overlaps with {other}: their secrets could have the same stored names"
                );
                self.problems.push(FileProblem::new(&place, message));
            }
            self.file.mappings.extend(draft.map(|draft| (key, draft)));
        }
    }

    fn check_mapping(&mut self, place: &str, fields: Map<String, Value>) -> Option<MappingDraft> {
        let below = format!("{place}.");
        self.reject_unknown(&below, fields.keys(), &mapping_fields());
        if let Some(Value::Object(ticketing)) = fields.get("ticketingConfig") {
            let below = format!("{place}.ticketingConfig.");
            self.reject_unknown(&below, ticketing.keys(), &ticketing_fields());
        }
        let (draft, problems) = MappingDraft::check(Value::Object(fields), &[]).ok()?;
        for problem in problems {
            self.reject(format!("{below}{}", problem.path()), problem.message);
        }
        Some(draft)
    }

    fn read_settings(&mut self, settings: &Map<String, Value>) {
        let known = OperatorSetting::ALL.map(OperatorSetting::name);
        self.reject_unknown(&format!("{SETTINGS}."), settings.keys(), &known);
        for setting in OperatorSetting::ALL {
            let change = match settings.get(setting.name()) {
                None => continue,
                Some(Value::Null) => SettingChange::new(setting, ""),
                Some(Value::String(value)) => SettingChange::new(setting, value),
                Some(_) => Err(SettingChange::rule(setting)),
            };
            match change {
                Ok(change) => self.file.settings.push(change),
                Err(rule) => self.reject(format!("{SETTINGS}.{}", setting.name()), rule),
            }
        }
    }

    fn read_runner_mode(&mut self, mode: &Value) {
        self.file.runner_mode = mode.as_str().and_then(RunnerMode::parse);
        if self.file.runner_mode.is_none() {
            self.reject(
                RUNNER_MODE,
                "must be default, ci, vm, local, shadow or kubernetes",
            );
        }
    }
}
