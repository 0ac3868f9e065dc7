//! GraphQL mutations.
//!
//! Each mutation validates its input before the first change, so an error leaves no partial change.
//! Exception: `issueCreate` adds the issue first.

use serde_json::{Map, Value, json};

use super::model::{Attachment, Model};
use super::resolvers::Node;
use crate::author::FakeAuthor;
use crate::clock;
use crate::graphql::{FieldError, Resolved};

type Args = Map<String, Value>;
type MutationResult = Result<Node, FieldError>;

/// Returns an error of the caller, with a message for people.
pub(crate) fn invalid_input(message: &str, presentable: &str) -> FieldError {
    FieldError {
        message: message.to_owned(),
        extensions: json!({
            "type": "invalid input",
            "code": "INVALID_INPUT",
            "userError": true,
            "userPresentableMessage": presentable,
        }),
    }
}

pub(crate) fn not_found(entity: &str) -> FieldError {
    FieldError {
        message: format!("Entity not found: {entity}"),
        extensions: json!({
            "type": "invalid input",
            "code": "INPUT_ERROR",
            "statusCode": 400,
            "userError": true,
            "userPresentableMessage": format!("Could not find referenced {entity}."),
        }),
    }
}

pub(crate) fn mutate(
    model: &mut Model,
    name: &str,
    args: &Args,
) -> Result<Resolved<Node>, FieldError> {
    let empty = Args::new();
    let input = args
        .get("input")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let id = text(args, "id").unwrap_or_default();
    let node = match name {
        "issueAddLabel" => set_label(model, id, args, true)?,
        "issueRemoveLabel" => set_label(model, id, args, false)?,
        "issueUpdate" => update_issue(model, id, input)?,
        "issueCreate" => create_issue(model, input)?,
        "issueLabelCreate" => create_label(model, input)?,
        "commentCreate" => create_comment(model, input)?,
        "commentUpdate" => update_comment(model, id, input)?,
        "commentDelete" => delete_comment(model, id)?,
        "attachmentCreate" => create_attachment(model, input)?,
        "issueRelationCreate" => create_relation(model, input)?,
        other => return Err(not_found(other)),
    };
    Ok(Resolved::Node(node))
}

fn text<'a>(args: &'a Args, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

fn payload_node(name: &'static str, node: Node) -> Node {
    Node::Payload(name, Some(Box::new(node)))
}

fn find_issue(model: &Model, id: &str) -> Result<usize, FieldError> {
    model.find_issue(id).ok_or_else(|| not_found("Issue"))
}

/// Finds a label by ID and checks that the issue can have it.
fn find_label(model: &Model, issue: usize, id: &str) -> Result<usize, FieldError> {
    let at = model.labels.iter().position(|label| label.id == id);
    let at = at.ok_or_else(|| not_found("IssueLabel"))?;
    let team = model.labels[at].team;
    if team.is_some_and(|team| team != model.issues[issue].team) {
        return Err(invalid_input(
            "LabelIds for incorrect team",
            "The label is not associated with the same team as the issue.",
        ));
    }
    Ok(at)
}

fn set_label(model: &mut Model, id: &str, args: &Args, added: bool) -> MutationResult {
    let issue = find_issue(model, id)?;
    let label = find_label(model, issue, text(args, "labelId").unwrap_or_default())?;
    model.set_label(issue, label, added, &FakeAuthor::Service);
    Ok(payload_node("IssuePayload", Node::Issue(issue)))
}

fn find_labels(
    model: &Model,
    issue: usize,
    input: &Args,
    key: &str,
) -> Result<Vec<usize>, FieldError> {
    let ids = input.get(key).and_then(Value::as_array);
    ids.into_iter()
        .flatten()
        .map(|id| find_label(model, issue, id.as_str().unwrap_or_default()))
        .collect()
}

fn update_issue(model: &mut Model, id: &str, input: &Args) -> MutationResult {
    let at = find_issue(model, id)?;
    let state = match text(input, "stateId") {
        Some(id) => Some(find_state_of_team(model, model.issues[at].team, id)?),
        None => None,
    };
    let mut added = find_labels(model, at, input, "addedLabelIds")?;
    let mut removed = find_labels(model, at, input, "removedLabelIds")?;
    if input.get("labelIds").is_some_and(Value::is_array) {
        let wanted = find_labels(model, at, input, "labelIds")?;
        let present = model.issues[at].labels.iter();
        removed.extend(present.filter(|label| !wanted.contains(label)));
        added.extend(wanted);
    }
    if let Some(parent) = text(input, "parentId") {
        model.issues[at].parent = Some(find_issue(model, parent)?);
    }
    let issue_row = &mut model.issues[at];
    if let Some(title) = text(input, "title") {
        issue_row.title = title.to_owned();
    }
    if let Some(description) = text(input, "description") {
        issue_row.description = Some(description.to_owned());
    }
    if let Some(priority) = input.get("priority").and_then(Value::as_u64) {
        issue_row.priority = u8::try_from(priority).unwrap_or(0);
    }
    issue_row.updated_at = clock::now_ms();
    for label in added {
        model.set_label(at, label, true, &FakeAuthor::Service);
    }
    for label in removed {
        model.set_label(at, label, false, &FakeAuthor::Service);
    }
    if let Some(state) = state {
        model.set_state(at, state);
    }
    Ok(payload_node("IssuePayload", Node::Issue(at)))
}

