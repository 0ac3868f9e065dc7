//! GraphQL schema parsed from its SDL, and coercion of input values.

use std::collections::HashMap;

use async_graphql_parser::types::{BaseType, Type, TypeKind, TypeSystemDefinition};
use serde_json::{Map, Value};

/// Type definitions by name.
pub(crate) struct Schema(HashMap<String, TypeDefinition>);

pub(crate) enum TypeDefinition {
    Object(HashMap<String, FieldDefinition>),
    /// Never the concrete type of a node. Fragments on concrete types may be spread in it.
    Interface(HashMap<String, FieldDefinition>),
    Input(HashMap<String, Type>),
    Enum(Vec<String>),
    Scalar,
}

pub(crate) struct FieldDefinition {
    pub args: HashMap<String, Type>,
    pub ty: Type,
}

impl Schema {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let document = async_graphql_parser::parse_schema(text)?;
        let mut types = HashMap::new();
        for definition in document.definitions {
            if let TypeSystemDefinition::Type(ty) = definition {
                types.insert(ty.node.name.node.to_string(), type_definition(ty.node.kind));
            }
        }
        Ok(Self(types))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TypeDefinition> {
        self.0.get(name)
    }

    pub(crate) fn field(&self, ty: &str, field: &str) -> Option<&FieldDefinition> {
        match self.0.get(ty)? {
            TypeDefinition::Object(fields) | TypeDefinition::Interface(fields) => fields.get(field),
            _ => None,
        }
    }

    pub(crate) fn is_leaf(&self, ty: &str) -> bool {
        matches!(
            self.0.get(ty),
            None | Some(TypeDefinition::Scalar | TypeDefinition::Enum(_))
        )
    }

    /// Coerces a value to an input type. The error has the wording of the vendors' GraphQL library.
    pub(crate) fn coerce(&self, ty: &Type, value: &Value) -> Result<Value, String> {
        if value.is_null() {
            return if ty.nullable {
                Ok(Value::Null)
            } else {
                Err(format!("Expected value of type \"{ty}\", found null."))
            };
        }
        match (&ty.base, value) {
            (BaseType::List(inner), Value::Array(items)) => items
                .iter()
                .map(|item| self.coerce(inner, item))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            (BaseType::List(inner), single) => Ok(Value::Array(vec![self.coerce(inner, single)?])),
            (BaseType::Named(name), value) => self.coerce_named(name, value),
        }
    }

    fn coerce_named(&self, name: &str, value: &Value) -> Result<Value, String> {
        let unrepresentable = || Err(format!("{name} cannot represent value: {value}"));
        match self.0.get(name) {
            Some(TypeDefinition::Input(fields)) => match value.as_object() {
                Some(object) => self.coerce_object(name, fields, object),
                None => Err(format!("Expected type \"{name}\" to be an object.")),
            },
            Some(TypeDefinition::Enum(values)) => match value.as_str() {
                Some(text) if values.iter().any(|known| known == text) => Ok(value.clone()),
                _ => Err(format!("Value {value} does not exist in \"{name}\" enum.")),
            },
            Some(_) => Ok(value.clone()),
            None => match (name, value) {
                ("String", Value::String(_))
                | ("ID", Value::String(_))
                | ("Boolean", Value::Bool(_))
                | ("Float", Value::Number(_)) => Ok(value.clone()),
                ("Int", Value::Number(number)) if number.is_i64() => Ok(value.clone()),
                ("ID", Value::Number(number)) => Ok(Value::String(number.to_string())),
                _ => unrepresentable(),
            },
        }
    }

    fn coerce_object(
        &self,
        name: &str,
        fields: &HashMap<String, Type>,
        object: &Map<String, Value>,
    ) -> Result<Value, String> {
        let mut out = Map::new();
        for (key, value) in object {
            let ty = fields
                .get(key)
                .ok_or_else(|| format!("Field \"{key}\" is not defined by type \"{name}\"."))?;
            out.insert(key.clone(), self.coerce(ty, value)?);
        }
        let missing = fields
            .iter()
            .find(|(key, ty)| !ty.nullable && !object.contains_key(*key));
        match missing {
            Some((key, ty)) => Err(format!(
                "Field \"{key}\" of required type \"{ty}\" was not provided."
            )),
            None => Ok(Value::Object(out)),
        }
    }
}

/// Returns the innermost named type of a list type.
pub(crate) fn named_type(ty: &Type) -> &str {
    match &ty.base {
        BaseType::Named(name) => name,
        BaseType::List(inner) => named_type(inner),
    }
}

fn type_definition(kind: TypeKind) -> TypeDefinition {
    match kind {
        TypeKind::Object(object) => TypeDefinition::Object(fields(object.fields)),
        TypeKind::Interface(interface) => TypeDefinition::Interface(fields(interface.fields)),
        TypeKind::InputObject(input) => TypeDefinition::Input(
            input
                .fields
                .into_iter()
                .map(|field| (field.node.name.node.to_string(), input_type(field.node)))
                .collect(),
        ),
        TypeKind::Enum(values) => TypeDefinition::Enum(
            values
                .values
                .iter()
                .map(|value| value.node.value.node.to_string())
                .collect(),
        ),
        // A union has no fields of its own.
        TypeKind::Union(_) => TypeDefinition::Interface(HashMap::new()),
        TypeKind::Scalar => TypeDefinition::Scalar,
    }
}

fn fields(
    fields: Vec<async_graphql_parser::Positioned<async_graphql_parser::types::FieldDefinition>>,
) -> HashMap<String, FieldDefinition> {
    fields
        .into_iter()
        .map(|field| {
            let field = field.node;
            let args = field
                .arguments
                .into_iter()
                .map(|arg| (arg.node.name.node.to_string(), input_type(arg.node)))
                .collect();
            let ty = field.ty.node;
            (field.name.node.to_string(), FieldDefinition { args, ty })
        })
        .collect()
}

/// Returns the type of an input value. A default makes it nullable.
fn input_type(input: async_graphql_parser::types::InputValueDefinition) -> Type {
    let nullable = input.ty.node.nullable || input.default_value.is_some();
    Type {
        nullable,
        ..input.ty.node
    }
}
