//! Select fields of Jira that the service needs: created if the account may do that, else described.

use anyhow::{Context, bail};

use domain::ids::Repo;
use domain::issue::System;
use engine::app::App;
use vendors::ticketing::{Jira, SelectField, SelectFieldGap, TicketingClient};

use super::candidate::Candidate;
use super::questions::Questions;

/// Makes sure that the fields for the stage and the repository exist, with the options that they need.
pub(super) async fn ensure(
    candidate: &Candidate,
    questions: &Questions,
    repo: &Repo,
) -> anyhow::Result<()> {
    let app = candidate.app().await?;
    let jira = client(&app)?;
    let fields = SelectField::required(&repo.name);
    let mut gaps = gaps(jira, &fields).await?;
    if gaps.is_empty() {
        println!("Jira has the fields that the service needs.");
        return Ok(());
    }
    let offers: Vec<String> = gaps.iter().map(|(field, gap)| offer(field, gap)).collect();
    if questions.confirm(&format!("Jira lacks {}. Create it?", offers.join(", and ")))? {
        gaps = fill(jira, gaps).await?;
    }
    while !gaps.is_empty() {
        let instructions: Vec<String> = gaps
            .iter()
            .map(|(field, gap)| instruction(field, gap))
            .collect();
        let instructions = instructions.join("\n");
        if !questions.can_ask() {
            bail!("{instructions}");
        }
        println!("{instructions}");
        questions
            .confirm("Is it done? Then it is checked again.")?
            .then_some(())
            .context("stopped; run the command again when the fields exist")?;
        gaps = self::gaps(jira, &fields).await?;
    }
    Ok(())
}

/// Field with what it lacks.
type Gap<'f> = (&'f SelectField, SelectFieldGap);

async fn gaps<'f>(jira: &Jira, fields: &'f [SelectField]) -> anyhow::Result<Vec<Gap<'f>>> {
    let mut found = Vec::new();
    for field in fields {
        found.extend(jira.select_field_gap(field).await?.map(|gap| (field, gap)));
    }
    Ok(found)
}

/// Creates what is lacking. Returns what this account may not create.
async fn fill<'f>(jira: &Jira, gaps: Vec<Gap<'f>>) -> anyhow::Result<Vec<Gap<'f>>> {
    let mut refused = Vec::new();
    for (field, gap) in gaps {
        match jira.fill_select_field_gap(field, &gap).await {
            Ok(()) => println!("{}", done(field, &gap)),
            Err(error) if matches!(error.status(), Some(401 | 403 | 404)) => {
                refused.push((field, gap))
            }
            Err(error) => return Err(error.into()),
        }
    }
    if !refused.is_empty() {
        println!("Jira does not allow it to this account, which is not an administrator.");
    }
    Ok(refused)
}

fn client(app: &App) -> anyhow::Result<&Jira> {
    match app.vendors.account(System::Jira) {
        Some(TicketingClient::Jira(jira)) => Ok(jira),
        _ => bail!("Jira is not configured"),
    }
}

fn offer(field: &SelectField, gap: &SelectFieldGap) -> String {
    match gap {
        SelectFieldGap::Field => format!(
            "the select field {} (options {})",
            field.name,
            field.options.join(", ")
        ),
        SelectFieldGap::Options(missing) => {
            format!(
                "options of the field {} ({})",
                field.name,
                missing.join(", ")
            )
        }
    }
}

fn done(field: &SelectField, gap: &SelectFieldGap) -> String {
    match gap {
        SelectFieldGap::Field => format!(
            "Created the Jira field {} and added it to the default screen. Projects with screens of their own need it \
             there, too.",
            field.name
        ),
        SelectFieldGap::Options(missing) => {
            format!(
                "Added to the Jira field {}: {}.",
                field.name,
                missing.join(", ")
            )
        }
    }
}

/// What an administrator of Jira must do.
fn instruction(field: &SelectField, gap: &SelectFieldGap) -> String {
    let name = field.name;
    match gap {
        SelectFieldGap::Field => format!(
            "An administrator of Jira must create the field {name}: Settings, Work items, Fields, Create new field, type \
             \"Select list (single choice)\", with the options {}. Then add it to the screens of the project.",
            field.options.join(", ")
        ),
        SelectFieldGap::Options(missing) => format!(
            "An administrator of Jira must add options to the field {name} in every context that the project uses: \
             Settings, Work items, Fields, {name}, Contexts, Edit options: {}.",
            missing.join(", ")
        ),
    }
}
