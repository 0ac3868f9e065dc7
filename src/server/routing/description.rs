//! Description of a route for the OpenAPI document.

use schemars::JsonSchema;
#[cfg(feature = "openapi-generator")]
use schemars::{Schema, SchemaGenerator};

/// Function that derives the schema of a type.
#[cfg(feature = "openapi-generator")]
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What the OpenAPI document says about a route. Without the generator of the document nothing is kept, so that no schema
/// is part of the program.
pub(crate) struct RouteDescription {
    /// Id of the operation; `None` if it is not described.
    #[cfg(feature = "openapi-generator")]
    pub operation: Option<&'static str>,
    /// Type of a successful response; `None` if the document describes it by hand.
    #[cfg(feature = "openapi-generator")]
    pub response: Option<SchemaOf>,
    /// Types that the description of the operation refers to.
    #[cfg(feature = "openapi-generator")]
    pub mentioned: Vec<SchemaOf>,
}

#[cfg(feature = "openapi-generator")]
impl RouteDescription {
    pub(super) fn of(operation: &'static str) -> Self {
        Self {
            operation: Some(operation),
            response: None,
            mentioned: Vec::new(),
        }
    }

    pub(super) fn set_response<T: JsonSchema>(&mut self) {
        self.response = Some(|generator| generator.subschema_for::<T>());
    }

    pub(super) fn mention<T: JsonSchema>(&mut self) {
        self.mentioned
            .push(|generator| generator.subschema_for::<T>());
    }

    pub(super) fn remove(&mut self) {
        self.operation = None;
    }
}

#[cfg(not(feature = "openapi-generator"))]
#[expect(clippy::unused_self, reason = "the generator keeps what is described")]
impl RouteDescription {
    pub(super) fn of(_: &'static str) -> Self {
        Self {}
    }

    pub(super) fn set_response<T: JsonSchema>(&mut self) {}

    pub(super) fn mention<T: JsonSchema>(&mut self) {}

    pub(super) fn remove(&mut self) {}
}
