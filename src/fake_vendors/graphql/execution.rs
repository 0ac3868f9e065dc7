//! Execution of a query plan with a vendor's resolver.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value, json};

use super::plan::{QueryPlan, SelectedField};

/// Maximum page size of a connection.
const PAGE_MAX: i64 = 250;

/// Value of a field.
pub(crate) enum Resolved<N> {
    Leaf(Value),
    Node(N),
    Nodes(Vec<N>),
    /// All nodes of the connection, before paging.
    Connection(Vec<N>),
    Null,
}

/// Error of one field. The field becomes null, or the nearest object around it that is nullable.
#[derive(Debug)]
pub(crate) struct FieldError {
    pub message: String,
    pub extensions: Value,
}

/// Vendor's model, resolved field by field.
pub(crate) trait Resolver {
    type Node: Clone;
    fn root(&self) -> Self::Node;
    fn type_name(&self, node: &Self::Node) -> &'static str;
    fn resolve_field(
        &mut self,
        node: &Self::Node,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Self::Node>, FieldError>;
    /// Returns a node's position in a connection: the time in the field `by`, then the row.
    fn sort_key(&self, node: &Self::Node, by: &str) -> (i64, i64);
    /// Returns the vendor's error for a page size beyond the maximum.
    fn page_size_error(&self, max: i64) -> FieldError;
}

/// Response: the data, null if a field that is not nullable failed, and the errors.
pub(crate) struct Execution {
    pub data: Value,
    pub errors: Vec<(Vec<Value>, FieldError)>,
}

pub(crate) fn execute<G: Resolver>(graph: &mut G, plan: &QueryPlan) -> Execution {
    let root = graph.root();
    let mut executor = Executor {
        graph,
        path: Vec::new(),
        errors: Vec::new(),
    };
    let data = executor.object(&root, &plan.fields);
    Execution {
        data: data.unwrap_or_default(),
        errors: executor.errors,
    }
}

/// A field failed, and its error is recorded.
struct Failed;

struct Executor<'g, G> {
    graph: &'g mut G,
    path: Vec<Value>,
    errors: Vec<(Vec<Value>, FieldError)>,
}

impl<G: Resolver> Executor<'_, G> {
    fn object(&mut self, node: &G::Node, fields: &[SelectedField]) -> Result<Value, Failed> {
        let mut out = Map::new();
        let ty = self.graph.type_name(node);
        for field in fields {
            if field
                .type_condition
                .as_deref()
                .is_some_and(|only| only != ty)
            {
                continue;
            }
            self.path.push(json!(field.response_key));
            let value = self.field(node, field);
            self.path.pop();
            let value = match value {
                Err(Failed) if field.nullable => Value::Null,
                value => value?,
            };
            out.insert(field.response_key.clone(), value);
        }
        Ok(Value::Object(out))
    }

    fn fail(&mut self, error: FieldError) -> Failed {
        self.errors.push((self.path.clone(), error));
        Failed
    }

    fn field(&mut self, node: &G::Node, field: &SelectedField) -> Result<Value, Failed> {
        if field.name == "__typename" {
            return Ok(json!(self.graph.type_name(node)));
        }
        let resolved = self.graph.resolve_field(node, &field.name, &field.args);
        match resolved.map_err(|error| self.fail(error))? {
            Resolved::Leaf(value) => Ok(value),
            Resolved::Null => Ok(Value::Null),
            Resolved::Node(child) => self.object(&child, &field.fields),
            Resolved::Nodes(children) => self.list(&children, &field.fields),
            Resolved::Connection(all) => self.connection(all, field),
        }
    }

    fn list(&mut self, nodes: &[G::Node], fields: &[SelectedField]) -> Result<Value, Failed> {
        let objects = nodes.iter().map(|node| self.object(node, fields));
        objects.collect::<Result<_, _>>().map(Value::Array)
    }

    fn connection(
        &mut self,
        mut all: Vec<G::Node>,
        field: &SelectedField,
    ) -> Result<Value, Failed> {
        let by = field
            .args
            .get("orderBy")
            .and_then(Value::as_str)
            .unwrap_or("createdAt")
            .to_owned();
        all.sort_by_key(|node| std::cmp::Reverse(self.graph.sort_key(node, &by)));
        let page = Page::slice(self.graph, &all, field, &by);
        let page = page.map_err(|error| self.fail(error))?;
        let mut out = Map::new();
        for part in &field.fields {
            let value = match part.name.as_str() {
                "nodes" => self.list(page.nodes, &part.fields)?,
                "edges" => {
                    let edges = page.nodes.iter().map(|node| self.edge(node, part, &by));
                    edges.collect::<Result<_, _>>()?
                }
                "pageInfo" => page.page_info(self.graph, part, &by),
                "totalCount" => json!(all.len()),
                _ => json!(field.return_type),
            };
            out.insert(part.response_key.clone(), value);
        }
        Ok(Value::Object(out))
    }

    fn edge(&mut self, node: &G::Node, edge: &SelectedField, by: &str) -> Result<Value, Failed> {
        let mut out = Map::new();
        for part in &edge.fields {
            let value = match part.name.as_str() {
                "node" => self.object(node, &part.fields)?,
                "cursor" => json!(cursor(self.graph, node, by)),
                _ => json!(edge.return_type),
            };
            out.insert(part.response_key.clone(), value);
        }
        Ok(Value::Object(out))
    }
}

