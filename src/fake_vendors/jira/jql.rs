//! Enough of the query language for what clients of ours write: fields, lists, `EMPTY`, `AND`,
//! `OR`, `NOT`, parentheses, `ORDER BY`. Anything else is refused in the vendor's manner.

use super::jql_lexer::{JqlToken, token_text, tokenize};
use super::model::{Model, PRIORITIES, STATUSES};

/// A query that is understood.
#[derive(Debug)]
pub(crate) struct Query {
    pub condition: Option<Condition>,
    /// Field, and whether the order is descending.
    pub order: Vec<(String, bool)>,
}

#[derive(Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    Clause(Clause),
}

#[derive(Debug)]
pub(crate) struct Clause {
    field: String,
    operator: Operator,
    /// None stands for EMPTY.
    values: Vec<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Contains,
}

const OPERATORS: &str = "The valid operators are '=', '!=', '<', '>', '<=', '>=', '~', '!~', 'IN', 'NOT IN', 'IS' and 'IS NOT'.";

/// Reads a query. The error is the vendor's sentence.
pub(crate) fn parse(text: &str) -> Result<Query, String> {
    let mut reader = Reader {
        tokens: tokenize(text)?,
        at: 0,
    };
    let condition = if reader.at_order() || reader.peek().is_none() {
        None
    } else {
        Some(reader.any()?)
    };
    let order = reader.order()?;
    match reader.peek() {
        None => Ok(Query { condition, order }),
        Some(token) => Err(format!(
            "Error in the JQL Query: Expecting either 'OR' or 'AND' but got '{}'. (line 1, character {})",
            token_text(token),
            reader.at + 1
        )),
    }
}

struct Reader {
    tokens: Vec<JqlToken>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<&JqlToken> {
        self.tokens.get(self.at)
    }

    fn takes(&mut self, words: &[&str]) -> bool {
        let is_it = self.peek().is_some_and(|token| match token {
            JqlToken::Word(text) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
            JqlToken::Symbol(symbol) => words.contains(symbol),
            JqlToken::Quoted(_) => false,
        });
        self.at += usize::from(is_it);
        is_it
    }

    fn at_order(&self) -> bool {
        matches!(self.peek(), Some(JqlToken::Word(word)) if word.eq_ignore_ascii_case("order"))
    }

    fn expecting(&self, what: &str) -> String {
        let got = self.peek().map_or("the end of the query", token_text);
        format!(
            "Error in the JQL Query: Expecting {what} but got '{got}'. (line 1, character {})",
            self.at + 1
        )
    }

    fn any(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.all()?];
        while self.takes(&["OR", "||"]) {
            parts.push(self.all()?);
        }
        Ok(Condition::Any(parts))
    }

    fn all(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.one()?];
        while self.takes(&["AND", "&&"]) {
            parts.push(self.one()?);
        }
        Ok(Condition::All(parts))
    }

    fn one(&mut self) -> Result<Condition, String> {
        if self.takes(&["NOT", "!"]) {
            return Ok(Condition::Not(Box::new(self.one()?)));
        }
        if self.takes(&["("]) {
            let inner = self.any()?;
            if !self.takes(&[")"]) {
                return Err(self.expecting("')'"));
            }
            return Ok(inner);
        }
        self.clause().map(Condition::Clause)
    }

    fn clause(&mut self) -> Result<Clause, String> {
        let field = self.value().ok_or_else(|| self.expecting("a field name"))?;
        let (operator, is_list) = if self.takes(&["="]) {
            (Operator::Is, false)
        } else if self.takes(&["!="]) {
            (Operator::IsNot, false)
        } else if self.takes(&["~"]) {
            (Operator::Contains, false)
        } else if self.takes(&["in"]) {
            (Operator::Is, true)
        } else if self.takes(&["is"]) {
            let not = self.takes(&["not"]);
            (if not { Operator::IsNot } else { Operator::Is }, false)
        } else if self.takes(&["not"]) && self.takes(&["in"]) {
            (Operator::IsNot, true)
        } else {
            return Err(format!("{} {OPERATORS}", self.expecting("operator")));
        };
        let values = if is_list {
            self.list(&field)?
        } else {
            vec![self.operand()?]
        };
        Ok(Clause {
            field,
            operator,
            values,
        })
    }

    fn list(&mut self, field: &str) -> Result<Vec<Option<String>>, String> {
        if !self.takes(&["("]) {
            let value = self.peek().map_or("", token_text);
            return Err(format!(
                "Operator 'in' does not support the non-list value '\"{value}\"' for field '{field}'."
            ));
        }
        let mut values = vec![self.operand()?];
        while self.takes(&[","]) {
            values.push(self.operand()?);
        }
        if self.takes(&[")"]) {
            Ok(values)
        } else {
            Err(self.expecting("')'"))
        }
    }

    fn operand(&mut self) -> Result<Option<String>, String> {
        if self.takes(&["EMPTY", "NULL"]) {
            return Ok(None);
        }
        let value = self.value().ok_or_else(|| self.expecting("a value"))?;
        Ok(Some(value))
    }

    fn value(&mut self) -> Option<String> {
        let value = match self.peek()? {
            JqlToken::Word(text) | JqlToken::Quoted(text) => text.clone(),
            JqlToken::Symbol(_) => return None,
        };
        self.at += 1;
        Some(value)
    }

    fn order(&mut self) -> Result<Vec<(String, bool)>, String> {
        let mut order = Vec::new();
        if !self.takes(&["order"]) {
            return Ok(order);
        }
        if !self.takes(&["by"]) {
            return Err(self.expecting("'by'"));
        }
        loop {
            let field = self.value().ok_or_else(|| self.expecting("a field name"))?;
            let is_descending = self.takes(&["desc"]);
            if !is_descending {
                self.takes(&["asc"]);
            }
            order.push((field, is_descending));
            if !self.takes(&[","]) {
                return Ok(order);
            }
        }
    }
}

