//! `handoff plan`, and the first lines of `handoff move`: what travels, what is rebuilt, what stays behind and
//! why, and what it costs.

use std::path::Path;

use anyhow::Result;
use handoff_agent::registry::{Record, find_sources};
use handoff_gateway::Policy as GatewayPolicy;
use handoff_protocol::session_dir::Standing;
use handoff_protocol::{ErrorCode, NanoUsd, Problem, SessionId, Tier, TierName, TransferId};
use handoff_snapshot::{Survey, survey};
use serde::Serialize;

use crate::cli::{Plan as Arguments, Source};
use crate::command::relocate::{MoveJournal, bytes, lies_below, new_id};
use crate::config::{Home, Settings};
use crate::output::Output;
use crate::refusal::refuse;

/// Lines about what looks like a credential, at the most.
const SECRETS_SHOWN: usize = 12;

/// What a move would do.
pub struct Plan {
    source: Record,
    session_id: SessionId,
    epoch: u64,
    survey: Survey,
    tier: Tier,
    budget: NanoUsd,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    source: &'a str,
    session_id: Option<SessionId>,
    survey: &'a Survey,
    tier: &'a str,
    price_per_hour_usd: NanoUsd,
    budget_usd: NanoUsd,
    hours: u64,
    /// What a move would be refused for.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<&'a Problem>,
}

/// Shows the plan and changes nothing.
pub async fn run(home: &Home, arguments: Arguments, output: Output) -> Result<()> {
    let plan = make(home, &arguments.source).await?;
    let blocked = plan.check_model(home).err();
    plan.show(output, blocked.as_ref());
    if let Some(problem) = blocked {
        output.progress(format_args!("  stands in the way: {}", problem.message));
        output.progress(format_args!("  → {}", problem.hint));
    }
    Ok(())
}

/// Finds the source and looks at what it has.
pub async fn make(home: &Home, wanted: &Source) -> Result<Plan> {
    let source = choose(home, wanted)?;
    let (session_id, epoch) = match &standing(&source)? {
        Standing::Holder { session_id, epoch } => (*session_id, *epoch),
        Standing::Frozen { transfer_id, .. } => {
            let message = format!("the session of '{}' stands still for {transfer_id}", source.name);
            return Err(busy(*transfer_id, message, "finish that move with `handoff move --resume`"));
        }
        Standing::Retired { transfer_id, .. } => {
            let message = format!("the session of '{}' was moved by {transfer_id}", source.name);
            let hint = format!("see where it is with `handoff status {transfer_id}`");
            return Err(busy(*transfer_id, message, &hint));
        }
    };
    let tier = tier(home, &wanted.tier)?;
    let survey = survey(&source.session_dir, Some(&source.workspace)).await?;
    Ok(Plan { source, session_id, epoch, survey, tier, budget: wanted.budget })
}

fn busy(transfer: TransferId, message: String, hint: &str) -> anyhow::Error {
    Problem::new(ErrorCode::SessionBusy, message, hint).of_transfer(transfer).into()
}

/// A tier of this machine's settings.
pub fn tier(home: &Home, name: &TierName) -> Result<Tier> {
    let policy = Settings::load(home)?.policy();
    if let Some(tier) = policy.tier(name) {
        return Ok(tier.clone());
    }
    let names: Vec<&str> = policy.tiers.iter().map(|tier| tier.name.as_str()).collect();
    let (message, hint) = (format!("there is no tier '{name}'"), format!("there are {}", names.join(", ")));
    Err(Problem::new(ErrorCode::TierUnknown, message, hint).into())
}

/// Whether the source may run, by its own file.
fn standing(source: &Record) -> Result<Standing> {
    let standing = handoff_agent::standing::read(&source.session_dir)?;
    let message = || format!("{} holds no session of a source", source.session_dir.display());
    standing.ok_or_else(|| refuse(ErrorCode::NotFound, message(), "start it with `handoff agent`"))
}

fn session_of(source: &Record) -> Option<SessionId> {
    match standing(source).ok()? {
        Standing::Holder { session_id, .. }
        | Standing::Frozen { session_id, .. }
        | Standing::Retired { session_id, .. } => Some(session_id),
    }
}

