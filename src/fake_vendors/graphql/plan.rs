//! Parsing and validation of a query into a tree of selected fields.
//!
//! In a `QueryPlan` fragments are flattened, variables are substituted, arguments are coerced and
//! defaults are filled in.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use async_graphql_parser::types::{
    Directive, DocumentOperations, ExecutableDocument, Field, OperationDefinition, OperationType,
    Selection, SelectionSet,
};
use async_graphql_parser::{Positioned, parse_query};
use serde_json::{Map, Value};

use super::schema::{Schema, TypeDefinition, named_type};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Query,
    Mutation,
}

#[derive(Debug)]
pub(crate) struct QueryPlan {
    pub operation: Operation,
    pub fields: Vec<SelectedField>,
}

/// Selected field.
#[derive(Clone, Debug)]
pub(crate) struct SelectedField {
    pub response_key: String,
    pub name: String,
    pub args: Map<String, Value>,
    /// Named type of the field's value.
    pub return_type: String,
    /// Whether the field becomes null if it, or a field inside that is not nullable, fails.
    pub nullable: bool,
    /// Concrete type of the enclosing fragment, if the field applies only to that type.
    pub type_condition: Option<String>,
    pub fields: Vec<SelectedField>,
}

impl QueryPlan {
    /// Parses and validates a query. The error is the message of the server's 400 response.
    pub(crate) fn parse(
        schema: &Schema,
        query: &str,
        variables: &Map<String, Value>,
        operation_name: Option<&str>,
    ) -> Result<Self, String> {
        let document = parse_query(query).map_err(|error| format!("Syntax Error: {error}"))?;
        let operation = operation(&document, operation_name)?;
        let (kind, root) = match operation.ty {
            OperationType::Query => (Operation::Query, "Query"),
            OperationType::Mutation => (Operation::Mutation, "Mutation"),
            OperationType::Subscription => {
                return Err("Subscriptions are not supported over HTTP.".into());
            }
        };
        let planner = Planner {
            schema,
            document: &document,
            variables: coerce_variables(schema, operation, variables)?,
            declared: operation
                .variable_definitions
                .iter()
                .map(|definition| definition.node.name.node.to_string())
                .collect(),
            used: RefCell::default(),
        };
        let mut fields = Vec::new();
        planner.collect(root, &operation.selection_set.node, None, &mut fields)?;
        let used = planner.used.borrow();
        match planner.declared.iter().find(|name| !used.contains(*name)) {
            Some(unused) => Err(format!("Variable \"${unused}\" is never used.")),
            None => Ok(Self {
                operation: kind,
                fields,
            }),
        }
    }

    /// Computes the complexity by Linear's published rule: a property costs 0.1 points, an object 1
    /// point, and a connection multiplies the cost of its nodes by the page size.
    pub(crate) fn complexity(&self, schema: &Schema) -> u64 {
        let points: f64 = self.fields.iter().map(|field| points(schema, field)).sum();
        (points - 1e-6).ceil().max(0.0) as u64
    }
}

fn points(schema: &Schema, field: &SelectedField) -> f64 {
    let inside = |fields: &[SelectedField]| -> f64 {
        fields.iter().map(|field| points(schema, field)).sum()
    };
    if schema.is_leaf(&field.return_type) {
        return 0.1;
    }
    if !field.return_type.ends_with("Connection") {
        return 1.0 + inside(&field.fields);
    }
    let page = ["first", "last"]
        .iter()
        .find_map(|name| field.args.get(*name).and_then(Value::as_f64))
        .unwrap_or(50.0);
    let lists = field
        .fields
        .iter()
        .filter(|list| matches!(list.name.as_str(), "nodes" | "edges"));
    page * lists.map(|list| 1.0 + inside(&list.fields)).sum::<f64>()
}

fn operation<'a>(
    document: &'a ExecutableDocument,
    name: Option<&str>,
) -> Result<&'a OperationDefinition, String> {
    match (&document.operations, name) {
        (DocumentOperations::Single(operation), _) => Ok(&operation.node),
        (DocumentOperations::Multiple(many), Some(name)) => many
            .get(name)
            .map(|operation| &operation.node)
            .ok_or_else(|| format!("Unknown operation named \"{name}\".")),
        (DocumentOperations::Multiple(many), None) => match many.values().next() {
            Some(operation) if many.len() == 1 => Ok(&operation.node),
            _ => Err("Must provide operation name if query contains multiple operations.".into()),
        },
    }
}