impl Query {
    /// What the vendor has against it although it can be read.
    pub fn validation_errors(&self, model: &Model) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(condition) = &self.condition {
            condition.problems(model, &mut found);
        }
        for (field, _) in &self.order {
            if !["created", "updated", "key", "priority", "rank"]
                .contains(&field.to_lowercase().as_str())
            {
                found.push(no_such_field(field));
            }
        }
        found
    }
}

fn no_such_field(field: &str) -> String {
    format!("Field '{field}' does not exist or you do not have permission to view it.")
}

impl Condition {
    fn problems(&self, model: &Model, found: &mut Vec<String>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.problems(model, found));
            }
            Self::Not(inner) => inner.problems(model, found),
            Self::Clause(clause) => found.extend(clause.problem(model)),
        }
    }

    /// Whether an issue meets it; `stale` shows its fields as they were last indexed.
    pub fn matches(&self, model: &Model, issue: usize, stale: bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(model, issue, stale)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(model, issue, stale)),
            Self::Not(inner) => !inner.matches(model, issue, stale),
            Self::Clause(clause) => clause.holds(model, issue, stale),
        }
    }
}

impl Clause {
    fn custom(&self, model: &Model) -> Option<usize> {
        let in_brackets = self
            .field
            .strip_prefix("cf[")
            .and_then(|rest| rest.strip_suffix(']'));
        match in_brackets {
            Some(number) => model.find_field(&format!("customfield_{number}")),
            None => model.find_field(&self.field),
        }
    }

    fn problem(&self, model: &Model) -> Option<String> {
        if let Some(at) = self.custom(model) {
            let field = &model.fields[at];
            let missing = self
                .values
                .iter()
                .flatten()
                .find(|value| field.option(value).is_none())?;
            return Some(format!(
                "The option '{missing}' for field '{}' does not exist.",
                self.field
            ));
        }
        let known: &dyn Fn(&str) -> bool = match self.field.to_lowercase().as_str() {
            "project" => &|value| {
                let is_it = |project: &super::model::Project| {
                    project.key.eq_ignore_ascii_case(value)
                        || project.name.eq_ignore_ascii_case(value)
                };
                model.projects.iter().any(is_it)
            },
            "status" => &|value| {
                STATUSES
                    .iter()
                    .any(|(_, name, _)| name.eq_ignore_ascii_case(value))
            },
            "priority" => &|value| {
                PRIORITIES
                    .iter()
                    .any(|name| name.eq_ignore_ascii_case(value))
            },
            "summary" if self.operator != Operator::Contains => {
                return Some(
                    "The operator '=' is not supported by the 'summary' field.".to_owned(),
                );
            }
            "key" | "issuekey" | "issue" | "id" | "labels" | "statuscategory" | "summary"
            | "parent" => &|_| true,
            _ => return Some(no_such_field(&self.field)),
        };
        let missing = self.values.iter().flatten().find(|value| !known(value))?;
        let field = &self.field;
        Some(format!(
            "The value '{missing}' does not exist for the field '{field}'."
        ))
    }

    fn holds(&self, model: &Model, issue: usize, stale: bool) -> bool {
        let held = self.held(model, issue, stale);
        let is_met = |wanted: &Option<String>| match wanted {
            None => held.is_empty(),
            Some(wanted) if self.operator == Operator::Contains => {
                let wanted = wanted.to_lowercase();
                held.iter()
                    .any(|value| value.to_lowercase().contains(&wanted))
            }
            Some(wanted) => held.iter().any(|value| value.eq_ignore_ascii_case(wanted)),
        };
        let is_met = self.values.iter().any(is_met);
        match self.operator {
            Operator::Is | Operator::Contains => is_met,
            // As with the vendor, an empty field is unlike nothing but EMPTY.
            Operator::IsNot => !is_met && (!held.is_empty() || self.values.contains(&None)),
        }
    }

    /// What the field says of an issue, in all words that mean it.
    fn held(&self, model: &Model, at: usize, stale: bool) -> Vec<String> {
        let issue = &model.issues[at];
        if let Some(field) = self.custom(model) {
            let fields = if stale {
                &issue.indexed_fields
            } else {
                &issue.fields
            };
            return fields
                .get(&model.fields[field].number)
                .cloned()
                .into_iter()
                .collect();
        }
        let project = &model.projects[issue.project];
        let (_, status, category) = STATUSES[issue.status];
        match self.field.to_lowercase().as_str() {
            "project" => vec![project.key.clone(), project.name.clone()],
            "key" | "issuekey" | "issue" | "id" => vec![model.issue_key(at), issue.id.to_string()],
            "status" => vec![status.to_owned()],
            "statuscategory" => {
                let name = ["To Do", "In Progress", "Done"][issue.status];
                vec![name.to_owned(), category.to_owned()]
            }
            "priority" => issue.priority.clone().into_iter().collect(),
            "labels" => issue.labels.clone(),
            "summary" => vec![issue.summary.clone()],
            "parent" => {
                let both =
                    |parent: usize| [model.issue_key(parent), model.issues[parent].id.to_string()];
                issue.parent.into_iter().flat_map(both).collect()
            }
            _ => Vec::new(),
        }
    }
}
