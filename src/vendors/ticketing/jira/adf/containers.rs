//! Nesting of blocks: which node contains which. A list or quote that its container must not contain is
//! flattened: its texts become paragraphs of the container.

use serde_json::{Value, json};

use super::{node, paragraph};
use domain::sanitize::strip_invisible;

/// Maximum nesting depth of lists. Deeper lists are flattened.
const MAX_DEPTH: usize = 5;

/// Kind of a node that contains blocks.
#[derive(PartialEq, Eq)]
pub(super) enum ContainerKind {
    Document,
    /// Collapsible section with its title.
    Expand(String),
    /// List with the number of its next item. `None` in a bullet list.
    List(Option<u64>),
    Item,
    Quote,
}

struct Container {
    kind: ContainerKind,
    is_flattened: bool,
    content: Vec<Value>,
}

/// Open containers at a position of the text. Only the innermost of them are flattened.
pub(super) struct Containers {
    open: Vec<Container>,
    /// Number of containers that are not flattened.
    nodes: usize,
    /// Marker of the flattened item whose text begins next.
    marker: Option<String>,
}

impl Containers {
    pub(super) fn new() -> Self {
        let mut containers = Self {
            open: Vec::new(),
            nodes: 0,
            marker: None,
        };
        containers.open(ContainerKind::Document);
        containers
    }

    /// Closes all containers and returns the content of the document.
    pub(super) fn finish(mut self) -> Vec<Value> {
        while self.open.len() > 1 {
            self.close();
        }
        let document = self.open.pop();
        document.map_or_else(Vec::new, |document| document.content)
    }

    /// Appends a block to the innermost node.
    pub(super) fn push(&mut self, block: Value) {
        if let Some(innermost) = self.open[..self.nodes].last_mut() {
            innermost.content.push(block);
        }
    }

    /// Returns the kind of the innermost node.
    fn kind(&self) -> &ContainerKind {
        let innermost = self.open[..self.nodes].last();
        innermost.map_or(&ContainerKind::Document, |innermost| &innermost.kind)
    }

    /// Returns whether the next block is in no list and no quote.
    pub(super) fn is_top_level(&self) -> bool {
        matches!(
            self.kind(),
            ContainerKind::Document | ContainerKind::Expand(_)
        )
    }

    /// Returns whether only paragraphs are permitted, because older renderers support nothing else in a
    /// quote.
    pub(super) fn is_in_quote(&self) -> bool {
        *self.kind() == ContainerKind::Quote
    }

    /// Returns whether a new container of this kind is flattened.
    pub(super) fn flattens(&self, kind: &ContainerKind) -> bool {
        let is_list = |open: &&Container| matches!(open.kind, ContainerKind::List(_));
        self.nodes < self.open.len()
            || match kind {
                ContainerKind::Quote => !self.is_top_level(),
                ContainerKind::List(_) => {
                    self.is_in_quote() || self.open.iter().filter(is_list).count() == MAX_DEPTH
                }
                _ => false,
            }
    }

    pub(super) fn open(&mut self, kind: ContainerKind) {
        let is_flattened = self.flattens(&kind);
        if !is_flattened {
            self.nodes += 1;
        } else if kind == ContainerKind::Item {
            self.marker = Some(self.next_marker());
        }
        self.open.push(Container {
            kind,
            is_flattened,
            content: Vec::new(),
        });
    }

    /// Returns the marker of the next item of the innermost list.
    fn next_marker(&mut self) -> String {
        match self.open.last_mut().map(|list| &mut list.kind) {
            Some(ContainerKind::List(Some(number))) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        }
    }

    /// Returns the marker with which the text of a flattened item begins, once.
    pub(super) fn take_marker(&mut self) -> Option<String> {
        self.marker.take()
    }

    /// Returns whether text continues, as a new line, after the innermost container.
    pub(super) fn continues_text(&self) -> bool {
        self.nodes + 1 < self.open.len()
    }

    /// Closes the innermost container.
    pub(super) fn close(&mut self) {
        self.marker = None;
        let Some(closed) = self.open.pop() else {
            return;
        };
        if !closed.is_flattened {
            self.nodes -= 1;
            if let Some(block) = closed.into_node() {
                self.push(block);
            }
        }
    }

    /// Opens a collapsible section if this paragraph is the title of one (`+++ Title`), or closes it if the
    /// paragraph is its end (`+++`). Returns whether it is either.
    pub(super) fn apply_fold(&mut self, text: &str) -> bool {
        let Some(title) = text.trim_end().strip_prefix("+++") else {
            return false;
        };
        match self.kind() {
            ContainerKind::Document if title.starts_with(' ') && !title.contains('\n') => {
                self.open(ContainerKind::Expand(
                    strip_invisible(title.trim()).into_owned(),
                ));
                true
            }
            ContainerKind::Expand(_) if title.is_empty() => {
                self.close();
                true
            }
            _ => false,
        }
    }
}

impl Container {
    /// Returns the node, unless it would be empty.
    fn into_node(self) -> Option<Value> {
        let Self {
            kind, mut content, ..
        } = self;
        let first = content.first().and_then(|first| first["type"].as_str());
        match &kind {
            ContainerKind::Expand(_) if first.is_none() => content.push(paragraph(Vec::new())),
            ContainerKind::Item if !matches!(first, Some("paragraph" | "codeBlock")) => {
                content.insert(0, paragraph(Vec::new()));
            }
            _ if first.is_none() => return None,
            _ => {}
        }
        let (name, attrs) = match kind {
            ContainerKind::Document => ("doc", Value::Null),
            ContainerKind::Expand(title) => ("expand", json!({"title": title})),
            ContainerKind::List(Some(first)) => ("orderedList", json!({"order": first})),
            ContainerKind::List(None) => ("bulletList", Value::Null),
            ContainerKind::Item => ("listItem", Value::Null),
            ContainerKind::Quote => ("blockquote", Value::Null),
        };
        let mut node = node(name, content);
        if !attrs.is_null() {
            node["attrs"] = attrs;
        }
        Some(node)
    }
}