fn coerce_variables(
    schema: &Schema,
    operation: &OperationDefinition,
    values: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for definition in &operation.variable_definitions {
        let definition = &definition.node;
        let name = definition.name.node.to_string();
        let ty = &definition.var_type.node;
        if !matches!(
            (schema.get(named_type(ty)), named_type(ty)),
            (
                Some(TypeDefinition::Input(_) | TypeDefinition::Enum(_) | TypeDefinition::Scalar),
                _
            ) | (None, "String" | "Int" | "Float" | "Boolean" | "ID")
        ) {
            return Err(format!("Unknown type \"{}\".", named_type(ty)));
        }
        let value = match values.get(&name) {
            Some(value) => value.clone(),
            None => match &definition.default_value {
                Some(default) => default.node.clone().into_json().unwrap_or_default(),
                None if ty.nullable => continue,
                None => {
                    return Err(format!(
                        "Variable \"${name}\" of required type \"{ty}\" was not provided."
                    ));
                }
            },
        };
        let value = schema.coerce(ty, &value).map_err(|reason| {
            format!("Variable \"${name}\" got invalid value {value}; {reason}")
        })?;
        out.insert(name, value);
    }
    Ok(out)
}

/// Evaluates to the value with its variables substituted, or `None` for an absent variable. A macro,
/// because the parser does not export the name of its value type.
macro_rules! literal {
    ($planner:expr, $value:expr) => {{
        let absent = Cell::new(false);
        let constant = $value.clone().into_const_with(|name| {
            let value = $planner.variable(name.as_str(), &absent)?;
            serde_json::from_value(value).map_err(|error| error.to_string())
        })?;
        let json = constant.into_json().map_err(|error| error.to_string())?;
        (!(absent.get() && json.is_null())).then_some(json)
    }};
}

struct Planner<'a> {
    schema: &'a Schema,
    document: &'a ExecutableDocument,
    variables: Map<String, Value>,
    declared: Vec<String>,
    used: RefCell<HashSet<String>>,
}