fn choose(home: &Home, wanted: &Source) -> Result<Record> {
    let mut running: Vec<Record> = find_sources(home.path())?
        .into_iter()
        .filter(|source| source.alive)
        .map(|source| source.record)
        .collect();
    let names = |sources: &[Record]| -> String {
        sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let all = names(&running);
    if let Some(named) = &wanted.agent {
        running.retain(|source| {
            source.name == *named
                || session_of(source).is_some_and(|session| session.to_string() == *named)
                || lies_below(&source.workspace, Path::new(named))
        });
    }
    match running.len() {
        0 if !all.is_empty() => {
            let named = wanted.agent.as_deref().unwrap_or_default();
            let message = format!("no agent '{named}' is running here");
            Err(refuse(ErrorCode::NotFound, message, format_args!("name one that is: {all}")))
        }
        0 => {
            let hint = "start one with `handoff agent`, or see `handoff demo`";
            let message = format!("no agent is running for {}", home.path().display());
            Err(refuse(ErrorCode::NotFound, message, hint))
        }
        1 => Ok(running.remove(0)),
        _ => {
            let hint = format!("name one of {}", names(&running));
            Err(refuse(ErrorCode::InvalidArgument, "several agents are running here", hint))
        }
    }
}

impl Plan {
    /// The journal that the move starts from.
    pub fn journal(&self, wanted: &Source) -> MoveJournal {
        MoveJournal {
            id: new_id(),
            source: self.source.name.clone(),
            state_dir: self.source.session_dir.clone(),
            workspace_dir: self.source.workspace.clone(),
            control_socket: self.source.control_socket.clone().unwrap_or_default(),
            session_id: self.session_id,
            epoch: Some(self.epoch),
            draft: None,
            transfer_id: None,
            tier: wanted.tier.clone(),
            budget_usd: wanted.budget,
            node: wanted.node,
            activations: 0,
            frozen: false,
            frozen_at_ms: None,
            nonce: None,
            ended: None,
        }
    }

    /// What the destination's gateway would have to refuse, as far as this machine's policy tells.
    pub fn check_model(&self, home: &Home) -> Result<(), Problem> {
        let Some(model) = &self.source.model else { return Ok(()) };
        let path = home.gateway_policy();
        let policy = if path.exists() { GatewayPolicy::load(&path) } else { GatewayPolicy::parse("") };
        let refuse = |code, message: String, hint: String| Err(Problem::new(code, message, hint));
        let policy = match policy {
            Ok(policy) => policy,
            Err(error) => {
                return refuse(ErrorCode::Misconfigured, error.to_string(), "correct it".to_owned());
            }
        };
        let (upstream, name) = (&model.upstream, &model.name);
        if policy.upstream(upstream).is_none() {
            let message = format!(
                "the gateway's policy has no upstream '{upstream}': the moved session could call no model"
            );
            let hint = format!("add it to {}, with a price for '{name}'", path.display());
            return refuse(ErrorCode::MoveBlocked, message, hint);
        }
        if policy.price(upstream, name).is_none() {
            let message = format!("the gateway's policy has no price for '{name}' of upstream '{upstream}'");
            let hint = format!("add it to {}: what has no price cannot be metered", path.display());
            return refuse(ErrorCode::PriceUnknown, message, hint);
        }
        Ok(())
    }

    /// What looks like a credential and travels, a line each.
    pub fn secrets(&self) -> Vec<String> {
        let secrets = &self.survey.secrets;
        let shown = secrets.iter().take(SECRETS_SHOWN);
        let mut lines: Vec<String> =
            shown.map(|entry| format!("  takes along   {}: {}", entry.at, entry.why)).collect();
        if secrets.len() > SECRETS_SHOWN {
            let more = secrets.len() - SECRETS_SHOWN;
            lines.push(format!("  takes along   {more} more of these; `handoff plan --json` lists them"));
        }
        lines
    }

    /// One line about the session, four about the move, and one for each thing that looks like a credential.
    pub fn show(&self, output: Output, blocked: Option<&Problem>) {
        let (source, survey) = (&self.source, &self.survey);
        output.line(format_args!(
            "session '{}': {} messages, {} steps, in {}",
            source.name,
            survey.messages,
            survey.steps,
            source.workspace.display()
        ));
        output.line(format_args!(
            "  travels       conversation {}, {} files {}",
            bytes(survey.message_bytes),
            survey.files,
            bytes(survey.file_bytes)
        ));
        for line in self.secrets() {
            output.line(line);
        }
        output.line(
            "  is rebuilt    the sandbox, its tools and its model connection, under the destination's keys",
        );
        output.line(format_args!("  stays behind  {}", self.stays_behind()));
        let (hour, hours) = self.price();
        output.line(format_args!(
            "  costs         ${hour} per hour on {}, so ${} last {} of compute; model calls come on top",
            self.tier.name,
            self.budget,
            lasts(self.budget, hour)
        ));
        output.document(&Document {
            schema: "handoff.plan.v1",
            source: &source.name,
            session_id: Some(self.session_id),
            survey,
            tier: self.tier.name.as_str(),
            price_per_hour_usd: hour,
            budget_usd: self.budget,
            hours,
            blocked,
        });
    }

    fn stays_behind(&self) -> String {
        let mut parts: Vec<String> = self
            .survey
            .excluded
            .iter()
            .take(3)
            .map(|entry| format!("{} ({})", entry.at, entry.why))
            .collect();
        if self.survey.excluded.len() > 3 {
            parts.push(format!("{} more", self.survey.excluded.len() - 3));
        }
        parts.push("the environment and its model keys".to_owned());
        parts.push("running processes".to_owned());
        parts.join(", ")
    }

    fn price(&self) -> (NanoUsd, u64) {
        let hour = self.tier.run_cost(3_600_000);
        let hours = self.budget.nano().checked_div(hour.nano()).unwrap_or(0);
        (hour, hours.unsigned_abs())
    }
}

/// How long an amount lasts at so much an hour, in the unit that shows it.
fn lasts(amount: NanoUsd, hour: NanoUsd) -> String {
    let seconds = (i128::from(amount.nano()) * 3_600).checked_div(i128::from(hour.nano()));
    match seconds {
        None => "any time".to_owned(),
        Some(seconds @ ..120) => format!("{seconds} s"),
        Some(seconds @ ..7_200) => format!("{} min", seconds / 60),
        Some(seconds) => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_lasts_in_the_unit_that_shows_it() {
        let last = |amount: &str, hour: &str| {
            lasts(amount.parse().expect("an amount"), hour.parse().expect("an amount"))
        };
        assert_eq!(last("0.03", "7.20"), "15 s");
        assert_eq!(last("0.10", "0.20"), "30 min");
        assert_eq!(last("5", "0.10"), "50 h");
        assert_eq!(last("5", "0"), "any time");
    }
}
