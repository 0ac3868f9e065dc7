//! Parser and evaluator of the JQL subset that the service uses: fields, lists, `EMPTY`, `AND`, `OR`,
//! `NOT`, parentheses, `ORDER BY`. Everything else is rejected with Jira's error.

use super::jql_lexer::{JqlToken, token_text, tokenize};
use super::model::{Model, PRIORITIES, STATUSES};

/// Parsed query.
#[derive(Debug)]
pub(crate) struct Query {
    pub condition: Option<Condition>,
    /// Fields of the order, each with whether it is descending.
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
    /// Values; `None` is EMPTY.
    values: Vec<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Contains,
}

const OPERATORS: &str = "The valid operators are '=', '!=', '<', '>', '<=', '>=', '~', '!~', 'IN', 'NOT IN', 'IS' and 'IS NOT'.";

/// Parses a query. The error is Jira's message.
pub(crate) fn parse(text: &str) -> Result<Query, String> {
    let mut parser = Parser {
        tokens: tokenize(text)?,
        at: 0,
    };
    let condition = if parser.at_order() || parser.peek().is_none() {
        None
    } else {
        Some(parser.parse_or()?)
    };
    let order = parser.parse_order()?;
    match parser.peek() {
        None => Ok(Query { condition, order }),
        Some(token) => Err(format!(
            "Error in the JQL Query: Expecting either 'OR' or 'AND' but got '{}'. (line 1, character {})",
            token_text(token),
            parser.at + 1
        )),
    }
}

struct Parser {
    tokens: Vec<JqlToken>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&JqlToken> {
        self.tokens.get(self.at)
    }

    fn accept(&mut self, words: &[&str]) -> bool {
        let is_match = self.peek().is_some_and(|token| match token {
            JqlToken::Word(text) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
            JqlToken::Symbol(symbol) => words.contains(symbol),
            JqlToken::Quoted(_) => false,
        });
        self.at += usize::from(is_match);
        is_match
    }

    fn at_order(&self) -> bool {
        matches!(self.peek(), Some(JqlToken::Word(word)) if word.eq_ignore_ascii_case("order"))
    }

    fn syntax_error(&self, what: &str) -> String {
        let got = self.peek().map_or("the end of the query", token_text);
        format!(
            "Error in the JQL Query: Expecting {what} but got '{got}'. (line 1, character {})",
            self.at + 1
        )
    }

    fn parse_or(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.parse_and()?];
        while self.accept(&["OR", "||"]) {
            parts.push(self.parse_and()?);
        }
        Ok(Condition::Any(parts))
    }

    fn parse_and(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.parse_unary()?];
        while self.accept(&["AND", "&&"]) {
            parts.push(self.parse_unary()?);
        }
        Ok(Condition::All(parts))
    }

    fn parse_unary(&mut self) -> Result<Condition, String> {
        if self.accept(&["NOT", "!"]) {
            return Ok(Condition::Not(Box::new(self.parse_unary()?)));
        }
        if self.accept(&["("]) {
            let inner = self.parse_or()?;
            if !self.accept(&[")"]) {
                return Err(self.syntax_error("')'"));
            }
            return Ok(inner);
        }
        self.parse_clause().map(Condition::Clause)
    }

    fn parse_clause(&mut self) -> Result<Clause, String> {
        let field = self
            .parse_value()
            .ok_or_else(|| self.syntax_error("a field name"))?;
        let (operator, is_list) = if self.accept(&["="]) {
            (Operator::Is, false)
        } else if self.accept(&["!="]) {
            (Operator::IsNot, false)
        } else if self.accept(&["~"]) {
            (Operator::Contains, false)
        } else if self.accept(&["in"]) {
            (Operator::Is, true)
        } else if self.accept(&["is"]) {
            let not = self.accept(&["not"]);
            (if not { Operator::IsNot } else { Operator::Is }, false)
        } else if self.accept(&["not"]) && self.accept(&["in"]) {
            (Operator::IsNot, true)
        } else {
            return Err(format!("{} {OPERATORS}", self.syntax_error("operator")));
        };
        let values = if is_list {
            self.parse_list(&field)?
        } else {
            vec![self.parse_operand()?]
        };
        Ok(Clause {
            field,
            operator,
            values,
        })
    }

    fn parse_list(&mut self, field: &str) -> Result<Vec<Option<String>>, String> {
        if !self.accept(&["("]) {
            let value = self.peek().map_or("", token_text);
            return Err(format!(
                "Operator 'in' does not support the non-list value '\"{value}\"' for field '{field}'."
            ));
        }
        let mut values = vec![self.parse_operand()?];
        while self.accept(&[","]) {
            values.push(self.parse_operand()?);
        }
        if self.accept(&[")"]) {
            Ok(values)
        } else {
            Err(self.syntax_error("')'"))
        }
    }

    fn parse_operand(&mut self) -> Result<Option<String>, String> {
        if self.accept(&["EMPTY", "NULL"]) {
            return Ok(None);
        }
        let value = self
            .parse_value()
            .ok_or_else(|| self.syntax_error("a value"))?;
        Ok(Some(value))
    }

    fn parse_value(&mut self) -> Option<String> {
        let value = match self.peek()? {
            JqlToken::Word(text) | JqlToken::Quoted(text) => text.clone(),
            JqlToken::Symbol(_) => return None,
        };
        self.at += 1;
        Some(value)
    }

    fn parse_order(&mut self) -> Result<Vec<(String, bool)>, String> {
        let mut order = Vec::new();
        if !self.accept(&["order"]) {
            return Ok(order);
        }
        if !self.accept(&["by"]) {
            return Err(self.syntax_error("'by'"));
        }
        loop {
            let field = self
                .parse_value()
                .ok_or_else(|| self.syntax_error("a field name"))?;
            let is_descending = self.accept(&["desc"]);
            if !is_descending {
                self.accept(&["asc"]);
            }
            order.push((field, is_descending));
            if !self.accept(&[","]) {
                return Ok(order);
            }
        }
    }
}