impl Planner<'_> {
    /// Adds the fields of a selection set on type `ty`. Fragments are flattened, equal keys merged.
    fn collect(
        &self,
        ty: &str,
        set: &SelectionSet,
        type_condition: Option<&str>,
        into: &mut Vec<SelectedField>,
    ) -> Result<(), String> {
        for selection in &set.items {
            if self.skipped(selection.node.directives())? {
                continue;
            }
            match &selection.node {
                Selection::Field(field) => {
                    let field = self.field(ty, &field.node, type_condition)?;
                    merge(into, field);
                }
                Selection::InlineFragment(fragment) => {
                    let on = fragment.node.type_condition.as_ref();
                    let on = on.map_or(ty, |condition| condition.node.on.node.as_str());
                    self.fragment(
                        ty,
                        on,
                        &fragment.node.selection_set.node,
                        type_condition,
                        into,
                    )?;
                }
                Selection::FragmentSpread(spread) => {
                    let name = spread.node.fragment_name.node.as_str();
                    let fragment = &self
                        .document
                        .fragments
                        .get(name)
                        .ok_or_else(|| format!("Unknown fragment \"{name}\"."))?
                        .node;
                    let on = fragment.type_condition.node.on.node.as_str();
                    self.fragment(ty, on, &fragment.selection_set.node, type_condition, into)?;
                }
            }
        }
        Ok(())
    }

    fn fragment(
        &self,
        ty: &str,
        on: &str,
        set: &SelectionSet,
        type_condition: Option<&str>,
        into: &mut Vec<SelectedField>,
    ) -> Result<(), String> {
        match (self.schema.get(on), self.schema.get(ty)) {
            (None, _) => Err(format!("Unknown type \"{on}\".")),
            (Some(_), _) if on == ty => self.collect(ty, set, type_condition, into),
            (Some(_), Some(TypeDefinition::Interface(_))) => self.collect(on, set, Some(on), into),
            _ => Err(format!(
                "Fragment cannot be spread here as objects of type \"{ty}\" can never be of type \"{on}\"."
            )),
        }
    }

    fn field(
        &self,
        ty: &str,
        field: &Field,
        type_condition: Option<&str>,
    ) -> Result<SelectedField, String> {
        let name = field.name.node.to_string();
        let key = field.response_key().node.to_string();
        let mut selected = SelectedField {
            response_key: key,
            name,
            args: Map::new(),
            return_type: "String".into(),
            nullable: false,
            type_condition: type_condition.map(str::to_owned),
            fields: Vec::new(),
        };
        if selected.name == "__typename" {
            return Ok(selected);
        }
        let name = &selected.name;
        let known = self
            .schema
            .field(ty, name)
            .ok_or_else(|| format!("Cannot query field \"{name}\" on type \"{ty}\"."))?;
        for (arg, value) in &field.arguments {
            let arg = arg.node.as_str();
            let arg_ty = known
                .args
                .get(arg)
                .ok_or_else(|| format!("Unknown argument \"{arg}\" on field \"{ty}.{name}\"."))?;
            if let Some(value) = literal!(self, value.node) {
                let value = self.schema.coerce(arg_ty, &value)?;
                selected.args.insert(arg.to_owned(), value);
            }
        }
        let missing = known
            .args
            .iter()
            .find(|(arg, ty)| !ty.nullable && !selected.args.contains_key(*arg));
        if let Some((arg, arg_ty)) = missing {
            return Err(format!(
                "Field \"{name}\" argument \"{arg}\" of type \"{arg_ty}\" is required, but it was not provided."
            ));
        }
        selected.return_type = named_type(&known.ty).to_owned();
        selected.nullable = known.ty.nullable;
        self.sub_selection(&known.ty.to_string(), field, &mut selected)?;
        Ok(selected)
    }

    fn sub_selection(
        &self,
        ty: &str,
        field: &Field,
        selected: &mut SelectedField,
    ) -> Result<(), String> {
        let name = &selected.name;
        let empty = field.selection_set.node.items.is_empty();
        match (self.schema.is_leaf(&selected.return_type), empty) {
            (true, true) => Ok(()),
            (true, false) => Err(format!(
                "Field \"{name}\" must not have a selection since type \"{ty}\" has no subfields."
            )),
            (false, true) => Err(format!(
                "Field \"{name}\" of type \"{ty}\" must have a selection of subfields. Did you mean \"{name} {{ ... }}\"?"
            )),
            (false, false) => {
                let returns = selected.return_type.clone();
                self.collect(
                    &returns,
                    &field.selection_set.node,
                    None,
                    &mut selected.fields,
                )
            }
        }
    }

    fn variable(&self, name: &str, absent: &Cell<bool>) -> Result<Value, String> {
        if !self.declared.iter().any(|known| known == name) {
            return Err(format!("Variable \"${name}\" is not defined."));
        }
        self.used.borrow_mut().insert(name.to_owned());
        Ok(self.variables.get(name).cloned().unwrap_or_else(|| {
            absent.set(true);
            Value::Null
        }))
    }

    fn skipped(&self, directives: &[Positioned<Directive>]) -> Result<bool, String> {
        for directive in directives {
            let condition = match directive.node.get_argument("if") {
                Some(value) => literal!(self, value.node) == Some(Value::Bool(true)),
                None => return Err("Directive argument \"if\" is required.".into()),
            };
            match directive.node.name.node.as_str() {
                "skip" if condition => return Ok(true),
                "include" if !condition => return Ok(true),
                "skip" | "include" => {}
                other => return Err(format!("Unknown directive \"@{other}\".")),
            }
        }
        Ok(false)
    }
}

fn merge(into: &mut Vec<SelectedField>, field: SelectedField) {
    let same_key = into.iter_mut().find(|known| {
        known.response_key == field.response_key && known.type_condition == field.type_condition
    });
    match same_key {
        Some(same_key) => {
            for inner in field.fields {
                merge(&mut same_key.fields, inner);
            }
        }
        None => into.push(field),
    }
}
