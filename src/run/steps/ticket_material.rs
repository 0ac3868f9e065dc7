//! Fetches what people wrote on the ticket, and its attachments. Without them the run continues.

use crate::context::{RunContext, SavedAttachment, TicketMaterial};
use crate::orchestrator_client::OrchestratorClient;
use crate::scratch::Scratch;
use domain::ticket_context::{
    ContextAttachment, LeftOutAttachment, MAX_ATTACHMENTS, TicketContext, content_kind,
};

/// Reads the context of the dispatch, else fetches it from the service. Must be called before repository code runs.
pub(super) async fn fetch(run: &mut RunContext) {
    let mut context = match &run.dispatch.config.options.context {
        Some(context) => TicketContext::clone(context),
        None => match run.connections.orchestrator.fetch_ticket_context().await {
            Ok(context) => context,
            Err(error) => {
                run.reporting.log(&format!(
                    "Continuing without comments and attachments of the ticket: {error}"
                ));
                TicketContext::default()
            }
        },
    };
    let mut attachments = Vec::new();
    let offered = std::mem::take(&mut context.attachments);
    for (number, attachment) in (1..).zip(offered) {
        let saved = match number <= MAX_ATTACHMENTS {
            true => save(run, number, &attachment).await,
            false => Err(format!("a run gets {MAX_ATTACHMENTS} attachments")),
        };
        match saved {
            Ok(saved) => attachments.push(saved),
            Err(reason) => {
                run.reporting
                    .log(&format!("Left out an attachment of the ticket: {reason}"));
                context.left_out_attachments.push(LeftOutAttachment {
                    title: attachment.title,
                    reason,
                });
            }
        }
    }
    run.ticket = TicketMaterial {
        context,
        attachments,
        ..TicketMaterial::default()
    };
}

/// Fetches an attachment into the scratch folder.
///
/// # Errors
/// The reason why the run does not get it.
async fn save(
    run: &RunContext,
    number: usize,
    attachment: &ContextAttachment,
) -> Result<SavedAttachment, String> {
    let content = download(&run.connections.orchestrator, &attachment.id).await?;
    let kind = content_kind(&content);
    let kind = kind.ok_or("it is neither an image, a PDF nor text")?;
    let path = Scratch::open(&run.workspace.folders)
        .and_then(|scratch| scratch.write_attachment(number, &attachment.title, kind, &content))
        .map_err(|error| format!("it cannot be written: {error}"))?;
    Ok(SavedAttachment {
        title: attachment.title.clone(),
        path,
    })
}

async fn download(orchestrator: &OrchestratorClient, id: &str) -> Result<Vec<u8>, String> {
    match orchestrator.fetch_attachment(id).await {
        Some(Ok(content)) => Ok(content),
        Some(Err(error)) => Err(format!("it cannot be fetched: {error}")),
        None => Err("this run cannot reach the service".to_owned()),
    }
}