struct Page<'a, N> {
    nodes: &'a [N],
    has_next: bool,
    has_previous: bool,
}

impl<'a, N: Clone> Page<'a, N> {
    fn slice<G: Resolver<Node = N>>(
        graph: &G,
        all: &'a [N],
        field: &SelectedField,
        by: &str,
    ) -> Result<Self, FieldError> {
        let number = |name: &str| field.args.get(name).and_then(Value::as_i64);
        let first = number("first");
        let last = number("last");
        if first.max(last).is_some_and(|size| size > PAGE_MAX) {
            return Err(graph.page_size_error(PAGE_MAX));
        }
        let cursor_position = |name: &str| {
            let text = field.args.get(name).and_then(Value::as_str)?;
            parse_cursor(text)
        };
        // A cursor is a position in the order, not a row. Rows that leave the filter between two pages
        // therefore do not repeat or hide other rows.
        let start = cursor_position("after").map_or(0, |at| {
            all.partition_point(|node| graph.sort_key(node, by) >= at)
        });
        let end = cursor_position("before").map_or(all.len(), |at| {
            all.partition_point(|node| graph.sort_key(node, by) > at)
        });
        let window = &all[start.min(end)..end];
        let nodes = match (first, last) {
            (None, Some(last)) => &window[window.len() - clamp(last, window.len())..],
            (size, _) => &window[..clamp(size.unwrap_or(50), window.len())],
        };
        let backwards = first.is_none() && last.is_some();
        let is_truncated = nodes.len() < window.len();
        Ok(Self {
            nodes,
            has_next: if backwards {
                end < all.len()
            } else {
                is_truncated
            },
            has_previous: if backwards { is_truncated } else { start > 0 },
        })
    }

    fn page_info<G: Resolver<Node = N>>(&self, graph: &G, part: &SelectedField, by: &str) -> Value {
        let mut out = Map::new();
        for field in &part.fields {
            let value = match field.name.as_str() {
                "hasNextPage" => json!(self.has_next),
                "hasPreviousPage" => json!(self.has_previous),
                "startCursor" => json!(self.nodes.first().map(|node| cursor(graph, node, by))),
                "endCursor" => json!(self.nodes.last().map(|node| cursor(graph, node, by))),
                _ => json!("PageInfo"),
            };
            out.insert(field.response_key.clone(), value);
        }
        Value::Object(out)
    }
}

fn clamp(size: i64, len: usize) -> usize {
    usize::try_from(size).unwrap_or(0).min(len)
}

fn cursor<G: Resolver>(graph: &G, node: &G::Node, by: &str) -> String {
    let (time, row) = graph.sort_key(node, by);
    BASE64URL_NOPAD.encode(format!("{time}:{row}").as_bytes())
}

fn parse_cursor(cursor: &str) -> Option<(i64, i64)> {
    let text = String::from_utf8(BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?).ok()?;
    let (time, row) = text.split_once(':')?;
    Some((time.parse().ok()?, row.parse().ok()?))
}