impl Query {
    /// Returns Jira's semantic errors of a parsed query.
    pub(super) fn validation_errors(&self, model: &Model) -> Vec<String> {
        let mut errors = Vec::new();
        if let Some(condition) = &self.condition {
            condition.collect_errors(model, &mut errors);
        }
        for (field, _) in &self.order {
            if !["created", "updated", "key", "priority", "rank"]
                .contains(&field.to_lowercase().as_str())
            {
                errors.push(no_such_field(field));
            }
        }
        errors
    }
}

fn no_such_field(field: &str) -> String {
    format!("Field '{field}' does not exist or you do not have permission to view it.")
}

impl Condition {
    fn collect_errors(&self, model: &Model, errors: &mut Vec<String>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts
                    .iter()
                    .for_each(|part| part.collect_errors(model, errors));
            }
            Self::Not(inner) => inner.collect_errors(model, errors),
            Self::Clause(clause) => errors.extend(clause.validation_error(model)),
        }
    }

    /// Returns whether an issue matches. With `stale`, its fields are read from the search index.
    pub(super) fn matches(&self, model: &Model, issue: usize, stale: bool) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.matches(model, issue, stale)),
            Self::Any(parts) => parts.iter().any(|part| part.matches(model, issue, stale)),
            Self::Not(inner) => !inner.matches(model, issue, stale),
            Self::Clause(clause) => clause.matches(model, issue, stale),
        }
    }
}

impl Clause {
    fn custom_field(&self, model: &Model) -> Option<usize> {
        let in_brackets = self
            .field
            .strip_prefix("cf[")
            .and_then(|rest| rest.strip_suffix(']'));
        match in_brackets {
            Some(number) => model.find_field(&format!("customfield_{number}")),
            None => model.find_field(&self.field),
        }
    }

    fn validation_error(&self, model: &Model) -> Option<String> {
        if let Some(at) = self.custom_field(model) {
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
                let is_match = |project: &super::model::Project| {
                    project.key.eq_ignore_ascii_case(value)
                        || project.name.eq_ignore_ascii_case(value)
                };
                model.projects.iter().any(is_match)
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

    fn matches(&self, model: &Model, issue: usize, stale: bool) -> bool {
        let field_values = self.field_values(model, issue, stale);
        let has_match = |wanted: &Option<String>| match wanted {
            None => field_values.is_empty(),
            Some(wanted) if self.operator == Operator::Contains => {
                let wanted = wanted.to_lowercase();
                field_values
                    .iter()
                    .any(|value| value.to_lowercase().contains(&wanted))
            }
            Some(wanted) => field_values
                .iter()
                .any(|value| value.eq_ignore_ascii_case(wanted)),
        };
        let has_match = self.values.iter().any(has_match);
        match self.operator {
            Operator::Is | Operator::Contains => has_match,
            // As in Jira, an empty field never matches a negated value, except EMPTY.
            Operator::IsNot => {
                !has_match && (!field_values.is_empty() || self.values.contains(&None))
            }
        }
    }

    /// Returns the field's values of an issue, in every spelling that JQL accepts.
    fn field_values(&self, model: &Model, at: usize, stale: bool) -> Vec<String> {
        let issue = &model.issues[at];
        if let Some(field) = self.custom_field(model) {
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
