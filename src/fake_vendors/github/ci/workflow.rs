//! Parser of workflow files, limited to what dispatches and jobs need.

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::event_runs::DISPATCH;

/// Maximum number of declared inputs.
const MAX_INPUTS: usize = 25;

pub(crate) struct Workflow {
    pub name: Option<String>,
    pub run_name: Option<String>,
    /// Names of the events that start it.
    pub events: Vec<String>,
    pub inputs: Vec<WorkflowInput>,
    pub env: Map<String, Value>,
    pub permissions: Option<Value>,
    pub jobs: Vec<WorkflowJob>,
}

pub(crate) struct WorkflowInput {
    pub name: String,
    pub required: bool,
    pub default: Option<Value>,
    pub kind: String,
    pub options: Vec<String>,
}

pub(crate) struct WorkflowJob {
    pub id: String,
    pub name: Option<String>,
    pub condition: Option<String>,
    pub needs: Vec<String>,
    pub env: Map<String, Value>,
    pub outputs: Map<String, Value>,
    pub permissions: Option<Value>,
    pub timeout_minutes: Option<Value>,
    pub runs_on: Option<Value>,
    pub steps: Vec<WorkflowStep>,
    pub shell: Option<String>,
    pub workdir: Option<String>,
}

pub(crate) struct WorkflowStep {
    pub id: Option<String>,
    pub name: Option<String>,
    pub condition: Option<String>,
    pub run: Option<String>,
    pub uses: Option<String>,
    /// Inputs of the action.
    pub with: Map<String, Value>,
    pub env: Map<String, Value>,
    pub shell: Option<String>,
    pub workdir: Option<String>,
    pub continue_on_error: bool,
}

impl Workflow {
    /// Parses a file that can be dispatched. The error is GitHub's text after `failed to parse workflow: `.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let workflow = Self::parse_any(text)?;
        if !workflow.events.iter().any(|event| event == DISPATCH) {
            bail!("Workflow does not have 'workflow_dispatch' trigger");
        }
        Ok(workflow)
    }

    /// Parses a file.
    pub(crate) fn parse_any(text: &str) -> anyhow::Result<Self> {
        let root: Value = serde_saphyr::from_str(text).context("invalid YAML")?;
        let events: Vec<String> = match &root["on"] {
            Value::Object(events) => events.keys().cloned().collect(),
            other => list(other),
        };
        let dispatch = &root["on"][DISPATCH];
        let inputs: Vec<WorkflowInput> = pairs(&dispatch["inputs"]).map(input).collect();
        if inputs.len() > MAX_INPUTS {
            bail!("you may only define up to {MAX_INPUTS} inputs");
        }
        let jobs: Vec<WorkflowJob> = pairs(&root["jobs"]).map(job).collect();
        if jobs.is_empty() {
            bail!("No jobs defined in `jobs`");
        }
        Ok(Self {
            name: text_of(&root["name"]),
            run_name: text_of(&root["run-name"]),
            events,
            inputs,
            env: map(&root["env"]),
            permissions: present(&root["permissions"]),
            jobs,
        })
    }

    /// Returns all declared inputs as strings, as in the event: the sent value, else the default, else an
    /// empty string.
    pub(crate) fn event_inputs(&self, sent: &Map<String, Value>) -> Map<String, Value> {
        let value = |input: &WorkflowInput| {
            let value = sent.get(&input.name).or(input.default.as_ref());
            Value::String(value.map(plain_text).unwrap_or_default())
        };
        let inputs = self.inputs.iter();
        inputs
            .map(|input| (input.name.clone(), value(input)))
            .collect()
    }

    /// Returns the inputs for the `inputs` context, with booleans and numbers typed.
    pub(crate) fn typed_inputs(&self, sent: &Map<String, Value>) -> Map<String, Value> {
        let mut values = self.event_inputs(sent);
        for input in &self.inputs {
            let Some(value) = values.get_mut(&input.name) else {
                continue;
            };
            let text = value.as_str().unwrap_or_default();
            let typed = match input.kind.as_str() {
                "boolean" => Some(Value::Bool(text == "true")),
                "number" => serde_json::from_slice(text.as_bytes())
                    .ok()
                    .filter(Value::is_number),
                _ => None,
            };
            if let Some(typed) = typed {
                *value = typed;
            }
        }
        values
    }
}

fn input((name, value): (&String, &Value)) -> WorkflowInput {
    WorkflowInput {
        name: name.clone(),
        required: value["required"] == Value::Bool(true),
        default: present(&value["default"]),
        kind: text_of(&value["type"]).unwrap_or_else(|| "string".into()),
        options: list(&value["options"]),
    }
}

fn job((id, value): (&String, &Value)) -> WorkflowJob {
    let steps = value["steps"].as_array();
    let run = &value["defaults"]["run"];
    WorkflowJob {
        id: id.clone(),
        name: text_of(&value["name"]),
        condition: text_of(&value["if"]),
        needs: list(&value["needs"]),
        env: map(&value["env"]),
        outputs: map(&value["outputs"]),
        permissions: present(&value["permissions"]),
        timeout_minutes: present(&value["timeout-minutes"]),
        runs_on: present(&value["runs-on"]),
        steps: steps.into_iter().flatten().map(step).collect(),
        shell: text_of(&run["shell"]),
        workdir: text_of(&run["working-directory"]),
    }
}

fn step(value: &Value) -> WorkflowStep {
    WorkflowStep {
        id: text_of(&value["id"]),
        name: text_of(&value["name"]),
        condition: text_of(&value["if"]),
        run: text_of(&value["run"]),
        uses: text_of(&value["uses"]),
        with: map(&value["with"]),
        env: map(&value["env"]),
        shell: text_of(&value["shell"]),
        workdir: text_of(&value["working-directory"]),
        continue_on_error: value["continue-on-error"] == Value::Bool(true),
    }
}

fn pairs(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn list(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(plain_text).collect(),
        Value::Null => Vec::new(),
        single => vec![plain_text(single)],
    }
}

fn present(value: &Value) -> Option<Value> {
    (!value.is_null()).then(|| value.clone())
}

fn text_of(value: &Value) -> Option<String> {
    present(value).map(|value| plain_text(&value))
}

/// Converts a value to text, without quotes around strings.
pub(crate) fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