fn find_state_of_team(model: &Model, team: usize, id: &str) -> Result<usize, FieldError> {
    let at = model.states.iter().position(|state| state.id == id);
    let at = at.ok_or_else(|| not_found("WorkflowState"))?;
    if model.states[at].team != team {
        return Err(invalid_input(
            "Discrepancy between issue team and state team",
            "The workflow state belongs to another team.",
        ));
    }
    Ok(at)
}

fn create_issue(model: &mut Model, input: &Args) -> MutationResult {
    let team = text(input, "teamId").unwrap_or_default();
    let team = find_team(model, team).ok_or_else(|| not_found("Team"))?;
    let at = model.add_issue(team, None, text(input, "title").unwrap_or("Untitled"));
    if let Some(id) = text(input, "id") {
        model.issues[at].id = id.to_owned();
    }
    let id = model.issues[at].id.clone();
    update_issue(model, &id, input)
}

pub(crate) fn find_team(model: &Model, id: &str) -> Option<usize> {
    model
        .teams
        .iter()
        .position(|team| team.id == id || team.key == id)
}

fn create_label(model: &mut Model, input: &Args) -> MutationResult {
    let name = text(input, "name").unwrap_or_default();
    let team = match text(input, "teamId") {
        Some(id) => Some(find_team(model, id).ok_or_else(|| not_found("Team"))?),
        None => None,
    };
    let is_duplicate =
        |label: &super::model::Label| label.team == team && label.name.eq_ignore_ascii_case(name);
    if model.labels.iter().any(is_duplicate) {
        return Err(invalid_input(
            "duplicate label name",
            "A label with this name already exists.",
        ));
    }
    let at = model.add_label(team, name);
    let label = &mut model.labels[at];
    if let Some(id) = text(input, "id") {
        label.id = id.to_owned();
    }
    if let Some(color) = text(input, "color") {
        label.color = color.to_owned();
    }
    label.description = text(input, "description").map(str::to_owned);
    Ok(payload_node("IssueLabelPayload", Node::Label(at)))
}

fn create_comment(model: &mut Model, input: &Args) -> MutationResult {
    let issue = find_issue(model, text(input, "issueId").unwrap_or_default())?;
    let body = text(input, "body").unwrap_or_default();
    let id = match text(input, "id") {
        Some(id) if !is_uuid(id) => {
            return Err(invalid_input(
                "Argument Validation Error",
                "id must be a UUID.",
            ));
        }
        Some(id) if model.comments.iter().any(|comment| comment.id == id) => {
            return Err(invalid_input(
                &format!("Entity already exists: Comment with id {id}"),
                "An entity with this id already exists.",
            ));
        }
        Some(id) => id.to_owned(),
        None => clock::uuid(),
    };
    let at = model.add_comment(id, issue, body, &FakeAuthor::Service);
    Ok(payload_node("CommentPayload", Node::Comment(at)))
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn find_comment(model: &Model, id: &str) -> Result<usize, FieldError> {
    model.find_comment(id).ok_or_else(|| not_found("Comment"))
}

fn update_comment(model: &mut Model, id: &str, input: &Args) -> MutationResult {
    let at = find_comment(model, id)?;
    if let Some(body) = text(input, "body") {
        model.edit_comment(at, body);
    }
    Ok(payload_node("CommentPayload", Node::Comment(at)))
}

fn delete_comment(model: &mut Model, id: &str) -> MutationResult {
    let at = find_comment(model, id)?;
    model.delete_comment(at);
    Ok(payload_node("DeletePayload", Node::Comment(at)))
}

/// Creates an attachment. The URL is the idempotency key: an existing one is updated.
fn create_attachment(model: &mut Model, input: &Args) -> MutationResult {
    let issue = find_issue(model, text(input, "issueId").unwrap_or_default())?;
    let url = text(input, "url").unwrap_or_default().to_owned();
    let now = clock::now_ms();
    let existing = model
        .attachments
        .iter()
        .position(|attachment| attachment.issue == issue && attachment.url == url);
    let at = existing.unwrap_or_else(|| {
        model.attachments.push(Attachment {
            id: text(input, "id").map_or_else(clock::uuid, str::to_owned),
            issue,
            title: String::new(),
            subtitle: None,
            url,
            metadata: json!({}),
            created_at: now,
            updated_at: now,
        });
        model.attachments.len() - 1
    });
    let attachment = &mut model.attachments[at];
    attachment.title = text(input, "title").unwrap_or_default().to_owned();
    attachment.subtitle = text(input, "subtitle").map(str::to_owned);
    attachment.updated_at = now;
    if let Some(metadata) = input.get("metadata") {
        attachment.metadata = metadata.clone();
    }
    Ok(payload_node("AttachmentPayload", Node::Attachment(at)))
}

fn create_relation(model: &mut Model, input: &Args) -> MutationResult {
    let from = find_issue(model, text(input, "issueId").unwrap_or_default())?;
    let to = find_issue(model, text(input, "relatedIssueId").unwrap_or_default())?;
    let at = model.add_relation(from, text(input, "type").unwrap_or("related"), to);
    Ok(payload_node("IssueRelationPayload", Node::Relation(at)))
}
